"""Metrics over the course of a run, as growing columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from .plausible import MOST_METRICS
from .series import Series

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from .interval_means import Intervals


@dataclass(frozen=True, slots=True)
class Curves:
    """Metrics over the course of a run; all columns have the same length.

    Args:
        step: Steps done in the run.
        epoch: Epochs done, with the fraction of the current one.
        elapsed_s: Seconds since `fit` began.
        metrics: One column per metric; NaN if it was not reported.
        running: Metrics whose values cover the epoch so far, because the mean since the point before cannot be known.
    """

    step: Series = field(default_factory=Series)
    epoch: Series = field(default_factory=Series)
    elapsed_s: Series = field(default_factory=Series)
    metrics: Mapping[str, Series] = field(default_factory=dict)
    running: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.step)

    def extended(
        self,
        step: Sequence[float] | npt.NDArray[Any],
        epoch: Sequence[float] | npt.NDArray[Any],
        elapsed_s: Sequence[float] | npt.NDArray[Any],
        logs: Sequence[Mapping[str, float]],
        intervals: Intervals | None = None,
    ) -> Curves:
        """Return the curves with points appended; all arguments have one entry per point.

        With `intervals`, the logs are means since the epoch began, and the mean over each interval is kept instead.
        Metrics beyond `MOST_METRICS` are dropped, because a column for each could take all memory.
        """
        # Nearly always all points have the same names: then a run of a million points is read at the speed of C.
        sorts = dict.fromkeys(map(tuple, logs))
        names = dict.fromkeys([*self.metrics, *chain.from_iterable(sorts)])
        if len(names) > MOST_METRICS:
            names = dict.fromkeys([*names][:MOST_METRICS])
        everywhere = frozenset.intersection(*map(frozenset, sorts)) if sorts else frozenset()
        nan = math.nan
        metrics = {}
        running = set(self.running)
        for name in names:
            column = self.metrics.get(name)
            if column is None:
                column = Series([nan] * len(self))
            there = name in everywhere
            values = np.array(
                [*map(itemgetter(name), logs)] if there else [log.get(name, nan) for log in logs], dtype=np.float64
            )
            if intervals is not None and name not in running:
                values, is_running = intervals.recovered(name, values)
                running |= {name} if is_running else set()
            metrics[name] = column.extended(values)
        places = self.step.extended(step), self.epoch.extended(epoch), self.elapsed_s.extended(elapsed_s)
        return Curves(*places, metrics, frozenset(running))
