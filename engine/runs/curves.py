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


@dataclass(frozen=True, slots=True)
class Curves:
    """Metrics over the course of a run; all columns have the same length.

    Args:
        step: Steps done in the run.
        epoch: Epochs done, with the fraction of the current one.
        elapsed_s: Seconds since `fit` began.
        metrics: One column per metric; NaN if it was not reported.
    """

    step: Series = field(default_factory=Series)
    epoch: Series = field(default_factory=Series)
    elapsed_s: Series = field(default_factory=Series)
    metrics: Mapping[str, Series] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.step)

    def extended(
        self,
        step: Sequence[float] | npt.NDArray[Any],
        epoch: Sequence[float] | npt.NDArray[Any],
        elapsed_s: Sequence[float] | npt.NDArray[Any],
        logs: Sequence[Mapping[str, float]],
    ) -> Curves:
        """Return the curves with points appended; all arguments have one entry per point.

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
        for name in names:
            column = self.metrics.get(name)
            if column is None:
                column = Series([nan] * len(self))
            there = name in everywhere
            metrics[name] = column.extended(
                [*map(itemgetter(name), logs)] if there else [log.get(name, nan) for log in logs]
            )
        return Curves(self.step.extended(step), self.epoch.extended(epoch), self.elapsed_s.extended(elapsed_s), metrics)

    def until(self, step: int) -> Curves:
        """Return the curves without the points after a step."""
        count = int(np.searchsorted(self.step.values, step, side="right"))

        def cut(column: Series) -> Series:
            return Series(column.values[:count])

        metrics = {name: cut(column) for name, column in self.metrics.items()}
        return Curves(cut(self.step), cut(self.epoch), cut(self.elapsed_s), metrics)
