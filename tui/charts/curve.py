"""What charts show: metrics along one of three axes, as measured and smoothed, the cursor, and the window."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tpu_console.engine.runs.curves import Samples
from tpu_console.engine.runs.metrics import Metric, best_of

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


class Place(Struct, frozen=True):
    """A moment of a run on all horizontal axes."""

    step: float  # steps done
    epoch: float  # epochs done, with the fraction of the current one
    elapsed_s: float  # seconds since training began

    def along(self, axis: Axis) -> float:
        """Return the position on an axis."""
        return axis.of(self.step, self.epoch, self.elapsed_s)


class Curve(Struct, frozen=True, eq=False):
    """One metric of a run, from its first sample to the latest.

    Unless a run goes back to a checkpoint, a later curve of the same name has the earlier one as its prefix, so that a
    chart processes only new samples.
    """

    name: str  # the metric's name as Keras gives it, for instance `val_loss`
    step: FloatArray  # training step of each sample, shape `(n,)`
    epoch: FloatArray  # epoch of each sample, fractional inside an epoch, shape `(n,)`
    elapsed_s: FloatArray  # seconds since the run began, shape `(n,)`
    value: FloatArray  # the metric itself, shape `(n,)`; NaN and infinity are allowed
    is_validation: bool  # whether the metric was measured on held-out data
    # Whether each value covers the epoch so far, because the mean since the sample before cannot be known.
    running: bool = False
    metric: Metric = _FIGURE  # what is known about the metric
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
    found = [(curve, float(xs[sample_at(xs, x)])) for curve in curves if len(xs := curve.along(axis))]
    newest = max(found, key=lambda one: (one[1] <= x, -abs(x - one[1])), default=None)
    return None if newest is None else newest[0]


def _columns(curves: Sequence[Curve], axis: Axis) -> list[FloatArray]:
    """Return the positions of the samples, each column once: most curves share one."""
    return list({id(x): x for curve in curves if len(x := curve.along(axis))}.values())


def extent_of(curves: Sequence[Curve], axis: Axis) -> Extent | None:
    """Return the first and the last position of any sample, or None without samples."""
    positions = _columns(curves, axis)
    return (float(min(x[0] for x in positions)), float(max(x[-1] for x in positions))) if positions else None


class Mode(enum.Enum):
    """How a window moves while a run grows, as a chart notes it."""

    ALL = ""
    FOLLOW = "follow"
    FIXED = "zoom"


class Window(Struct, frozen=True):
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


_MOST_BUCKETS = 512
_MOST_LOST = 1000
_NEGLIGIBLE = 1e-18  # a smaller weight of the past changes no bit of a double
_CHUNK = 8192  # samples that stay in the processor's cache


class Line(Struct, frozen=True):
    """Samples of a curve, in order."""

    x: FloatArray  # horizontal positions in the axis's unit, shape `(n,)`
    y: FloatArray  # values, shape `(n,)`

    def part(self, ends: Extent, around: int = 0) -> Line:
        """Return the samples inside a window as a view, with `around` more samples at either end."""
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
        """Return the smoothed form of finite values, by a doubling scan, until what is added is negligible."""
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
        self.count = self.nonfinite_count = 0  # samples so far, and how many of them are NaN or infinite
        self.lowest = self.highest = math.nan  # of the finite samples; NaN while there is none
        self._ema = DebiasedEma(0.0)
        self.update(curve)

    @property
    def latest(self) -> float:
        """The newest sample, NaN included; NaN before the first one."""
        return float(self.curve.value[-1]) if len(self.curve.value) else math.nan

    def continues_in(self, curve: Curve) -> bool:
        """Return whether a curve begins with the samples seen so far; not if the run went back to a checkpoint."""
        last = slice(max(self.count - 1, 0), self.count)
        pairs = ((self.curve.elapsed_s, curve.elapsed_s), (self.curve.value, curve.value))
        return all(np.array_equal(old[last], new[last], equal_nan=True) for old, new in pairs)

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
