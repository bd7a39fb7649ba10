"""Finds the largest batch that fits, with few compiles.

The HBM that a step needs grows almost linearly with the batch, so a line through two results shows where it meets the
limit. Where that misses twice on the same side, the middle is tried. Only multiples are tried, about 1% of the batch
apart: a finer answer would not change a run, and each try takes as long as a compile.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..config.batch import padded

if TYPE_CHECKING:
    from collections.abc import Mapping

    Tried = Mapping[int, tuple[bool, int]]
    """Whether each batch per device fits and the bytes that it needs, in the order of the tries."""

MULTIPLE = 8  # a TPU pads batches to multiples of it
LARGEST = 16_384  # the largest batch per device that is tried if the number of examples is unknown
_TILE = 128  # the side of the matrix unit, to which sums over the batch are padded
_NEAR = 1.05  # how many times larger a multiple of 128 may be to be tried after a batch that does not fit
_FINE = 64  # the least number of steps that a batch of many multiples is searched by
_MOST = 16  # results after which a search ends, however memory grows


def next_batch(tried: Tried, limit: int, multiple: int = MULTIPLE, largest: int = LARGEST) -> int | None:
    """Return the batch to compile next; None if the search is over.

    Args:
        tried: The results so far; that of a batch of 0 is what any batch needs: weights and optimizer slots.
        limit: The bytes that a device has.
        multiple: Batches are multiples of it, large ones of a power of two times it; below it every size counts.
        largest: The largest batch that makes sense, such as all examples of the dataset.
    """
    low, high = largest_fitting(tried), smallest_too_large(tried)
    if low >= largest or tried[0][1] >= limit or len(tried) > _MOST:
        return None
    aim = _meeting(tried, limit)
    step = multiple if high is None or high > multiple else 1
    while step >= multiple and 2 * step * _FINE <= min(aim, largest):
        step *= 2
    if high is None and aim > largest - step:
        return largest
    first, last = padded(low + 1, step), ((high or largest + 1) - 1) // step * step
    if first <= last:
        if high is not None and _is_one_sided(tried):
            aim = math.sqrt(low * high) if 0 < 4 * low < high else (low + high) / 2
        return min(max(int(aim) // step * step, first), last)
    better = padded(high or largest, _TILE)  # may be laid out better than the batches below it
    return better if better <= min(largest, low * _NEAR) and better not in tried else None


def largest_fitting(tried: Tried) -> int:
    """Return the largest batch that is known to fit; 0 if none is."""
    return max((batch for batch, (fits, _) in tried.items() if fits), default=0)


def smallest_too_large(tried: Tried) -> int | None:
    """Return the smallest batch that is known not to fit, of those above all that do; None if there is none."""
    low = largest_fitting(tried)
    return min((batch for batch, (fits, _) in tried.items() if not fits and batch > low), default=None)


def worth_choosing(largest: int, wanted: int) -> list[int]:
    """Return up to three batches, the largest first: it, its largest multiple of 128 or 8, and the wanted or half."""
    multiple = next((largest // tile * tile for tile in (_TILE, MULTIPLE) if largest >= tile), largest)
    smaller = wanted if 0 < wanted < largest and wanted != multiple else multiple // 2
    return sorted({batch for batch in (largest, multiple, smaller) if batch > 0}, reverse=True)


def _meeting(tried: Tried, limit: int) -> float:
    """Return the batch at which a line meets the limit: through the batches beside it, or the largest two that fit."""
    fitting = sorted(batch for batch, (fits, _) in tried.items() if fits)
    high = smallest_too_large(tried)
    left, right = [0, *fitting, *([] if high is None else [high])][-2:]
    below, above = tried[left][1], tried[right][1]
    return left + (limit - below) * (right - left) / (above - below) if above > below else math.inf


def _is_one_sided(tried: Tried) -> bool:
    """Return whether the last two tries both fit or both did not: following the line again could go on like that."""
    *_, before, last = (fits for fits, _ in tried.values())
    return before == last
