"""Turns consecutive progress records into columns, without creating an event for each.

The columns are packed numbers, so that a process that only parses needs no NumPy.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby, starmap
from operator import itemgetter
from struct import Struct, error
from typing import TYPE_CHECKING, Any

from .plausible import MOST_METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DAMAGED = (KeyError, TypeError, ValueError, AttributeError, error)
"""What `columns_of` raises if a record is damaged."""

NUMBERS = ("step", "epoch", "epoch_step", "elapsed_s")

_TYPE = itemgetter("type")


@dataclass(frozen=True, slots=True)
class ProgressColumns:
    """Consecutive progress records, as packed float64 values."""

    last: Mapping[str, Any]  # the last record
    numbers: tuple[bytes, ...]  # each of the `NUMBERS`, with a value per record
    names: tuple[str, ...]  # the metrics
    metrics: bytes  # their values, record by record; NaN if one was not reported


def runs_of_progress(
    records: Sequence[Mapping[str, Any]],
) -> Iterator[list[Mapping[str, Any]] | Mapping[str, Any]]:
    """Yield consecutive progress records as a list, and the others one by one."""
    if [*map(_TYPE, records)].count("Progress") == len(records) > 0:
        yield [*records]
        return
    for kind, run in groupby(records, _TYPE):
        if kind == "Progress":
            yield [*run]
        else:
            yield from run


def columns_of(records: Sequence[Mapping[str, Any]], known: tuple[str, ...] = ()) -> ProgressColumns:
    """Return one or more progress records as columns, with the known metrics first.

    Raises one of `DAMAGED` if they hold anything but numbers.
    """
    pack = Struct(f"{len(records)}d").pack
    numbers = tuple(pack(*map(itemgetter(name), records)) for name in NUMBERS)
    return ProgressColumns(records[-1], numbers, *packed_metrics([*map(itemgetter("logs"), records)], known))


def packed_metrics(logs: Sequence[Mapping[str, Any]], known: tuple[str, ...]) -> tuple[tuple[str, ...], bytes]:
    """Return the metrics of points and their values, point by point: the known ones first, at most `MOST_METRICS`."""
    known = known or tuple(logs[0])[:MOST_METRICS]
    # Nearly always all points have the known metrics: then a run of a million points is read at the speed of C.
    if known and {*map(len, logs)} == {len(known)}:
        with suppress(KeyError, error):  # a text such as "NaN" is no number for `struct`
            pack, points = Struct(f"{len(known)}d").pack, map(itemgetter(*known), logs)
            return known, b"".join(starmap(pack, points) if len(known) > 1 else map(pack, points))
    names = tuple(dict.fromkeys(chain(known, *logs)))[:MOST_METRICS]
    values = [float(log.get(name, math.nan)) for log in logs for name in names]
    return names, Struct(f"{len(values)}d").pack(*values)


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
        parts += [columns] if len(columns.names) < MOST_METRICS else run
    return parts


def joined(parts: Sequence[ProgressColumns | Mapping[str, Any]]) -> list[ProgressColumns | Mapping[str, Any]]:
    """Return the parts with consecutive columns of the same metrics as one."""
    whole: list[ProgressColumns | Mapping[str, Any]] = []
    for names, group in groupby(parts, lambda part: part.names if isinstance(part, ProgressColumns) else None):
        if names is None:
            whole += group
        else:
            columns: list[Any] = [*group]
            numbers = tuple(map(b"".join, zip(*(one.numbers for one in columns), strict=True)))
            whole.append(ProgressColumns(columns[-1].last, numbers, names, b"".join(one.metrics for one in columns)))
    return whole
