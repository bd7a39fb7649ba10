"""Summary statistics and histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BINS = 10


def spread(values: NDArray[Any]) -> dict[str, float]:
    """Return the ``min``, ``median`` and ``max`` of some values."""
    return {"min": float(values.min()), "median": float(np.median(values)), "max": float(values.max())}


def histogram(values: NDArray[Any]) -> list[dict[str, float]]:
    """Count at least one value in bins of equal width, each with its ``low``, ``high`` and ``count``.

    The last bin takes all outliers above. A bin of whole numbers includes both ends. If there are few different values,
    each gets a bin, and both ends are the value.
    """
    different, counts = np.unique(values, return_counts=True)
    if len(different) <= _BINS:
        return [_bin(value, value, count) for value, count in zip(different, counts, strict=True)]
    low, high = float(values.min()), float(np.quantile(values, 0.99))
    step = max((high - low) / _BINS, 1e-12)
    is_whole = np.issubdtype(values.dtype, np.integer)
    if is_whole:
        step = float(np.ceil((high - low + 1) / _BINS))
    edges = low + step * np.arange(_BINS + 1)
    inner = np.digitize(values, edges[1:-1])
    counts = np.bincount(inner, minlength=_BINS)
    ends = edges[1:] - is_whole
    ends[-1] = max(ends[-1], float(values.max()))
    return [_bin(edges[number], ends[number], counts[number]) for number in range(_BINS)]


def _bin(low: float, high: float, count: int) -> dict[str, float]:
    return {"low": float(low), "high": float(high), "count": int(count)}
