"""Reduction of any part of a long curve to the few samples that can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .curve import FloatArray, IndexArray

BLOCK = 64
"""Samples in a block whose extremes are kept: a million samples take 3 ms once, then any window 0.1 ms."""


class Extremes:
    """Finds the lowest and the highest sample of every bucket of consecutive samples.

    Buckets hold `2**k` samples, counted from sample 0, with the smallest `k` for which few enough cover the asked
    part. So the choice depends on the samples alone, never on how they arrived, a spike is never hidden, and what is
    drawn of the past changes only when `k` does. For long parts the buckets are joined from blocks of 64 samples.

    Attributes:
        count: Samples so far.
        nonfinite_count: How many of them are NaN or infinite.
        lowest: The first lowest finite sample, or -1.
        highest: The first highest finite sample, or -1.
    """

    def __init__(self) -> None:
        self.count = 0
        self.nonfinite_count = 0
        self.lowest = self.highest = -1
        self._low, self._high, self._nan = _Blocks(), _Blocks(), _Blocks()

    def update(self, samples: FloatArray) -> None:
        """Take in the samples that are new; those taken in before are unchanged."""
        if len(samples) == self.count:
            return
        begin, end = BLOCK * self._low.count, len(samples) // BLOCK * BLOCK
        rest = max(end, self.count)
        parts = []
        if end > begin:
            parts.append(_extremes(samples[begin:end].reshape(-1, BLOCK), begin))
            for blocks, found in zip((self._low, self._high, self._nan), parts[0], strict=True):
                blocks.append(*found)
        if len(samples) > rest:
            parts.append(_extremes(samples[rest:].reshape(1, -1), rest))
        for (low, at_low), (high, at_high), _ in parts:
            self.lowest = _better(samples, self.lowest, int(at_low[low.argmin()]), 1)
            self.highest = _better(samples, self.highest, int(at_high[high.argmin()]), -1)
        self.nonfinite_count += int(np.count_nonzero(~np.isfinite(samples[self.count :])))
        self.count = len(samples)

    def within(self, samples: FloatArray, first: int, last: int, most: int) -> tuple[IndexArray, IndexArray]:
        """Return the samples to draw between two samples.

        Args:
            samples: All samples, as given to `update`.
            first: The first sample of the part.
            last: The sample behind its last one.
            most: Most buckets.

        Returns:
            The finite samples, sorted, each once: the ends of the part and the extremes of its buckets. And the first
            NaN or infinite sample of every bucket that has one.
        """
        if last <= first:
            return _NONE, _NONE
        size = 1
        while (last - 1) // size - first // size >= most:
            size *= 2
        if size < BLOCK:
            found = self._from_samples(samples, first, last, size)
        else:
            found = self._from_blocks(samples, first, last, size // BLOCK)
        low, high, nan = (at[(at >= first) & (at < last)] for at in found)
        ends = _finite_ends(samples, first, last)
        return np.unique(np.concatenate((low, high, ends))), nan

    @staticmethod
    def _from_samples(samples: FloatArray, first: int, last: int, size: int) -> list[IndexArray]:
        if last <= first:
            return [_NONE] * 3
        begin = first // size * size
        part = np.full(-(-(last - begin) // size) * size, np.nan)
        part[first - begin : last - begin] = samples[first:last]
        return [at for _, at in _extremes(part.reshape(-1, size), begin)]

    def _from_blocks(self, samples: FloatArray, first: int, last: int, joined: int) -> list[IndexArray]:
        """Join the blocks that lie inside the part; less than a block remains at either end."""
        inner, outer = -(-first // BLOCK), last // BLOCK
        begin = inner // joined * joined
        places = -(-(outer - begin) // joined) * joined
        head = self._from_samples(samples, first, inner * BLOCK, BLOCK)
        tail = self._from_samples(samples, outer * BLOCK, last, BLOCK)
        found = []
        for which, blocks in enumerate((self._low, self._high, self._nan)):
            keys, at = np.full(places, np.inf), np.full(places, -1, dtype=np.int64)
            inside = slice(inner - begin, outer - begin)
            keys[inside], at[inside] = blocks.keys[inner:outer], blocks.at[inner:outer]
            rows = keys.reshape(-1, joined)
            best = at.reshape(-1, joined)[np.arange(len(rows)), rows.argmin(axis=1)]
            found.append(np.concatenate((head[which], best, tail[which])))
        return found


class _Blocks:
    """The extreme of every complete block: its key (infinity for none) and its sample (-1 for none)."""

    def __init__(self) -> None:
        self.count = 0
        self._keys: FloatArray = np.empty(64)
        self._at: IndexArray = np.empty(64, dtype=np.int64)

    @property
    def keys(self) -> FloatArray:
        return self._keys[: self.count]

    @property
    def at(self) -> IndexArray:
        return self._at[: self.count]

    def append(self, keys: FloatArray, at: IndexArray) -> None:
        """Append the extremes of more blocks."""
        end = self.count + len(keys)
        if end > len(self._keys):
            self._keys, self._at = np.resize(self._keys, 2 * end), np.resize(self._at, 2 * end)
        self._keys[self.count : end], self._at[self.count : end] = keys, at
        self.count = end


_NONE: IndexArray = np.empty(0, dtype=np.int64)


def _extremes(rows: FloatArray, begin: int) -> list[tuple[FloatArray, IndexArray]]:
    """Return the lowest, the highest and the first sample of every row that is NaN or infinite, each with a key.

    The smaller the key, the lower, higher or earlier the sample; it is infinite and the sample -1 if there is none.
    """
    firsts = np.arange(len(rows))
    places = begin + firsts * rows.shape[1]
    finite = np.isfinite(rows)
    if finite.all():
        low, high = rows.argmin(axis=1), rows.argmax(axis=1)
        nothing = np.full(len(rows), np.inf), np.full(len(rows), -1, dtype=np.int64)
        return [(rows[firsts, low], places + low), (-rows[firsts, high], places + high), nothing]
    found = []
    for keys in (np.where(finite, rows, np.inf), np.where(finite, -rows, np.inf), np.where(finite, np.inf, 0.0)):
        column = keys.argmin(axis=1)
        smallest = keys[firsts, column]
        found.append((smallest, np.where(np.isinf(smallest), -1, places + column)))
    return found


def _better(samples: FloatArray, old: int, new: int, sign: int) -> int:
    """Return the one of two samples, the older first, that is lower; higher if the sign is -1."""
    if min(old, new) < 0:
        return max(old, new)
    return new if sign * samples[new] < sign * samples[old] else old


def _finite_ends(samples: FloatArray, first: int, last: int) -> IndexArray:
    """Return the first and the last finite sample of a part; a long stretch of NaN is passed over in pieces."""
    ends = []
    for direction in (1, -1):
        part = samples[first:last][::direction]
        for begin in range(0, len(part), 4096):
            finite = np.isfinite(part[begin : begin + 4096])
            if finite.any():
                place = begin + int(finite.argmax())
                ends.append(first + place if direction > 0 else last - 1 - place)
                break
    return np.array(ends, dtype=np.int64)
