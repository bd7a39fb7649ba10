"""Finds the largest batch that fits, with few compiles.

The HBM that a step needs grows almost linearly with the batch. A program that is far too large is refused in a fraction
of the time that compiling takes, and the message says what it would have needed. So the first try is the largest batch
that makes sense, and the line through its figure and a smaller batch's shows where to look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_COMPILES = 6  # most compilations per search; the largest batch that is known to fit by then is the answer
LARGEST = 16_384  # the largest batch per device that is tried if the number of examples is unknown
_STEP = 8  # a TPU pads batches to multiples of it
_CLOSE = 1 / 64  # of the answer: looking closer is not worth a compile
_AIM = 0.99  # of the limit: the line is not quite straight
_FULL = 0.97  # of the limit: what is left is not worth a compile


def largest_batch(
    probe: Callable[[int], tuple[bool, int]],
    known: Mapping[int, tuple[bool, int]],
    fixed: int,
    limit: int,
    largest: int = LARGEST,
) -> int:
    """Return the largest batch per device that fits; 0 if none was found.

    `probe` compiles a batch and returns whether it fits, and how many bytes it needs; `known` has such results already.
    `fixed` are the bytes that any batch needs: weights and optimizer slots.
    """
    if fixed >= limit:
        return 0
    tried = {0: (True, fixed), **known}
    for _ in range(MOST_COMPILES):
        low = max(batch for batch, (fits, _) in tried.items() if fits)
        too_large = [batch for batch, (fits, _) in tried.items() if not fits]
        high = min(too_large, default=largest + 1)
        is_close = high - low <= max(1, _STEP if low >= _STEP else 1, int(low * _CLOSE))
        if low >= largest or is_close or tried[low][1] >= limit * _FULL:
            break
        batch = _between(low, high, tried, limit) if too_large else largest
        tried[batch] = probe(batch)
    return max(batch for batch, (fits, _) in tried.items() if fits)


def _between(low: int, high: int, tried: Mapping[int, tuple[bool, int]], limit: int) -> int:
    """Return the batch at which the line through two tried ones meets the limit, as a multiple of the step."""
    below, above = tried[low][1], tried[high][1]
    share = (limit * _AIM - below) / (above - below) if above > below else 0.5
    wanted = int(low + share * (high - low)) // _STEP * _STEP
    # If the line leads nowhere new, bisect.
    if not low < wanted < high:
        wanted = (low + high) // 2 // _STEP * _STEP
    return wanted if low < wanted < high else (low + high) // 2
