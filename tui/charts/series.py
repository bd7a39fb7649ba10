"""The reducible form of each curve that a chart keeps, so that a redraw processes only new samples and what is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tpu_console.engine.runs.metrics import best_of

from .levels import Extremes
from .smoothing import DebiasedEma

if TYPE_CHECKING:
    from .curve import Axis, Curve, FloatArray
    from .window import Extent

# About one bucket per dot column of a 250-cell pane: fixed, so that resizing changes no curve.
_MOST_BUCKETS = 512
_SAMPLED = 1000


@dataclass(frozen=True, slots=True)
class Line:
    """The samples of a curve that are drawn, in order."""

    x: FloatArray  # horizontal positions in the axis's unit, shape `(n,)`
    y: FloatArray  # finite values, shape `(n,)`


NO_LINE = Line(np.empty(0), np.empty(0))


class Series:
    """One curve, raw and smoothed."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve  # as last seen
        self._raw = Extremes()
        self._ema = DebiasedEma(0.0)
        self._smooth = Extremes()

    @property
    def count(self) -> int:
        """Number of samples."""
        return self._raw.count

    @property
    def nonfinite_count(self) -> int:
        """How many samples are NaN or infinite."""
        return self._raw.nonfinite_count

    @property
    def is_smoothed(self) -> bool:
        """Whether there is a smoothed line to draw."""
        return self._ema.weight > 0.0

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

    def update(self, curve: Curve, smoothing: float) -> None:
        """Take in the samples of `curve` that are new; those of held-out metrics are not smoothed."""
        self.curve = curve
        self._raw.update(curve.value)
        weight = 0.0 if curve.is_validation else smoothing
        if weight != self._ema.weight:
            self._ema = DebiasedEma(weight)
            self._smooth = Extremes()
        if self.is_smoothed:
            self._ema.extend(curve.value[self._smooth.count :])
            self._smooth.update(self._ema.values)

    def raw_line(self, axis: Axis, window: Extent | None = None) -> Line:
        """The samples as measured, reduced; all without a window."""
        return self._line(self._raw, self.curve.value, axis, window)

    def smooth_line(self, axis: Axis, window: Extent | None = None) -> Line:
        """The moving average, reduced; all without a window."""
        return self._line(self._smooth, self._ema.values, axis, window)

    def _line(self, extremes: Extremes, values: FloatArray, axis: Axis, window: Extent | None) -> Line:
        x = self.curve.along(axis)
        first, last = _part(x, window, around=1)
        chosen, _ = extremes.within(values, first, last, _MOST_BUCKETS)
        line = Line(x[chosen], values[chosen])
        return line if window is None else _cut(line, *window)

    def nan_positions(self, axis: Axis, window: Extent | None = None) -> FloatArray:
        """Where NaN or infinity was measured, in the axis's unit, reduced."""
        x = self.curve.along(axis)
        return x[self._raw.within(self.curve.value, *_part(x, window), _MOST_BUCKETS)[1]]

    def sampled(self, axis: Axis, window: Extent) -> FloatArray:
        """About a thousand finite samples, evenly spaced, from which percentiles are taken."""
        first, last = _part(self.curve.along(axis), window)
        part = self.curve.value[first : last : max(1, (last - first) // _SAMPLED)]
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
        """One sample, if it is visible and finite; else an empty line."""
        if at is None or not window[0] <= self.curve.along(axis)[at] <= window[1]:
            return NO_LINE
        x, y = self.curve.along(axis)[at : at + 1], self.curve.value[at : at + 1]
        return Line(x, y) if np.isfinite(y[0]) else NO_LINE

    @property
    def highest(self) -> float:
        """The highest finite sample; NaN while there is none."""
        return float(self.curve.value[self._raw.highest]) if self._raw.highest >= 0 else math.nan

    @property
    def is_positive(self) -> bool:
        """Whether no finite sample is 0 or below."""
        return self._raw.lowest < 0 or bool(self.curve.value[self._raw.lowest] > 0.0)


def _part(x: FloatArray, window: Extent | None, around: int = 0) -> tuple[int, int]:
    """Return the first sample of a window and the one behind its last, with so many samples more at either end."""
    if window is None:
        return 0, len(x)
    first = int(np.searchsorted(x, window[0])) - around
    last = int(np.searchsorted(x, window[1], side="right")) + around
    return max(first, 0), min(last, len(x))


def _cut(line: Line, left: float, right: float) -> Line:
    """Cut a line that begins before `left` or ends after `right` where it crosses them."""
    x, y = line.x.copy(), line.y.copy()
    if len(x) > 1:
        for end, neighbour, border in ((0, 1, left), (-1, -2, right)):
            share = (border - line.x[end]) / ((line.x[neighbour] - line.x[end]) or 1.0)
            if 0.0 < share <= 1.0:
                x[end], y[end] = border, line.y[end] + share * (line.y[neighbour] - line.y[end])
    inside = (x >= left) & (x <= right)
    return Line(x[inside], y[inside])
