"""Speeds of input pipelines that were measured on this machine, for the plan to show.

`tpu-console inspect --speed` measures them; they are kept in ``speeds.json``, beside the runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..storage.keyed_store import KeyedStore, key_of

if TYPE_CHECKING:
    from ..config.run_config import RunConfig


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a pipeline was."""

    first: float  # examples a second in the first epoch, which reads and decodes
    later: float | None  # examples a second in later epochs; None if not measured


_SPEEDS = KeyedStore[Speed]("speeds.json", Speed)


def save_input_speed(config: RunConfig, parts: list[dict[str, Any]]) -> None:
    """Record measured speeds, each an `engine.jobs.inspecting.speed.Rate` as a dictionary."""
    rates = {part["name"]: part["per_s"] for part in parts}
    _SPEEDS.put(_key(config), Speed(rates["first"], rates.get("later")))


def input_speed_of(config: RunConfig) -> Speed | None:
    """Return the measured speed of a configuration's pipeline on this machine; None if there is none."""
    speed = _SPEEDS.get(_key(config))
    if speed is None or not all(0 < rate < math.inf for rate in (speed.first, speed.later) if rate is not None):
        return None
    return speed


def _key(config: RunConfig) -> str:
    """Return a key of everything that the speed depends on; the batch matters little and is left out."""
    data = config.data.model_dump(mode="json", exclude={"train_limit", "validation_fraction"})
    return key_of([config.dataset, data, config.augmentation.model_dump(mode="json")])
