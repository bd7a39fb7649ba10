"""Reads a sweep: its combinations with their runs and verdicts, its speed-ups, and its conclusion."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

from tpu_console.engine.sweeps.axes import (
    Cell,
    SweptKey,
    cells_of,
    combination,
    parse_axes,
    parse_baseline,
    shown,
    values_in,
)
from tpu_console.engine.sweeps.driver import refusal
from tpu_console.engine.sweeps.search import is_pruned

from ..text.names import Status
from ..text.numbers import count, metric
from .comparison import ComparedReader, ComparedRun, Comparison, comparison_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.sweeps.folder import Definition, Sweep


WAITING, REFUSED, PRUNED = "waiting", "refused", "pruned"
LEFT = {WAITING, Status.STOPPED.value, Status.FAILED.value, Status.CRASHED.value, Status.UNSTARTED.value}
"""The states of cells that the sweep has not finished."""


@dataclass(frozen=True, slots=True)
class SeenCell:
    """A cell of a sweep and what is known about it."""

    cell: Cell
    run: ComparedRun | None = None  # its run; None if there is none yet
    refused: str = ""  # why the plan refuses it; empty if it does not

    @property
    def status(self) -> str:
        """Its state, in a word or two."""
        if self.run is not None:
            return PRUNED if is_pruned(self.run.state) else self.run.overview.status.value
        return REFUSED if self.refused else WAITING

    @property
    def is_running(self) -> bool:
        """Whether its run trains."""
        return self.run is not None and self.run.overview.status.is_live


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of several equal runs: the median, the lowest and the highest."""

    mid: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Whether a ratio is on one side of 1 in every case."""
        return self.low > 1 or self.high < 1


def spread_of(values: Sequence[float]) -> Spread | None:
    """Return the spread of figures; None of none."""
    return Spread(median(values), min(values), max(values)) if values else None


def ratio(one: Spread | None, other: Spread | None) -> Spread | None:
    """Return how many times as large one figure is as another, at least and at most; None if one is unknown."""
    if one is None or other is None or other.low <= 0:
        return None
    return Spread(one.mid / other.mid, one.low / other.high, one.high / other.low)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: a combination with its equal runs."""

    values: tuple[Any, ...]  # a value for each axis
    cells: tuple[SeenCell, ...]  # its cells: one for each repetition
    metric: str = ""
    speed_up: Spread | None = None  # how many times as many examples per second as the baseline; None if unknown

    @property
    def runs(self) -> list[ComparedRun]:
        """Its runs."""
        return [cell.run for cell in self.cells if cell.run is not None]

    @property
    def status(self) -> str:
        """The states of its cells, each once."""
        return ", ".join(dict.fromkeys(cell.status for cell in self.cells))

    @property
    def examples_per_s(self) -> Spread | None:
        """Examples per second."""
        return self._figure(lambda run: run.overview.facts.examples_per_s)

    @property
    def seconds(self) -> Spread | None:
        """Seconds to train, of runs that finished."""
        return self._figure(lambda run: run.overview.seconds() if run.overview.status is Status.FINISHED else None)

    @property
    def first_epoch_s(self) -> Spread | None:
        """Seconds of the first epoch, with compilation."""
        return self._figure(lambda run: run.first_epoch_s)

    @property
    def later_epoch_s(self) -> Spread | None:
        """Seconds of each other epoch."""
        return self._figure(lambda run: run.later_epoch_s)

    @property
    def best(self) -> Spread | None:
        """The best value of the metric."""
        return self._figure(lambda run: score.best if (score := run.score(self.metric)) is not None else None)

    @property
    def loss(self) -> float:
        """The loss of the best epochs, which decides between equal values of the metric; infinite if unknown."""
        loss = self._figure(lambda run: score.loss if (score := run.score(self.metric)) is not None else None)
        return loss.mid if loss is not None and math.isfinite(loss.mid) else math.inf

    def _figure(self, of_run: Callable[[ComparedRun], float | None]) -> Spread | None:
        return spread_of([value for run in self.runs if (value := of_run(run)) is not None])


