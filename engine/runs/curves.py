"""Metrics over the course of a run, as growing columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .progress_columns import MetricRows
from .series import Series

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from .interval_means import Intervals


@dataclass(frozen=True, slots=True)
class Curves:
    """Metrics over the course of a run; all columns have the same length."""

    step: Series = field(default_factory=Series)  # steps done in the run
    epoch: Series = field(default_factory=Series)  # epochs done, with the fraction of the current one
    elapsed_s: Series = field(default_factory=Series)  # seconds since `fit` began
    metrics: Mapping[str, Series] = field(default_factory=dict)  # one column per metric; NaN if it was not reported
    # Metrics whose values cover the epoch so far, because the mean since the point before cannot be known.
    running: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.step)

    def extended(
        self,
        step: Sequence[float] | npt.NDArray[Any],
        epoch: Sequence[float] | npt.NDArray[Any],
        elapsed_s: Sequence[float] | npt.NDArray[Any],
        logs: Sequence[Mapping[str, float]] | MetricRows,
        intervals: Intervals | None = None,
    ) -> Curves:
        """Return the curves with points appended; all arguments have one entry per point.

        With `intervals`, the logs are means since the epoch began, and the mean over each interval is kept instead.
        Metrics beyond `MOST_METRICS` are dropped, because a column for each could take all memory.
        """
        known = tuple(self.metrics)
        rows = logs if isinstance(logs, MetricRows) else MetricRows.of(logs, known)
        names, values = rows.after(known)
        running = self.running
        if intervals is not None:
            values, running = intervals.recovered(names, values, running)
        metrics = {}
        for name, row in zip(names, values, strict=True):
            column = self.metrics.get(name)
            metrics[name] = (Series([math.nan] * len(self)) if column is None else column).extended(row)
        places = self.step.extended(step), self.epoch.extended(epoch), self.elapsed_s.extended(elapsed_s)
        return Curves(*places, metrics, running)

    def until(self, step: int) -> Curves:
        """Return the curves without the points after a step."""
        count = int(np.searchsorted(self.step.values, step, side="right"))

        def cut(column: Series) -> Series:
            return Series(column.values[:count])

        metrics = {name: cut(column) for name, column in self.metrics.items()}
        return Curves(cut(self.step), cut(self.epoch), cut(self.elapsed_s), metrics, self.running)

    def means_since(self, step: int) -> dict[str, float]:
        """Return the mean of each metric over the steps after a step; the newest value where the column is running."""
        begin = int(np.searchsorted(self.step.values, step, side="right"))
        steps = np.diff(self.step.values[begin:], prepend=step)
        means = {}
        for name, column in self.metrics.items():
            values = column.values[begin:]
            if len(values):
                means[name] = float(values[-1] if name in self.running else values @ steps / steps.sum())
        return means
