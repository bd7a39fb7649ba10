"""The reduced form of each curve that a chart keeps, so that a redraw processes only the new samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .reduction import ExtremaReducer
from .smoothing import DebiasedEma

if TYPE_CHECKING:
    from .curve import Axis, Curve, FloatArray

# Twice the dot columns of a 250-cell pane: fixed, so that resizing never means reducing again.
_MAX_POINTS = 1024


@dataclass(frozen=True, slots=True)
class Line:
    """The samples of a curve that are drawn, in order.

    Attributes:
        x: Horizontal positions in the axis's unit, shape `(n,)`.
        y: Finite values, shape `(n,)`.
    """

    x: FloatArray
    y: FloatArray


class Series:
    """The incremental reduction of one curve, raw and smoothed.

    Args:
        curve: The curve as first seen.
    """

    def __init__(self, curve: Curve) -> None:
        self._curve = curve
        self._raw = ExtremaReducer(_MAX_POINTS)
        self._ema = DebiasedEma(0.0)
        self._smooth = ExtremaReducer(_MAX_POINTS)

    @property
    def curve(self) -> Curve:
        """The curve as last seen."""
        return self._curve

    @property
    def raw(self) -> ExtremaReducer:
        """The samples as they were measured."""
        return self._raw

    @property
    def is_smoothed(self) -> bool:
        """Whether there is a smoothed line to draw."""
        return self._ema.weight > 0.0

    @property
    def latest(self) -> float:
        """The newest sample, NaN included; NaN before the first one."""
        return float(self._curve.value[-1]) if len(self._curve.value) else math.nan

    def update(self, curve: Curve, smoothing: float) -> None:
        """Take in the samples of `curve` that are new.

        Args:
            curve: Has the curve seen before as its prefix.
            smoothing: Weight of the moving average; held-out metrics are few and stay as they are.
        """
        self._curve = curve
        self._raw.extend(curve.value[self._raw.count :])
        weight = 0.0 if curve.is_validation else smoothing
        if weight != self._ema.weight:
            self._ema = DebiasedEma(weight)
            self._smooth = ExtremaReducer(_MAX_POINTS)
        if self.is_smoothed:
            done = self._smooth.count
            self._ema.extend(curve.value[done:])
            self._smooth.extend(self._ema.values[done:])

    def raw_line(self, axis: Axis) -> Line:
        """The samples as measured, reduced."""
        at = self._raw.indices
        return Line(self._curve.along(axis)[at], self._curve.value[at])

    def smooth_line(self, axis: Axis) -> Line:
        """The moving average, reduced."""
        at = self._smooth.indices
        return Line(self._curve.along(axis)[at], self._ema.values[at])

    def nan_positions(self, axis: Axis) -> FloatArray:
        """Where NaN or infinity was measured, in the axis's unit, reduced."""
        return self._curve.along(axis)[self._raw.nan_indices]

    def best(self, *, lowest: bool) -> float:
        """The best finite sample so far, NaN while there is none."""
        value = self._raw.minimum if lowest else self._raw.maximum
        return value if math.isfinite(value) else math.nan
