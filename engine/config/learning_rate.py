"""The learning rate of a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run_config import RunConfig


def scaled_learning_rate(config: RunConfig, replicas: int) -> float:
    """Return the peak learning rate, multiplied by the replicas if the configuration says so."""
    return config.optimizer.learning_rate * (replicas if config.optimizer.scale_with_replicas else 1)
