"""Batch size, steps per epoch and learning rate, given the number of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run_config import RunConfig


USUAL_BATCH = 32  # of `fit`, for examples that neither a configuration nor the user's function batches


def global_batch(replica_batch: int, replicas: int) -> int:
    """Return the examples that all replicas together take in one step."""
    return replica_batch * replicas


def steps_per_epoch(config: RunConfig, examples: int | None, replicas: int) -> int | None:
    """Return the steps of an epoch; None if that depends on an unknown number of examples."""
    if config.steps_per_epoch != "all":
        return config.steps_per_epoch
    return None if examples is None else examples // global_batch(config.batch_size, replicas)


def scaled_learning_rate(config: RunConfig, replicas: int) -> float:
    """Return the peak learning rate, multiplied by the replicas if the configuration says so."""
    return config.optimizer.learning_rate * (replicas if config.optimizer.scale_with_replicas else 1)


def padded(size: int, tile: int) -> int:
    """Return the smallest multiple of a tile's side that a size fits into."""
    return -(-size // tile) * tile
