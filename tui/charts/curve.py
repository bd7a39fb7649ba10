"""The data of a chart: metrics, sampled along three possible horizontal axes, and where the cursor finds samples."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tpu_console.engine.runs.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray: TypeAlias = npt.NDArray[np.float64]
IndexArray: TypeAlias = npt.NDArray[np.int64]
T = TypeVar("T")
_FIGURE = Metric("")


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
