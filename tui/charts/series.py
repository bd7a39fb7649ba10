"""A curve that grows: its smoothed form, its best sample, and the few samples that other pictures than charts need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tpu_console.engine.runs.metrics import best_of

from .smoothing import DebiasedEma

if TYPE_CHECKING:
    import numpy.typing as npt

    from .curve import Axis, Curve, FloatArray, IndexArray
    from .window import Extent

_MOST_BUCKETS = 512
_SAMPLED = 1000


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


NO_LINE = Line(np.empty(0), np.empty(0))


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
        size = 1
        while len(line.y) > size * _MOST_BUCKETS:
            size *= 2
        if size == 1:
            return line
        ends = np.array([0, len(line.y) - 1])
        chosen = np.unique(np.concatenate((ends, *_extremes(line.y, size))))
        return Line(line.x[chosen], line.y[chosen])

    def nan_positions(self, axis: Axis, window: Extent) -> FloatArray:
        """Where NaN or infinity was measured, in the axis's unit."""
        if not self.nonfinite_count:
            return np.empty(0)
        line = self.whole(axis).part(window)
        x = line.x[~np.isfinite(line.y)]
        return x[:: max(1, len(x) // _SAMPLED)]

    def sampled(self, axis: Axis, window: Extent) -> FloatArray:
        """About a thousand finite samples, evenly spaced, from which percentiles are taken."""
        part = self.whole(axis).part(window).y
        part = part[:: max(1, len(part) // _SAMPLED)]
        return part[np.isfinite(part)]

    @property
    def best(self) -> int | None:
        """The best finite sample of a validation curve, as `best_of` decides; None for others, and without any."""
        curve = self.curve
        if not curve.is_validation:
            return None
        losses = curve.value if curve.losses is None else curve.losses
        return best_of(curve.value, losses, lowest=curve.metric.lower_is_better)

    def point(self, at: int | None, axis: Axis, window: Extent) -> Line:
        """One sample as measured, if it is visible and finite; else an empty line."""
        if at is None or not window[0] <= self.curve.along(axis)[at] <= window[1]:
            return NO_LINE
        x, y = self.curve.along(axis)[at : at + 1], self.curve.value[at : at + 1]
        return Line(x, y) if np.isfinite(y[0]) else NO_LINE


def _extremes(values: FloatArray, size: int) -> tuple[IndexArray, IndexArray]:
    """Return the places of the lowest and of the highest of every `size` finite values."""
    padded = np.full(-(-len(values) // size) * size, values[-1])
    padded[: len(values)] = values
    rows, begins = padded.reshape(-1, size), np.arange(0, len(padded), size)
    low, high = begins + rows.argmin(axis=1), begins + rows.argmax(axis=1)
    return np.minimum(low, len(values) - 1), np.minimum(high, len(values) - 1)
