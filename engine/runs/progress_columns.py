"""Turns consecutive progress records into columns, without creating an event for each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from .curves import MetricRows
from .plausible import LARGEST_MEASURE, MOST_COUNT, MOST_METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

DAMAGED = (KeyError, TypeError, ValueError, AttributeError)
"""What `columns_of` raises if a record is damaged."""

_TYPE = itemgetter("type")


@dataclass(frozen=True, slots=True)
class ProgressColumns:
    """Consecutive progress records.

    Args:
        last: The last record.
        counts: The rows ``step``, ``epoch`` and ``epoch_step``, with a column per record.
        elapsed_s: Seconds since `fit` began.
        rows: The metrics.
    """

    last: Mapping[str, Any]
    counts: NDArray[Any]
    elapsed_s: NDArray[Any]
    rows: MetricRows


def runs_of_progress(
    records: Sequence[Mapping[str, Any]],
) -> Iterator[list[Mapping[str, Any]] | Mapping[str, Any]]:
    """Yield consecutive progress records as a list, and the others one by one."""
    if {*map(_TYPE, records)} == {"Progress"}:
        yield [*records]
        return
    for kind, run in groupby(records, _TYPE):
        if kind == "Progress":
            yield [*run]
        else:
            yield from run


def columns_of(records: Sequence[Mapping[str, Any]], known: tuple[str, ...] = ()) -> ProgressColumns:
    """Return progress records as columns; raises one of `DAMAGED` if a record is damaged, except perhaps the last.

    Args:
        records: At least one.
        known: The metrics that come first.
    """
    step, epoch, epoch_step, elapsed_s, logs = (
        [*map(itemgetter(name), records)] for name in ("step", "epoch", "epoch_step", "elapsed_s", "logs")
    )
    counts, times = np.array((step, epoch, epoch_step)), np.array(elapsed_s)
    if counts.dtype.kind != "i" or times.dtype.kind not in "if":
        raise TypeError("not numbers")
    if counts.min() < 0 or counts.max() > MOST_COUNT or np.abs(times).max() > LARGEST_MEASURE:
        raise ValueError("impossible numbers")
    return ProgressColumns(records[-1], counts, times, MetricRows.of(logs, known))


def parts_of(records: Sequence[Mapping[str, Any]]) -> list[ProgressColumns | Mapping[str, Any]]:
    """Return journal records in their order, with progress as columns if it is not damaged."""
    parts: list[ProgressColumns | Mapping[str, Any]] = []
    for run in runs_of_progress(records):
        if not isinstance(run, list):
            parts.append(run)
            continue
        try:
            columns = columns_of(run)
        except DAMAGED:
            parts += run
            continue
        # Which of too many metrics are kept depends on those before.
        parts += [columns] if len(columns.rows.names) < MOST_METRICS else run
    return parts
