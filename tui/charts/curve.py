"""What charts show: metrics, sampled along three possible horizontal axes, the cursor, and the window of an axis."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tpu_console.engine.runs.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray: TypeAlias = npt.NDArray[np.float64]
IndexArray: TypeAlias = npt.NDArray[np.int64]
Extent: TypeAlias = tuple[float, float]
T = TypeVar("T")
_FIGURE = Metric("")
# A smaller share of the run is never shown: its samples would have the same position.
_SMALLEST_SHARE = 1e-7


class Axis(enum.Enum):
    """What runs along the horizontal axis."""

    STEP = "step"
    EPOCH = "epoch"
    TIME = "time"

    def of(self, step: T, epoch: T, elapsed_s: T) -> T:
        """Return the one of three values that belongs to the axis."""
        return step if self is Axis.STEP else epoch if self is Axis.EPOCH else elapsed_s


@dataclass(frozen=True, slots=True)
class Place:
    """A moment of a run on all horizontal axes."""

    step: float  # steps done
    epoch: float  # epochs done, with the fraction of the current one
    elapsed_s: float  # seconds since training began

    def along(self, axis: Axis) -> float:
        """Return the position on an axis."""
        return axis.of(self.step, self.epoch, self.elapsed_s)


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One metric of a run, from its first sample to the latest.

    The arrays only ever grow, unless a run goes back to a checkpoint: a later curve of the same name has the earlier
    one as its prefix, which lets a chart process only the new samples. The chart never writes to them.
    """

    name: str  # the metric's name as Keras gives it, for instance `val_loss`
    step: FloatArray  # training step of each sample, shape `(n,)`
    epoch: FloatArray  # epoch of each sample, fractional inside an epoch, shape `(n,)`
    elapsed_s: FloatArray  # seconds since the run began, shape `(n,)`
    value: FloatArray  # the metric itself, shape `(n,)`; NaN and infinity are allowed
    is_validation: bool  # whether the metric was measured on held-out data
    # Whether each value covers the epoch so far, because the mean since the sample before cannot be known.
    running: bool = False
    metric: Metric = _FIGURE  # what is known of the metric
    losses: FloatArray | None = None  # what decides between equal values, shape `(n,)`

    def along(self, axis: Axis) -> FloatArray:
        """Return the horizontal position of every sample on `axis` (steps, epochs or seconds), shape `(n,)`."""
        return axis.of(self.step, self.epoch, self.elapsed_s)

    def place(self, at: int) -> Place:
        """Return where a sample is."""
        return Place(float(self.step[at]), float(self.epoch[at]), float(self.elapsed_s[at]))

    def at(self, axis: Axis, x: float) -> float | None:
        """Return the newest sample at or before a place, NaN included; None before the first one."""
        positions = self.along(axis)
        return float(self.value[sample_at(positions, x)]) if len(positions) and positions[0] <= x else None


def sample_at(positions: FloatArray, x: float) -> int:
    """Return the last sample at or before `x`; the first one if all are later."""
    return max(int(np.searchsorted(positions, x, side="right")) - 1, 0)


def moved(cursor: float | None, curves: Sequence[Curve], axis: Axis, direction: int) -> float | None:
    """Return the place of the next sample of any curve, right of the cursor or left, or of the last one.

    Without a cursor, it is the newest sample; without samples, None.
    """
    columns = _columns(curves, axis)
    if not columns:
        return None
    if cursor is None:
        return max(float(x[-1]) for x in columns)
    ahead = [int(np.searchsorted(x, cursor, "right" if direction > 0 else "left")) - (direction < 0) for x in columns]
    found = [float(x[at]) for x, at in zip(columns, ahead, strict=True) if 0 <= at < len(x)]
    return (min if direction > 0 else max)(found, default=cursor)


def snapped(x: float, curves: Sequence[Curve], axis: Axis) -> float:
    """Return the position of the sample that is nearest to `x`."""
    near = [float(end) for along in _columns(curves, axis) for end in along[sample_at(along, x) :][:2]]
    return min(near, key=lambda end: abs(end - x), default=x)


def on_axis(x: float, curves: Sequence[Curve], old: Axis, new: Axis) -> float:
    """Return where the newest sample at or before `x` is on another horizontal axis."""
    curve = newest_at(curves, old, x)
    return x if curve is None else float(curve.along(new)[sample_at(curve.along(old), x)])


