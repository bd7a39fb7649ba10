"""Metrics over the course of a run as growing columns, and what fills them from progress records.

A `Samples` is immutable: appending returns a new one. They share one buffer as long as the newest is the one that
grows, so that a million appends cost a million stores and not a million copies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from ..sanitize import MOST_METRICS
from .metrics import Metric, MetricKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .events import Progress
    from .metrics import ValuesOrNone

    Values = Sequence[float] | NDArray[Any]


class Samples:
    """An immutable column of float64 values."""

    __slots__ = ("_buffer", "_newest", "values")

    values: NDArray[np.float64]
    """The values, shape ``(len,)``, as a read-only view."""

    def __init__(self, values: ValuesOrNone = (), newest: list[int] | None = None) -> None:
        self._buffer = np.array(values, np.float64, copy=newest is None)
        self._newest = newest or [len(values)]  # the length of the newest column in the buffer, shared by all of them
        self.values = self._buffer[: self._newest[0]]
        self.values.flags.writeable = False

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Samples) and np.array_equal(self.values, other.values, equal_nan=True)

    def __hash__(self) -> int:
        return hash((len(self), self.last))

    def __repr__(self) -> str:
        return f"Samples({self.values.tolist()!r})"

    @property
    def last(self) -> float | None:
        """The newest value, or None when there is none."""
        return float(self.values[-1]) if len(self) else None

    def extended(self, values: ValuesOrNone) -> Samples:
        """Return a series with the values appended; this one stays as it is."""
        buffer, newest, length = self._buffer, self._newest, len(self) + len(values)
        if newest[0] != len(self) or length > len(buffer):
            buffer, newest = np.empty(max(16, 4 * length)), [0]  # pages that are never written take no memory
            buffer[: len(self)] = self.values
        buffer[len(self) : length] = values
        newest[0] = length
        return Samples(buffer, newest)


def interval_means(
    logs: Mapping[str, NDArray[np.float64]],
    epoch: NDArray[np.float64],
    epoch_step: NDArray[np.float64],
    before: Progress | None,
    metrics: Sequence[Metric],
    running: frozenset[str],
) -> tuple[dict[str, NDArray[np.float64]], frozenset[str]]:
    """Return the mean over each interval between consecutive reports, and the metrics that are no such means.

    A report has the means since its epoch began, its epoch and the steps done in that; `before` is the report before
    the first one. Some values of the metrics that are `running` before, or returned, cover the epoch so far instead.
    """
    means = np.array([*logs.values()]).reshape(len(logs), len(epoch))
    epochs = np.concatenate(([before.epoch if before is not None else 0], epoch))
    steps_done = np.concatenate(([before.epoch_step if before is not None else 0], epoch_step))
    steps = np.diff(steps_done)
    is_next = (np.diff(epochs) == 0) & (steps > 0)
    first = [before.logs.get(name, math.nan) if before is not None else math.nan for name in logs]
    earlier = np.concatenate((np.array(first).reshape(-1, 1), means[:, :-1]), axis=1)
    continues = is_next & np.isfinite(earlier) & np.isfinite(means)
    is_mean = [metric.is_mean and name not in running for name, metric in zip(logs, metrics, strict=True)]
    changes = continues & np.array(is_mean, dtype=np.bool_).reshape(-1, 1)
    steps = np.where(is_next, steps, 1.0)
    with np.errstate(invalid="ignore", over="ignore"):
        values = means + np.where(changes, (means - earlier) * (steps_done[1:] - steps) / steps, 0.0)
    covering = set(running)
    for row, (name, metric) in enumerate(zip(logs, metrics, strict=True)):
        if not metric.is_mean and metric.kind != MetricKind.RATE and continues[row].any():
            covering.add(name)
        if metric.kind == MetricKind.SHARE:  # rounding may take it out of its bounds
            is_share = changes[row] & (means[row] >= 0.0) & (means[row] <= 1.0)
            values[row, is_share] = np.clip(values[row, is_share], 0.0, 1.0)
    return dict(zip(logs, values, strict=True)), frozenset(covering)


class Curves(Struct, frozen=True):
    """Metrics over the course of a run; all columns have the same length."""

    step: Samples = field(default_factory=Samples)  # steps done in the run
    epoch: Samples = field(default_factory=Samples)  # epochs done, with the fraction of the current one
    elapsed_s: Samples = field(default_factory=Samples)  # seconds since `fit` began
    metrics: Mapping[str, Samples] = field(default_factory=dict)  # one column per metric; NaN if it was not reported
    # Metrics whose values cover the epoch so far, because the mean since the point before cannot be known.
    running: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.step)

    def extended(
        self,
        step: Values,
        epoch: Values,
        elapsed_s: Values,
        logs: Mapping[str, ValuesOrNone],
        running: frozenset[str] | None = None,
    ) -> Curves:
        """Return the curves with points appended, one per entry of each argument; at most `MOST_METRICS` are kept."""
        metrics, missing = {}, [math.nan] * len(step)
        for name in [*dict.fromkeys((*self.metrics, *logs))][:MOST_METRICS]:
            column = self.metrics[name] if name in self.metrics else Samples([math.nan] * len(self))
            metrics[name] = column.extended(logs.get(name, missing))
        places = self.step.extended(step), self.epoch.extended(epoch), self.elapsed_s.extended(elapsed_s)
        return Curves(*places, metrics, self.running if running is None else running)

    def until(self, step: int) -> Curves:
        """Return the curves without the points after a step."""
        count = int(np.searchsorted(self.step.values, step, side="right"))
        at, epoch, elapsed_s, *columns = (
            Samples(column.values[:count]) for column in (self.step, self.epoch, self.elapsed_s, *self.metrics.values())
        )
        return Curves(at, epoch, elapsed_s, dict(zip(self.metrics, columns, strict=True)), self.running)

    def means_since(self, step: int) -> dict[str, float]:
        """Return the mean of each metric over the steps after a step; the newest value where the column is running."""
        begin = int(np.searchsorted(self.step.values, step, side="right"))
        steps = np.diff(self.step.values[begin:], prepend=step)
        columns = {name: column.values[begin:] for name, column in self.metrics.items() if len(steps)}
        return {
            name: float(values[-1] if name in self.running else values @ steps / steps.sum())
            for name, values in columns.items()
        }
