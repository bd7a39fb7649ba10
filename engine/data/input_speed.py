"""Speeds of input pipelines that were measured on this machine, for the plan to show.

`tpu-console inspect --speed` measures; what it found is kept beside the runs in ``speeds.json``, by everything that a
pipeline's speed depends on.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..storage.keyed_store import KeyedStore

if TYPE_CHECKING:
    from ..config.run_config import RunConfig

_SPEEDS = KeyedStore("speeds.json")


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a pipeline was.

    Args:
        first: Examples a second in the first epoch, which reads and decodes.
        later: Examples a second in the epochs after it; None where it was not measured.
    """

    first: float
    later: float | None


def remember(config: RunConfig, parts: list[dict[str, Any]]) -> None:
    """Keep what was measured.

    Args:
        config: The configuration whose pipeline was measured.
        parts: `engine.jobs.inspecting.speed.Rate` as dictionaries.
    """
    rates = {part["name"]: part["per_s"] for part in parts}
    _SPEEDS.put(_key(config), {"first": rates["first"], "later": rates.get("later")})


def recall(config: RunConfig) -> Speed | None:
    """Return what was measured of a configuration's pipeline on this machine; None when nothing was."""
    found = _SPEEDS.get(_key(config))
    try:
        return None if found is None else Speed(float(found["first"]), found.get("later"))
    except (KeyError, TypeError, ValueError):
        return None


def _key(config: RunConfig) -> str:
    """Name everything that a pipeline's speed depends on; a batch matters little and is left out."""
    data = config.data.model_dump(mode="json", exclude={"train_limit", "validation_fraction"})
    values = [config.dataset, data, config.augmentation.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
