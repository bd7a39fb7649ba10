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
from ..text.numbers import count, metric, plural
from .comparison import ComparedReader, ComparedRun, Comparison, comparison_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    baseline: Spread | None = None  # the examples per second of its baseline; None if that is unknown

    @property
    def speed_up(self) -> Spread | None:
        """How many times as many examples per second as the baseline; None if unknown."""
        return ratio(self.examples_per_s, self.baseline)

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
        return self.figure(lambda run: run.overview.facts.examples_per_s)

    @property
    def best(self) -> Spread | None:
        """The best value of the metric."""
        return self.figure(lambda run: score.best if (score := run.score(self.metric)) is not None else None)

    @property
    def loss(self) -> float:
        """The loss of the best epochs, which decides between equal values of the metric; infinite if unknown."""
        loss = self.figure(lambda run: score.loss if (score := run.score(self.metric)) is not None else None)
        return loss.mid if loss is not None and math.isfinite(loss.mid) else math.inf

    def figure(self, of_run: Callable[[ComparedRun], float | None]) -> Spread | None:
        """Return a figure of its runs; None if no run has it."""
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

    def rows(self) -> list[Row]:
        """Return the table."""
        name = self.metric
        known: dict[str, list[SeenCell]] = {}
        for cell in self.cells:
            key = repr(cell.cell.number if self.definition.search else cell.cell.values)
            known.setdefault(key, []).append(cell)
        rows = [Row(cells[0].cell.values, tuple(cells), name) for cells in known.values()]
        if self.definition.search:  # it compares nothing
            return rows
        baseline = parse_baseline(self.definition.baseline, self.axes)
        speeds = {repr(row.values): row.examples_per_s for row in rows}
        keys = [axis.key for axis in self.axes]
        return [replace(row, baseline=speeds.get(repr(tuple(map(baseline.get, keys, row.values))))) for row in rows]

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

    @property
    def state(self) -> str:
        """The state of the whole sweep, in a word."""
        if self.is_driven:
            return "stopping" if self.sweep.is_stopping else "running"
        return "complete" if self.is_complete else "stopped"


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
        for cell in self._cells:
            if cell.number not in self._refused and cell.number not in runs:
                self._refused[cell.number] = cell.refused or refusal(cell.config)
        refused = {number: why for number, why in self._refused.items() if number not in runs}
        seen = tuple(SeenCell(cell, runs.get(cell.number), refused.get(cell.number, cell.refused)) for cell in cells)
        return SweepView(self.sweep, self.definition, self.axes, seen, is_driven)

    def _run(self, run: RunDirectory) -> ComparedRun:
        """Read a run, unless it was over and has not changed since."""
        stamp = run.journal.stat().st_mtime_ns if run.journal.exists() else 0
        if (known := self._known.get(run.run_id)) is not None and known[0] == stamp:
            return known[1]
        (read,) = self._readers.setdefault(run.run_id, ComparedReader([run])).read()
        if not read.overview.status.is_live:
            self._known[run.run_id] = (stamp, read)
        return read


def conclusion(view: SweepView) -> str:
    """Say in one sentence what the sweep shows: best, fastest and pruned combinations; empty without a result."""
    rows, parts = view.rows(), []
    if scored := _best_first(view, rows):
        row, best = scored[0]
        others = sum(metric(other.mid) == metric(best.mid) for _, other in scored) - 1
        also = f" and {plural(others, 'other combination')}" if others else ""
        named = combination(view.axes, row.values)
        parts.append(f"the best {view.metric} is {metric(best.mid)}, with {named}{also}")
    measured = [(row, row.examples_per_s) for row in rows if row.examples_per_s is not None]
    if len(measured) > 1 and not view.definition.search:
        row, speed = max(measured, key=lambda pair: pair[1].mid)
        compared = ""
        if row.speed_up is not None and speed != row.baseline:
            within = "" if row.speed_up.is_certain else ", within the spread"
            values = parse_baseline(view.definition.baseline, view.axes)
            base = " ".join(f"{one.name}={shown(values[one.key])}" for one in view.axes if one.key in values)
            compared = f", {speed_text(row.speed_up)} the speed of {base}{within}"
        named = combination(view.axes, row.values)
        parts.append(f"the fastest measured is {named}: {count(speed.mid)} examples/s{compared}")
    if pruned := view.counts().get(PRUNED):
        parts.append(f"{pruned} of {len(view.cells)} were pruned")
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""


def winner(view: SweepView, rows: Sequence[Row]) -> ComparedRun | None:
    """Return the run with the best metric, of the best combination; without one, the fastest; None without results."""
    if scored := _best_first(view, rows):
        return comparison_of(scored[0][0].runs, view.metric).best
    runs = [run for row in rows for run in row.runs if run.overview.facts.examples_per_s is not None]
    return max(runs, key=lambda run: run.overview.facts.examples_per_s or 0.0, default=None)


def _best_first(view: SweepView, rows: Sequence[Row]) -> list[tuple[Row, Spread]]:
    """Return the combinations that have the metric, the best first."""
    runs = tuple(run for row in rows for run in row.runs)
    sign = 1 if Comparison(runs, view.metric).lower_is_better else -1
    scored = [(row, row.best) for row in rows if row.best is not None]
    return sorted(scored, key=lambda pair: (sign * pair[1].mid, pair[0].loss))


def speed_text(speed: Spread | None) -> str:
    """Write a speed-up with its spread, such as ``3.1× (2.9–3.3)``; empty for None."""
    if speed is None:
        return ""
    digits = 0 if speed.mid >= 100 else 2 if speed.mid < 10 else 1
    texts = [f"{value:,.{digits}f}" for value in (speed.mid, speed.low, speed.high)]
    return f"{texts[0]}×" if speed.low == speed.high else f"{texts[0]}× ({texts[1]}–{texts[2]})"
