"""Metrics over the course of a run as growing columns, and what fills them from progress records.

A `Samples` or `GrowingSequence` is immutable: appending returns a new one. Both share one buffer as long as the newest
is the one that grows, so that a million appends cost a million stores and not a million copies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import eq, itemgetter
from struct import Struct, error
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .metrics import Metric, MetricKind
from .plausible import LARGEST_MEASURE, MOST_COUNT, MOST_METRICS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .events import Progress

    Values = Sequence[float] | NDArray[Any]


Item = TypeVar("Item")


class _Buffer:
    """Storage shared by the versions of one series; `used` counts the values of the newest."""

    __slots__ = ("data", "used")

    def __init__(self, capacity: int) -> None:
        self.data: NDArray[np.float64] = np.empty(capacity, dtype=np.float64)
        self.used = 0


class Samples:
    """An immutable column of float64 values."""

    __slots__ = ("_buffer", "_length", "values")

    values: NDArray[np.float64]
    """The values, shape ``(len,)``, as a read-only view."""

    def __init__(self, values: Values = ()) -> None:
        buffer = _Buffer(max(16, len(values)))
        buffer.data[: len(values)] = values
        self._set(buffer, len(values))

    def _set(self, buffer: _Buffer, length: int) -> None:
        self._buffer, self._length, buffer.used = buffer, length, length
        self.values = buffer.data[:length]
        self.values.flags.writeable = False

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Samples) and np.array_equal(self.values, other.values, equal_nan=True)

    def __hash__(self) -> int:
        return hash((self._length, self.last))

    def __repr__(self) -> str:
        return f"Samples({self.values.tolist()!r})"

    @property
    def last(self) -> float | None:
        """The newest value, or None when there is none."""
        return float(self._buffer.data[self._length - 1]) if self._length else None

    def extended(self, values: Values) -> Samples:
        """Return a series with the values appended; this one stays as it is."""
        length = self._length + len(values)
        buffer = self._buffer
        if buffer.used != self._length or length > len(buffer.data):
            buffer = _Buffer(max(16, 4 * length))  # pages that are never written take no memory
            buffer.data[: self._length] = self._buffer.data[: self._length]
        buffer.data[self._length : length] = values
        new = Samples.__new__(Samples)
        new._set(buffer, length)  # noqa: SLF001  another instance of this class
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


def columns_of(
    records: Sequence[Mapping[str, Any]], known: Sequence[str] = ()
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Return one or more progress records as columns: steps, epochs, steps of the epoch and seconds, and the metrics.

    The metrics that are known come first; there are at most `MOST_METRICS`. Raises one of `DAMAGED` if the records hold
    anything but possible numbers.
    """
    numbers = _table(records, _NUMBERS)
    counts, elapsed_s = numbers[:-1], numbers[-1]
    is_possible = (counts >= 0) & (counts < MOST_COUNT) & (counts == np.floor(counts))
    if not (is_possible.all() and (np.abs(elapsed_s) <= LARGEST_MEASURE).all()):
        raise ValueError("impossible numbers")
    logs = [*map(itemgetter("logs"), records)]
    names = [*(known or logs[0])][:MOST_METRICS]
    # Nearly always all points have the known metrics: then a run of a million points is read at the speed of C.
    if {*map(len, logs)} == {len(names)}:
        with suppress(KeyError, error):  # a text such as "NaN" is no number for `struct`
            return numbers, dict(zip(names, _table(logs, names), strict=True))
    names = [*dict.fromkeys(chain(known, *logs))][:MOST_METRICS]
    return numbers, {name: np.array([float(log.get(name, math.nan)) for log in logs]) for name in names}


def _table(records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> NDArray[np.float64]:
    """Return numbers of records: a row for each name, with a column per record."""
    pack = Struct(f"{len(records)}d").pack
    packed = b"".join(pack(*map(itemgetter(name), records)) for name in names)
    return np.frombuffer(packed).reshape(len(names), len(records))


def interval_means(
    logs: Mapping[str, NDArray[np.float64]],
    epoch: Values,
    done: Values,
    before: Progress | None,
    metrics: Sequence[Metric],
    running: frozenset[str],
) -> tuple[dict[str, NDArray[np.float64]], frozenset[str]]:
    """Return the mean over each interval between consecutive reports, from means since the epoch began.

    Args:
        logs: The means, one for each report, by the metric's name.
        epoch: The epoch of each report.
        done: The steps done in it.
        before: The report before the first one.
        metrics: What is known of each metric.
        running: The metrics of which the values before cover the epoch so far.

    Returns:
        The means, and the metrics of which some values cover the epoch so far instead.
    """
    means = np.array([*logs.values()]).reshape(len(logs), len(epoch))
    epochs = np.concatenate(([before.epoch if before is not None else 0], epoch))
    steps_done = np.concatenate(([before.epoch_step if before is not None else 0], done)).astype(np.float64)
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


@dataclass(frozen=True, slots=True)
class Curves:
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
        logs: Mapping[str, Values],
        running: frozenset[str] | None = None,
    ) -> Curves:
        """Return the curves with points appended; all arguments have one entry per point.

        Metrics beyond `MOST_METRICS` are dropped, because a column for each could take all memory.
        """
        metrics, missing = {}, [math.nan] * len(step)
        for name in [*dict.fromkeys((*self.metrics, *logs))][:MOST_METRICS]:
            column = self.metrics[name] if name in self.metrics else Samples([math.nan] * len(self))
            metrics[name] = column.extended(logs.get(name, missing))
        places = self.step.extended(step), self.epoch.extended(epoch), self.elapsed_s.extended(elapsed_s)
        return Curves(*places, metrics, self.running if running is None else running)

    def until(self, step: int) -> Curves:
        """Return the curves without the points after a step."""
        count = int(np.searchsorted(self.step.values, step, side="right"))

        def cut(column: Samples) -> Samples:
            return Samples(column.values[:count])

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
