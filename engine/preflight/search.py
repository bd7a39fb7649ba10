"""Finds the largest batch that fits, with few compiles.

The HBM that a step needs grows almost linearly with the batch. A program that is far too large is refused in a fraction
of the time that compiling takes, and the message says what it would have needed. So the first try is the largest batch
that makes sense, and the line through its figure and a smaller batch's shows where to look. Multiples of 8 and 128 are
laid out better than the batches below them, and may fit where those do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.batch import padded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_COMPILES = 20  # most compilations per search; the largest batch that is known to fit by then is the answer
LARGEST = 16_384  # the largest batch per device that is tried if the number of examples is unknown
_STEP = 8  # a TPU pads batches to multiples of it
_TILE = 128  # the side of the matrix unit, to which sums over the batch are padded
_STRAIGHT = 6  # tries that follow the line; then every other one halves what is left, since it was not straight
_NEAR = 1.05  # how many times larger a multiple of 128 may be to be tried after a batch that does not fit


def largest_batch(
    probe: Callable[[int], tuple[bool, int]],
    known: Mapping[int, tuple[bool, int]],
    fixed: int,
    limit: int,
    largest: int,
) -> int:
    """Return the largest batch per device that fits; 0 if none was found.

    `probe` compiles a batch and returns whether it fits, and how many bytes it needs; `known` has such results already.
    `fixed` are the bytes that any batch needs: weights and optimizer slots.
    """
    if fixed >= limit:
        return 0
    tried = {0: (True, fixed), **known}
    for number in range(MOST_COMPILES):
        low = max(batch for batch, (fits, _) in tried.items() if fits)
        high = min((batch for batch, (fits, _) in tried.items() if not fits and batch > low), default=largest + 1)
        if low >= largest:
            break
        if high > largest:
            batch = largest
        elif high - low > 1:
            batch = _between(low, high, tried, limit, halve=number >= _STRAIGHT and number % 2 == 0)
        else:
            better = [padded(high, tile) for tile in (_STEP, _TILE)]
            untried = [size for size in better if size <= min(largest, low * _NEAR) and size not in tried]
            if not untried:
                break
            batch = untried[0]
        tried[batch] = probe(batch)
    return max(batch for batch, (fits, _) in tried.items() if fits)


def worth_choosing(largest: int, wanted: int) -> list[int]:
    """Return up to three batches, the largest first: it, its largest multiple of 128 or 8, and the wanted or half."""
    multiple = next((largest // tile * tile for tile in (_TILE, _STEP) if largest >= tile), largest)
    smaller = wanted if 0 < wanted < largest and wanted != multiple else multiple // 2
    return sorted({batch for batch in (largest, multiple, smaller) if batch > 0}, reverse=True)


def _between(low: int, high: int, tried: Mapping[int, tuple[bool, int]], limit: int, *, halve: bool) -> int:
    """Return a batch between two tried ones: where the line through them meets the limit, or in the middle.

    It is a multiple of the step if there is one between them.
    """
    below, above = tried[low][1], tried[high][1]
    share = (limit - below) / (above - below) if above > below and not halve else 0.5
    first, last = padded(low + 1, _STEP), (high - 1) // _STEP * _STEP
    if first > last or high <= _STEP:
        # A batch after a multiple mostly needs as much as the next one, so that this try decides.
        return low + 1 if low and low % _STEP == 0 else (low + high) // 2
    return min(max(int(low + share * (high - low)) // _STEP * _STEP, first), last)
