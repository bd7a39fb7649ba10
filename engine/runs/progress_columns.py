"""Turns consecutive progress records into columns, without creating an event for each."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby, starmap
from operator import itemgetter
from struct import Struct, error
from typing import TYPE_CHECKING, Any

import numpy as np

from .plausible import LARGEST_MEASURE, MOST_COUNT, MOST_METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

DAMAGED = (KeyError, TypeError, ValueError, AttributeError, error)
"""What `columns_of` raises if a record is damaged."""

_NUMBERS = ("step", "epoch", "epoch_step", "elapsed_s")
_TYPE = itemgetter("type")


@dataclass(frozen=True, slots=True)
class MetricRows:
    """The metrics of consecutive points."""

    names: tuple[str, ...]
    values: NDArray[np.float64]  # a row for each name, with a column per point; NaN if it was not reported

    @classmethod
    def of(cls, logs: Sequence[Mapping[str, float]], known: tuple[str, ...] = ()) -> MetricRows:
        """Return the metrics of points: the known ones first, at most `MOST_METRICS`."""
        names, values = _packed(logs, known)
        return cls(names, np.ascontiguousarray(np.frombuffer(values).reshape(len(logs), len(names)).T))

    def after(self, known: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """Return the known metrics and then the new ones of these, at most `MOST_METRICS`, with a row for each."""
        names = tuple(dict.fromkeys(chain(known, self.names)))[:MOST_METRICS]
        if names == self.names:
            return names, self.values
        rows = dict(zip(self.names, self.values, strict=True))
        missing = np.full(self.values.shape[1], math.nan)
        return names, np.array([rows.get(name, missing) for name in names]).reshape(len(names), len(missing))


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


def columns_of(
    records: Sequence[Mapping[str, Any]], known: tuple[str, ...] = ()
) -> tuple[NDArray[np.float64], MetricRows]:
    """Return one or more progress records as columns: steps, epochs, steps of the epoch and seconds, and the metrics.

    Raises one of `DAMAGED` if they hold anything but possible numbers.
    """
    pack = Struct(f"{len(records)}d").pack
    packed = b"".join(pack(*map(itemgetter(name), records)) for name in _NUMBERS)
    numbers = np.frombuffer(packed).reshape(len(_NUMBERS), -1)
    counts, elapsed_s = numbers[:-1], numbers[-1]
    is_possible = (counts >= 0) & (counts < MOST_COUNT) & (counts == np.floor(counts))
    if not (is_possible.all() and (np.abs(elapsed_s) <= LARGEST_MEASURE).all()):
        raise ValueError("impossible numbers")
    return numbers, MetricRows.of([*map(itemgetter("logs"), records)], known)


def _packed(logs: Sequence[Mapping[str, Any]], known: tuple[str, ...]) -> tuple[tuple[str, ...], bytes]:
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
