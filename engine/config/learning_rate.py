"""The learning rate that a configuration amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run_config import RunConfig


def scaled_learning_rate(config: RunConfig, replicas: int) -> float:
    """Return the peak learning rate: multiplied by the replicas when that was asked for."""
    return config.optimizer.learning_rate * (replicas if config.optimizer.scale_with_replicas else 1)
