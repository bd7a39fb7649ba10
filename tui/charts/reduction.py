"""Reduction of a long curve to the few samples that can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .curve import FloatArray, IndexArray


class ExtremaReducer:
    """Keeps the lowest and the highest sample of every bucket of consecutive samples.

    Buckets hold `2**k` samples, counted from sample 0, and `k` grows by one whenever there would be more
    buckets than fit: the choice depends on the number of samples alone, never on how they arrived, a spike
    is never hidden, and what is drawn of the past changes only when `k` does.

    Args:
        max_points: Most samples to draw, the very last one not counted; at least 3.

    Raises:
        ValueError: If `max_points` is below 3, too few for one bucket and the first sample.
    """

    def __init__(self, max_points: int) -> None:
        if max_points < 3:
            msg = f"max_points must be at least 3, not {max_points}"
            raise ValueError(msg)
        # The first finite sample is always drawn and may be no extreme of its bucket.
        self._max_buckets = (max_points - 1) // 2
        self._bucket_size = 1
        self._count = 0
        self._first_finite = -1
        self._last_finite = -1
        self._nonfinite_count = 0
        self._low = _BucketMinima(self._max_buckets)
        self._high = _BucketMinima(self._max_buckets)  # of the samples turned upside down
        self._nan = _BucketMinima(self._max_buckets)  # of 0 where a sample is not finite

    def extend(self, ys: FloatArray) -> None:
        """Append the samples `ys`, shape `(n,)`."""
        start, end = self._count, self._count + len(ys)
        while end > self._bucket_size * self._max_buckets:
            self._double()
        size = self._bucket_size
        head = min(-start % size, len(ys))
        body = head + (len(ys) - head) // size * size
        self._absorb(ys[:head].reshape(1, -1), start)
        self._absorb(ys[head:body].reshape(-1, size), start + head)
        self._absorb(ys[body:].reshape(1, -1), start + body)
        self._note_ends(np.isfinite(ys), start)
        self._count = end

    @property
    def count(self) -> int:
        """Number of samples so far."""
        return self._count

    @property
    def bucket_size(self) -> int:
        """Samples in one bucket, a power of two."""
        return self._bucket_size

    @property
    def minimum(self) -> float:
        """Lowest finite sample; infinity while there is none."""
        return float(self._low.values.min())

    @property
    def maximum(self) -> float:
        """Highest finite sample; minus infinity while there is none."""
        return -float(self._high.values.min())

    @property
    def nonfinite_count(self) -> int:
        """How many samples were NaN or infinite."""
        return self._nonfinite_count

    @property
    def indices(self) -> IndexArray:
        """The samples to draw: sorted, each once, all finite, with the first and the last among them."""
        ends = np.array([self._first_finite, self._last_finite], dtype=np.int64)
        chosen = np.unique(np.concatenate((self._low.at, self._high.at, ends)))
        return chosen[np.searchsorted(chosen, 0) :]

    @property
    def nan_indices(self) -> IndexArray:
        """Return the first NaN or infinite sample of every bucket that has one, sorted."""
        return self._nan.at[self._nan.at >= 0]

    def _note_ends(self, finite: npt.NDArray[np.bool_], start: int) -> None:
        found = int(np.count_nonzero(finite))
        self._nonfinite_count += len(finite) - found
        if found == 0:
            return
        if self._first_finite < 0:
            self._first_finite = start + int(finite.argmax())
        self._last_finite = start + len(finite) - 1 - int(finite[::-1].argmax())

    def _absorb(self, rows: FloatArray, start: int) -> None:
        """Take in samples from index `start` on, one bucket (or a part of one) a row, shape `(b, n)`."""
        if rows.size == 0:
            return
        first = start // self._bucket_size
        finite = np.isfinite(rows)
        if finite.all():
            self._low.absorb(rows, first, start)
            self._high.absorb(-rows, first, start)
        else:
            self._low.absorb(np.where(finite, rows, np.inf), first, start)
            self._high.absorb(np.where(finite, -rows, np.inf), first, start)
            self._nan.absorb(np.where(finite, np.inf, 0.0), first, start)

    def _double(self) -> None:
        self._bucket_size *= 2
        for minima in (self._low, self._high, self._nan):
            minima.double()


class _BucketMinima:
    """The lowest sample of every bucket: its value (infinity for none) and its index (-1 for none)."""

    def __init__(self, buckets: int) -> None:
        # An even number of places, so that buckets can be joined in pairs.
        places = buckets + buckets % 2
        self.values: FloatArray = np.full(places, np.inf)
        self.at: IndexArray = np.full(places, -1, dtype=np.int64)

    def absorb(self, rows: FloatArray, first: int, start: int) -> None:
        """Take in `rows`, shape `(b, n)`: buckets from `first` on, the samples counted from `start`."""
        buckets = slice(first, first + len(rows))
        picked = np.arange(len(rows))
        column = rows.argmin(axis=1)
        lowest = rows[picked, column]
        # Strictly lower: of equal samples the first is drawn, however they were chunked.
        better = lowest < self.values[buckets]
        self.values[buckets][better] = lowest[better]
        self.at[buckets][better] = (start + picked * rows.shape[1] + column)[better]

    def double(self) -> None:
        """Join every two buckets into one."""
        half = len(self.values) // 2
        left, right = self.values[0::2], self.values[1::2]
        at = np.where(right < left, self.at[1::2], self.at[0::2])
        self.values[:half] = np.minimum(left, right)
        self.values[half:] = np.inf
        self.at[:half] = at
        self.at[half:] = -1
