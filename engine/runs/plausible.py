"""Checks whether the numbers of an event are possible: a damaged or hostile journal may have epoch 10**30."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

MOST_COUNT = 2**53  # the largest whole number that a float64, and so a curve, holds exactly
MOST_REPLICAS = 16_384  # the largest TPU has 9,216 chips
MOST_METRICS = 200  # of a run; further ones are dropped
LARGEST_MEASURE = 1e15  # seconds, bytes per second and so on
_ANY_NUMBER = {"learning_rate", "value"}  # may be negative, infinite or NaN when training diverges


def is_plausible(event: Any) -> bool:
    """Return whether the counts and measures of a dataclass instance can be drawn and added; metrics are free."""
    return all(_is_possible(field.name, getattr(event, field.name)) for field in fields(event))


def _is_possible(name: str, value: Any) -> bool:
    if isinstance(value, int):
        return 0 <= value <= MOST_COUNT
    if isinstance(value, float):
        return name in _ANY_NUMBER or (math.isfinite(value) and abs(value) <= LARGEST_MEASURE)
    if isinstance(value, tuple):
        return len(value) <= MOST_REPLICAS and all(_is_possible(name, part) for part in value)
    if isinstance(value, dict):
        return name != "logs" or len(value) <= 2 * MOST_METRICS
    return is_plausible(value) if is_dataclass(value) else True
