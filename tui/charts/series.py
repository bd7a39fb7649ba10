"""A curve that grows: its smoothed form, its best sample, and the few samples that other pictures than charts need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tpu_console.engine.runs.curves import Samples
from tpu_console.engine.runs.metrics import best_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from .curve import Axis, Curve, Extent, FloatArray, IndexArray

_MOST_BUCKETS = 512
_MOST_LOST = 1000
_NEGLIGIBLE = 1e-18  # a smaller weight of the past changes no bit of a double
_CHUNK = 8192  # samples that stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Line:
    """Samples of a curve, in order."""

    x: FloatArray  # horizontal positions in the axis's unit, shape `(n,)`
    y: FloatArray  # values, shape `(n,)`

    def part(self, ends: Extent, around: int = 0) -> Line:
        """Return the samples inside a window as a view, with so many samples more at either end."""
        first = int(np.searchsorted(self.x, ends[0])) - around
        last = int(np.searchsorted(self.x, ends[1], side="right")) + around
        inside = slice(max(first, 0), max(last, 0))
        return Line(self.x[inside], self.y[inside])

    def only(self, keep: npt.NDArray[np.bool_]) -> Line:
        """Return some of the samples."""
        return self if keep.all() else Line(self.x[keep], self.y[keep])


class DebiasedEma:
    """Exponential moving average without the pull towards zero at the start.

    `m_n = weight * m_(n-1) + (1 - weight) * x_n`, and the smoothed value is `m_n / (1 - weight**n)`: the bias
    correction of Adam (Kingma and Ba, 2015), which TensorBoard's smoothing slider uses too. NaN and infinity come out
    as NaN in their place and count for nothing.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight  # of the past, in `[0, 1)`
        self._mean = 0.0
        self._finite_count = 0
        self._smoothed = Samples()

    def extend(self, values: FloatArray) -> None:
        """Append `values`, shape `(n,)`, in the order they were measured."""
        finite = np.flatnonzero(np.isfinite(values))
        smoothed = np.full(len(values), np.nan)
        for begin in range(0, len(finite), _CHUNK):
            chunk = finite[begin : begin + _CHUNK]
            smoothed[chunk] = self._average(values[chunk])
        self._smoothed = self._smoothed.extended(smoothed)

    @property
    def values(self) -> FloatArray:
        """Every smoothed value so far, one per value given, as a read-only view."""
        return self._smoothed.values

    def _average(self, values: FloatArray) -> FloatArray:
        """Return the smoothed form of finite values, by a doubling scan: each pass adds the sum `shift` places before.

        The passes end where the weight of what they would add is negligible.
        """
        mean = (1.0 - self.weight) * values
        mean[0] += self.weight * self._mean
        shift = 1
        while shift < len(mean) and self.weight**shift > _NEGLIGIBLE:
            mean[shift:] += self.weight**shift * mean[:-shift]
            shift *= 2
        self._mean, before = float(mean[-1]), self._finite_count
        self._finite_count += len(mean)
        if self.weight**before < _NEGLIGIBLE:
            return mean
        return mean / (1.0 - self.weight ** np.arange(before + 1.0, self._finite_count + 1.0))


class Series:
    """One curve, raw and smoothed."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve  # as last seen
        self.count = 0  # samples so far
        self.nonfinite_count = 0  # how many of them are NaN or infinite
        self.lowest = self.highest = math.nan  # of the finite samples; NaN while there is none
        self._ema = DebiasedEma(0.0)
        self.update(curve)

    @property
    def latest(self) -> float:
        """The newest sample, NaN included; NaN before the first one."""
        return float(self.curve.value[-1]) if len(self.curve.value) else math.nan

    def continues_in(self, curve: Curve) -> bool:
        """Return whether a curve begins with the samples seen so far; not if the run went back to a checkpoint."""
        last = self.count - 1
        if last < 0:
            return True
        if last >= len(curve.value):
            return False
        pairs = ((self.curve.elapsed_s, curve.elapsed_s), (self.curve.value, curve.value))
        return all(np.array_equal(old[last : last + 1], new[last : last + 1], equal_nan=True) for old, new in pairs)

    @classmethod
    def grown(cls, series: Series | None, curve: Curve, smoothing: float = 0.0) -> Series:
        """Return a series with the new samples of its curve, or a new one for another curve."""
        if series is None or not series.continues_in(curve):
            series = cls(curve)
        series.update(curve, smoothing)
        return series

    def update(self, curve: Curve, smoothing: float = 0.0) -> None:
        """Take in the samples of `curve` that are new, and smooth them with a weight of the past."""
        new = curve.value[self.count :]
        finite = new[np.isfinite(new)]
        if len(finite):
            self.lowest = float(np.fmin(self.lowest, finite.min()))
            self.highest = float(np.fmax(self.highest, finite.max()))
        self.nonfinite_count += len(new) - len(finite)
        self.curve, self.count = curve, len(curve.value)
        if smoothing != self._ema.weight:
            self._ema = DebiasedEma(smoothing)
        if smoothing > 0.0:
            self._ema.extend(curve.value[len(self._ema.values) :])

    def whole(self, axis: Axis) -> Line:
        """Return every sample as measured, NaN included."""
        return Line(self.curve.along(axis), self.curve.value)

    def smooth(self, axis: Axis) -> Line | None:
        """Return the moving average at every sample, whatever part of it is drawn; None without smoothing."""
        return Line(self.curve.along(axis), self._ema.values) if self._ema.weight > 0.0 else None

    def raw_line(self, axis: Axis) -> Line:
        """Return at most about a thousand finite samples, the lowest and the highest of every stretch among them.

        Stretches hold `2**k` samples, counted from the first one, so that what is drawn of the past rarely changes.
        """
        line = self.whole(axis)
        line = line.only(np.isfinite(line.y))
        count = len(line.y)
        if count <= _MOST_BUCKETS:
            return line
        size = 1 << ((count - 1) // _MOST_BUCKETS).bit_length()
        rows, begins = np.pad(line.y, (0, -count % size), "edge").reshape(-1, size), np.arange(0, count, size)
        chosen = np.unique([0, *(begins + rows.argmin(axis=1)), *(begins + rows.argmax(axis=1)), count - 1])
        return Line(line.x[chosen], line.y[chosen])

    def lost(self, axis: Axis, window: Extent) -> IndexArray:
        """Return the numbers of at most about a thousand samples in a window that are NaN or infinite."""
        at = np.flatnonzero(~np.isfinite(self.curve.value)) if self.nonfinite_count else np.empty(0, dtype=np.int64)
        x = self.curve.along(axis)[at]
        at = at[(x >= window[0]) & (x <= window[1])]
        return at[:: max(1, len(at) // _MOST_LOST)]

    @property
    def best(self) -> int | None:
        """The best finite sample of a validation curve, as `best_of` decides; None for others, and without any."""
        curve = self.curve
        if not curve.is_validation:
            return None
        losses = curve.value if curve.losses is None else curve.losses
        return best_of(curve.value, losses, lowest=curve.metric.lower_is_better)

    def best_line(self, axis: Axis) -> Line:
        """Return the best sample; an empty line if there is none."""
        chosen = slice(0) if (at := self.best) is None else slice(at, at + 1)
        return Line(self.curve.along(axis)[chosen], self.curve.value[chosen])
