"""The vertical range of a chart."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .curve import FloatArray
    from .window import Extent

# At either end, no more than this share of the samples lies outside, or one of a few.
_MOST_OUTSIDE = 0.15
# How far its whiskers reach, in boxes: what lies outside is "far out", by Tukey.
_REACH = 3.0
# Samples lie outside if they would make the range larger than this many times; otherwise they fit.
_STRETCH = 2.0


class YRange(enum.Enum):
    """How a chart chooses its vertical range.

    `AUTO` fits what matters and marks spikes at the edge, `FULL` shows every sample, `FIXED` keeps the range that the
    chart had when it was chosen.
    """

    AUTO = "auto"
    FULL = "full"
    FIXED = "fixed"


def full_range(parts: Sequence[FloatArray]) -> Extent | None:
    """Return the lowest and the highest value, or None if there are none."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return None
    return float(min(part.min() for part in filled)), float(max(part.max() for part in filled))


def robust_range(
    samples: Sequence[FloatArray], extremes: Sequence[FloatArray], kept: Sequence[FloatArray]
) -> Extent | None:
    """Return a range that a few spikes do not change.

    Args:
        samples: Of each curve, evenly spaced samples of the visible part; all but its outliers are seen.
        extremes: Of each curve, all its extremes: they are seen too unless that would flatten the rest.
        kept: Values that are always seen: the newest and the best.
    """
    usual = [end for part in samples if len(part) for end in _whiskers(part)]
    inner = full_range([np.array(usual), *kept])
    outer = full_range([*extremes, *kept])
    if inner is None or outer is None:
        return outer
    low, high = inner
    reach = (_STRETCH - 1.0) * (high - low)
    low = outer[0] if low - outer[0] <= reach else low
    high = outer[1] if outer[1] - high <= reach else high
    return low, high


def _whiskers(part: FloatArray) -> tuple[float, float]:
    """Return the ends of a box plot's whiskers; a start that is steep hides a seventh of the samples at most."""
    out, ordered = max(int(_MOST_OUTSIDE * len(part)), 1), np.sort(part)
    lower, upper = (float(end) for end in np.percentile(ordered, (25, 75)))
    reach = _REACH * (upper - lower)
    if reach == 0.0:
        return float(np.percentile(part, 1)), float(np.percentile(part, 99))
    inside = ordered[(ordered >= min(ordered[out], lower - reach)) & (ordered <= max(ordered[-1 - out], upper + reach))]
    return float(inside[0]), float(inside[-1])
