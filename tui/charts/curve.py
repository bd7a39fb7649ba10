"""The data of a chart: one metric, sampled along three possible horizontal axes."""

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
        return {Axis.STEP: step, Axis.EPOCH: epoch, Axis.TIME: elapsed_s}[self]


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

    def __post_init__(self) -> None:
        lengths = {len(self.step), len(self.epoch), len(self.elapsed_s), len(self.value)}
        if len(lengths) != 1:
            msg = f"curve {self.name!r}: arrays of different lengths {sorted(lengths)}"
            raise ValueError(msg)

    def along(self, axis: Axis) -> FloatArray:
        """Return the horizontal position of every sample on `axis` (steps, epochs or seconds), shape `(n,)`."""
        return axis.of(self.step, self.epoch, self.elapsed_s)


def densest(curves: Sequence[Curve]) -> Curve | None:
    """Return the curve with the most samples, or None if there are no samples."""
    curve = max(curves, key=lambda curve: len(curve.value), default=None)
    return curve if curve is not None and len(curve.value) else None


def sample_at(positions: FloatArray, x: float) -> int:
    """Return the last sample at or before `x`; the first one if all are later."""
    return max(int(np.searchsorted(positions, x, side="right")) - 1, 0)