def newest_at(curves: Sequence[Curve], axis: Axis, x: float) -> Curve | None:
    """Return the curve with the newest sample at or before `x`, or else with the first one; None without samples."""
    found = {id(xs): (curve, float(xs[sample_at(xs, x)])) for curve in curves if len(xs := curve.along(axis))}
    newest = max(found.values(), key=lambda one: (one[1] <= x, -abs(x - one[1])), default=None)
    return None if newest is None else newest[0]


def _columns(curves: Sequence[Curve], axis: Axis) -> list[FloatArray]:
    """Return the positions of the samples, each column once: most curves share one."""
    return list({id(x): x for curve in curves if len(x := curve.along(axis))}.values())


def extent_of(curves: Sequence[Curve], axis: Axis) -> Extent | None:
    """Return the first and the last position of any sample, or None without samples."""
    positions = _columns(curves, axis)
    return (float(min(x[0] for x in positions)), float(max(x[-1] for x in positions))) if positions else None


class Mode(enum.Enum):
    """How a window moves while a run grows: it shows everything, the newest samples, or always the same ones."""

    ALL = "all"
    FOLLOW = "follow"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Window:
    """What charts show of the horizontal axis, in the axis's unit. `extent` is both ends of the run so far."""

    # `ALL` shows everything, `FOLLOW` the newest `right - left` units, `FIXED` exactly `left` to `right`.
    mode: Mode = Mode.ALL
    left: float = 0.0  # left end; not used by `ALL`
    right: float = 0.0  # right end; not used by `ALL`

    @classmethod
    def newest(cls, extent: Extent, share: float) -> Window:
        """Return a window that follows the newest share of the run, such as 0.1 for 10%; 1 shows everything."""
        span = share * (extent[1] - extent[0])
        return cls(Mode.FOLLOW, extent[1] - span, extent[1]) if share < 1.0 and span > 0.0 else cls()

    def resolved(self, extent: Extent) -> Extent:
        """Return the ends of the part that is shown."""
        if self.mode is Mode.FOLLOW:
            return max(extent[0], extent[1] - (self.right - self.left)), extent[1]
        return extent if self.mode is Mode.ALL else (self.left, self.right)

    def zoomed(self, extent: Extent, factor: float, at: float | None = None) -> Window:
        """Return a window that shows `1 / factor` of what this one shows.

        `at` stays where it is, such as the mouse pointer. Without it, a window that shows the newest samples keeps
        following them, and any other one keeps its middle.
        """
        left, right = self.resolved(extent)
        whole = extent[1] - extent[0]
        span = max((right - left) / factor, _SMALLEST_SHARE * whole)
        if span >= whole:
            return Window()
        if at is None and self.mode is not Mode.FIXED:
            return Window(Mode.FOLLOW, extent[1] - span, extent[1])
        at = (left + right) / 2 if at is None else at
        share = (at - left) / (right - left) if right > left else 0.5
        return _inside(extent, at - min(max(share, 0.0), 1.0) * span, span)

    def panned(self, extent: Extent, share: float) -> Window:
        """Return a window that is moved right by `share` of its width, or left if that is negative.

        A window that is moved to the right end follows the newest samples; one that shows everything stays.
        """
        if self.mode is Mode.ALL:
            return self
        left, right = self.resolved(extent)
        moved = _inside(extent, left + share * (right - left), right - left)
        return replace(moved, mode=Mode.FOLLOW) if share > 0 and moved.right >= extent[1] else moved

    def on_axis(self, curves: Sequence[Curve], old: Axis, new: Axis) -> Window:
        """Return the window that shows the same samples on another horizontal axis."""
        extent = extent_of(curves, old)
        if self.mode is Mode.ALL or extent is None:
            return Window()
        left, right = (on_axis(x, curves, old, new) for x in self.resolved(extent))
        return Window(self.mode, left, right) if right > left else Window()


def _inside(extent: Extent, left: float, span: float) -> Window:
    """Return a window with a left end and a width, moved back inside if it reaches beyond an end."""
    left = max(extent[0], min(left, extent[1] - span))
    return Window(Mode.FIXED, left, left + span)