@dataclass(frozen=True, slots=True)
class SweepView:
    """A sweep at one moment."""

    sweep: Sweep
    definition: Definition  # what it is
    axes: tuple[SweptKey, ...]  # what it changes
    cells: tuple[SeenCell, ...]  # its cells; of a search, those that were tried
    is_driven: bool = False  # whether a process starts its runs

    @property
    def metric(self) -> str:
        """The metric of the table; empty if the runs share none."""
        return self.definition.metric or comparison_of([cell.run for cell in self.cells if cell.run is not None]).metric

    @property
    def baseline(self) -> dict[str, Any]:
        """The values that the baseline has; empty for a search, which compares nothing."""
        return {} if self.definition.search else parse_baseline(self.definition.baseline, self.axes)

    def rows(self) -> list[Row]:
        """Return the table."""
        name = self.metric
        known: dict[str, list[SeenCell]] = {}
        for cell in self.cells:
            key = repr(cell.cell.number if self.definition.search else cell.cell.values)
            known.setdefault(key, []).append(cell)
        rows = [Row(cells[0].cell.values, tuple(cells), name) for cells in known.values()]
        if not (baseline := self.baseline):
            return rows
        speeds = {repr(row.values): row.examples_per_s for row in rows}
        keys = [axis.key for axis in self.axes]
        bases = [tuple(map(baseline.get, keys, row.values)) for row in rows]
        return [
            replace(row, speed_up=ratio(row.examples_per_s, speeds.get(repr(base))))
            for row, base in zip(rows, bases, strict=True)
        ]

    def named(self, row: Row) -> str:
        """Write a row's combination."""
        return combination(self.axes, row.values)

    def counts(self) -> dict[str, int]:
        """Return how many cells are in each state."""
        states = sorted(cell.status for cell in self.cells)
        return {status: len([*same]) for status, same in groupby(states)}

    @property
    def done(self) -> int:
        """How many of its cells are finished."""
        return sum(cell.status not in LEFT and not cell.is_running for cell in self.cells)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        if self.definition.search and not self.is_driven and len(self.cells) < self.definition.trials:
            return self.definition.search == "grid" or bool(self.definition.storage)
        return self.done == len(self.cells)


def state_of(view: SweepView) -> str:
    """Return the state of a whole sweep, in a word."""
    if view.is_driven:
        return "stopping" if view.sweep.is_stopping else "running"
    return "complete" if view.is_complete else "stopped"


