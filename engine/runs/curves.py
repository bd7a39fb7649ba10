"""Metrics over the course of a run as growing columns, and what fills them from progress records.

A `Series` or `GrowingSequence` is immutable: appending returns a new one. Both share one buffer as long as the newest
is the one that grows, so that a million appends cost a million stores and not a million copies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby, islice, starmap
from operator import eq, itemgetter
from struct import Struct, error
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .metrics import MetricKind
from .plausible import LARGEST_MEASURE, MOST_COUNT, MOST_METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import numpy.typing as npt
    from numpy.typing import NDArray

    from .metrics import Metric


Item = TypeVar("Item")


class _Buffer:
    """Storage shared by the versions of one series; `used` counts the values of the newest."""

    __slots__ = ("data", "used")

    def __init__(self, capacity: int) -> None:
        self.data: NDArray[np.float64] = np.empty(capacity, dtype=np.float64)
        self.used = 0


class Series:
    """An immutable column of float64 values."""

    __slots__ = ("_buffer", "_length")

    def __init__(self, values: Sequence[float] | NDArray[Any] = ()) -> None:
        self._buffer = _Buffer(max(16, len(values)))
        self._buffer.data[: len(values)] = values
        self._buffer.used = self._length = len(values)

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Series) and np.array_equal(self.values, other.values, equal_nan=True)

    def __hash__(self) -> int:
        return hash((self._length, self.last))

    def __repr__(self) -> str:
        return f"Series({self.values.tolist()!r})"

    @property
    def values(self) -> NDArray[np.float64]:
        """The values, shape ``(len,)``, as a read-only view."""
        view = self._buffer.data[: self._length]
        view.flags.writeable = False
        return view

    @property
    def last(self) -> float | None:
        """The newest value, or None when there is none."""
        return float(self._buffer.data[self._length - 1]) if self._length else None

    def extended(self, values: Sequence[float] | NDArray[Any]) -> Series:
        """Return a series with the values appended; this one stays as it is."""
        length = self._length + len(values)
        buffer = self._buffer
        if buffer.used != self._length or length > len(buffer.data):
            buffer = _Buffer(max(16, 4 * length))  # pages that are never written take no memory
            buffer.data[: self._length] = self._buffer.data[: self._length]
        buffer.data[self._length : length] = values
        buffer.used = length
        new = Series.__new__(Series)
        new._buffer, new._length = buffer, length  # noqa: SLF001  another instance of this class
        return new


class GrowingSequence(Sequence[Item]):
    """An immutable sequence; `appended` takes constant time. It is equal to any sequence of equal items."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items = [*items]
        self._length = len(self._items)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._items[place] for place in range(self._length)[index]]
        return self._items[range(self._length)[index]]

    def __iter__(self) -> Iterator[Item]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"GrowingSequence({[*self]!r})"

    def appended(self, item: Item) -> GrowingSequence[Item]:
        """Return a sequence with the item appended; this one stays as it is."""
        new: GrowingSequence[Item] = GrowingSequence()
        new._items = self._items if len(self._items) == self._length else [*self]
        new._items.append(item)
        new._length = self._length + 1
        return new


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


# The error of a mean that Keras keeps in float32, as a multiple of the mean itself.
_ROUNDING = 8 * float(np.finfo(np.float32).eps)
_SLACK = 1e-3


class Intervals:
    """The intervals between consecutive reports of one epoch, given the epoch of each and the steps done in it.

    `before` is the same, with the metrics, of the report before the first one; `known` describes a metric by its name.
    """

    def __init__(
        self,
        epoch: Sequence[int] | NDArray[Any],
        done: Sequence[int] | NDArray[Any],
        before: tuple[int, int, Mapping[str, float]] | None,
        known: Callable[[str], Metric],
    ) -> None:
        self._known = known
        first_epoch, first_done, self._before = before or (0, 0, {})
        epochs = np.concatenate(([first_epoch], epoch))
        self._done = np.concatenate(([first_done], done)).astype(np.float64)
        self._steps = np.diff(self._done)
        self._continues = (np.diff(epochs) == 0) & (self._steps > 0)

    def recovered(
        self, names: Sequence[str], means: NDArray[np.float64], running: frozenset[str]
    ) -> tuple[NDArray[np.float64], frozenset[str]]:
        """Return the mean over each interval, and the metrics of which some values cover the epoch so far instead.

        The means given are those since the epoch began, one row per metric and one column per report; `running` are the
        metrics of which the values before cover the epoch so far.
        """
        metrics = [*map(self._known, names)]
        is_mean = [metric.is_mean and name not in running for name, metric in zip(names, metrics, strict=True)]
        before = np.array([[self._before.get(name, np.nan)] for name in names]).reshape(len(names), 1)
        earlier = np.concatenate((before, means[:, :-1]), axis=1)
        continues = self._continues & np.isfinite(earlier) & np.isfinite(means)
        changes = continues & np.array(is_mean, dtype=np.bool_).reshape(len(names), 1)
        steps = np.where(self._continues, self._steps, 1.0)
        with np.errstate(invalid="ignore", over="ignore"):
            values = means + np.where(changes, (means - earlier) * (self._done[1:] - steps) / steps, 0.0)
        kept = {
            name
            for name, metric, row in zip(names, metrics, continues.any(axis=1), strict=True)
            if row and not metric.is_mean and metric.kind != MetricKind.RATE
        }
        kept |= {
            name
            for row, name in enumerate(names)
            if metrics[row].kind == MetricKind.SHARE
            and self._bound(values[row], means[row], earlier[row], changes[row])
        }
        return values, running | kept

    def _bound(
        self, values: NDArray[Any], means: NDArray[Any], earlier: NDArray[Any], changes: NDArray[np.bool_]
    ) -> bool:
        """Keep a share between 0 and 1; return whether it is no mean over examples, because it would leave that.

        From the first such value on, the values are then as reported.
        """
        is_share = changes & (means >= 0.0) & (means <= 1.0) & (earlier >= 0.0) & (earlier <= 1.0)
        slack = _SLACK + _ROUNDING * self._done[1:] / np.maximum(self._steps, 1.0)
        impossible = is_share & ((values < -slack) | (values > 1.0 + slack))
        at = int(impossible.argmax()) if impossible.any() else len(values)
        values[is_share] = np.clip(values[is_share], 0.0, 1.0)
        values[at:] = means[at:]
        return at < len(values)


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