class SweepReader:
    """Reads a sweep again and again while it grows.

    Raises:
        ConsoleError: Its definition cannot be read.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.definition = sweep.read()
        self.axes = tuple(parse_axes(self.definition.over))
        is_grid = not self.definition.search
        self._cells = cells_of(self.definition.config, self.axes, self.definition.repeat) if is_grid else []
        self._readers: dict[str, ComparedReader] = {}
        self._known: dict[str, tuple[object, ComparedRun]] = {}
        self._refused: dict[int, str] = {}

    def read(self) -> SweepView:
        """Read what is new."""
        is_driven = self.sweep.is_driven
        runs = {number: self._run(run) for number, run in self.sweep.runs().items()}
        cells = self._cells or [Cell(number, values_in(self.axes, run.settings), None) for number, run in runs.items()]
        seen = tuple(SeenCell(cell, runs.get(cell.number), self._refusal(cell, runs)) for cell in cells)
        return SweepView(self.sweep, self.definition, self.axes, seen, is_driven)

    def _run(self, run: RunDirectory) -> ComparedRun:
        """Read a run, unless it was over and has not changed since."""
        stamp = run.journal.stat().st_mtime_ns if run.journal.exists() else 0
        if (known := self._known.get(run.run_id)) is not None and known[0] == stamp:
            return known[1]
        if run.run_id not in self._readers:
            self._readers[run.run_id] = ComparedReader([run])
        (read,) = self._readers[run.run_id].read()
        if not read.overview.status.is_live:
            self._known[run.run_id] = (stamp, read)
        return read

    def _refusal(self, cell: Cell, runs: Mapping[int, object]) -> str:
        if cell.number in runs or self.definition.search:
            return cell.refused
        if cell.number not in self._refused:
            self._refused[cell.number] = cell.refused or refusal(cell.config)
        return self._refused[cell.number]


def conclusion(view: SweepView) -> str:
    """Say in one sentence what the sweep shows; empty if there is no result yet."""
    rows = view.rows()
    parts = [*_best_part(view, rows), *([] if view.definition.search else _speed_parts(view, rows))]
    if pruned := view.counts().get(PRUNED):
        parts.append(f"{pruned} of {len(view.cells)} were pruned")
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""


def winner(view: SweepView, rows: Sequence[Row]) -> ComparedRun | None:
    """Return the run with the best metric, of the best combination; without one, the fastest; None without results."""
    if scored := _best_first(view, rows):
        return comparison_of(scored[0][0].runs, view.metric).best
    runs = [
        (run.overview.facts.examples_per_s, run)
        for row in rows
        for run in row.runs
        if run.overview.facts.examples_per_s is not None
    ]
    return max(runs, key=lambda pair: pair[0])[1] if runs else None


def _best_first(view: SweepView, rows: Sequence[Row]) -> list[tuple[Row, Spread]]:
    """Return the combinations that have the metric, the best first."""
    runs = tuple(run for row in rows for run in row.runs)
    sign = 1 if Comparison(runs, view.metric).lower_is_better else -1
    scored = [(row, row.best) for row in rows if row.best is not None]
    return sorted(scored, key=lambda pair: (sign * pair[1].mid, pair[0].loss))


def _best_part(view: SweepView, rows: Sequence[Row]) -> list[str]:
    """Name the combination with the best metric, and say how many others look the same."""
    if not (scored := _best_first(view, rows)):
        return []
    row, best = scored[0]
    others = sum(metric(other.mid) == metric(best.mid) for _, other in scored) - 1
    also = f" and {others} other {'combination' if others == 1 else 'combinations'}" if others else ""
    return [f"the best {view.metric} is {metric(best.mid)}, with {view.named(row)}{also}"]


def _speed_parts(view: SweepView, rows: Sequence[Row]) -> list[str]:
    measured = [(row, row.examples_per_s) for row in rows if row.examples_per_s is not None]
    if len(measured) < 2:
        return []
    row, speed = max(measured, key=lambda pair: pair[1].mid)
    return [f"the fastest measured is {view.named(row)}: {count(speed.mid)} examples/s{_compared(view, row)}"]


def _compared(view: SweepView, row: Row) -> str:
    if row.speed_up is None or [view.baseline.get(axis.key) for axis in view.axes] == [*row.values]:
        return ""
    if all(view.baseline.get(axis.key, own) == own for axis, own in zip(view.axes, row.values, strict=True)):
        return ", which is the baseline"
    if not row.speed_up.is_certain:
        return f", no faster than {_base_name(view)} within the spread ({speed_text(row.speed_up)})"
    return f", {speed_text(row.speed_up)} the speed of {_base_name(view)}"


def _base_name(view: SweepView) -> str:
    named = [f"{axis.name}={shown(view.baseline[axis.key])}" for axis in view.axes if axis.key in view.baseline]
    others = [axis.name for axis in view.axes if axis.key not in view.baseline]
    return " ".join(named) + (f" with the same {' and '.join(others)}" if others else "")


def speed_text(speed: Spread | None) -> str:
    """Write a speed-up with its spread, such as ``3.1× (2.9–3.3)``; empty for None."""
    if speed is None:
        return ""
    digits = 0 if speed.mid >= 100 else 2 if speed.mid < 10 else 1
    texts = [f"{value:,.{digits}f}" for value in (speed.mid, speed.low, speed.high)]
    return f"{texts[0]}×" if speed.low == speed.high else f"{texts[0]}× ({texts[1]}–{texts[2]})"
