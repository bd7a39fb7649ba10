"""Reads a sweep: its combinations with their runs, its speed-ups and its conclusion, as text, CSV, Markdown and SVG."""

import io
import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter
from statistics import median
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.sweeps.cells import (
    Cell,
    SweptKey,
    cells_of,
    combination,
    is_pruned,
    parse_axes,
    parse_baseline,
    shown,
)
from tpu_console.engine.sweeps.driver import refusal
from tpu_console.engine.sweeps.folder import Definition, Sweep

from ..text import tables
from ..text.names import Status
from ..text.numbers import count, duration, metric, plural
from ..text.tables import BEST, Bar, Column, bar_chart, in_markdown, paragraphs
from .comparison import ComparedReader, ComparedRun, Comparison, comparison_of
from .overview import Overview
from .run_list import epochs_text

_SVG_CELLS = 100
WAITING, REFUSED, PRUNED = "waiting", "refused", "pruned"
LEFT = {WAITING, Status.STOPPED.value, Status.FAILED.value, Status.CRASHED.value, Status.UNSTARTED.value}
"""The states of cells that the sweep has not finished."""


class SeenCell(Struct, frozen=True):
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


class Spread(Struct, frozen=True):
    """A figure of several equal runs: the median, the lowest and the highest."""

    mid: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Whether a ratio is on one side of 1 in every case."""
        return self.low > 1 or self.high < 1

    def written(self, write: Callable[[float], str]) -> str:
        """Write it with half of its spread in percent, such as ``1,234 ±3%``."""
        if self.low == self.high or not self.mid:
            return write(self.mid)
        return f"{write(self.mid)} ±{50 * (self.high - self.low) / abs(self.mid):.0f}%"


def spread_of(values: Sequence[float]) -> Spread | None:
    """Return the spread of figures; None if there are none."""
    return Spread(median(values), min(values), max(values)) if values else None


def ratio(one: Spread | None, other: Spread | None) -> Spread | None:
    """Return how many times as large one figure is as another, at least and at most; None if one is unknown."""
    if one is None or other is None or other.low <= 0:
        return None
    return Spread(one.mid / other.mid, one.low / other.high, one.high / other.low)


class Row(Struct, frozen=True):
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
        return self.figure(attrgetter("overview.facts.examples_per_s"))

    @property
    def best(self) -> Spread | None:
        """The best value of the metric."""
        return self.figure(lambda run: run.score(self.metric).best)

    @property
    def loss(self) -> float:
        """The loss of the best epochs, which decides between equal values of the metric; infinite if unknown."""
        loss = self.figure(lambda run: run.score(self.metric).loss)
        return math.inf if loss is None else loss.mid

    def figure(self, of_run: Callable[[ComparedRun], float | None]) -> Spread | None:
        """Return a figure of its runs; None if no run has it."""
        return spread_of([value for run in self.runs if (value := of_run(run)) is not None])


class SweepView(Struct, frozen=True):
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
        return Counter(sorted(cell.status for cell in self.cells))

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
    """Reads a sweep again and again while it grows; raises `ConsoleError` if its definition cannot be read."""

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
        cells = self._cells or [
            Cell(number, tuple(run.settings.get(axis.key) for axis in self.axes), None) for number, run in runs.items()
        ]
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


_LOOKS = {
    "running": "$text-accent",
    "stopping": "$text-warning",
    "complete": "$text-success",
    "finished": "$text-success",
    "failed": "$text-error",
    "crashed": "$text-error",
}


class ListedSweep(Struct, frozen=True):
    """A sweep in a list."""

    sweep: Sweep
    view: SweepView | None = None  # None if it cannot be read
    problem: str = ""  # why

    @property
    def state(self) -> str:
        """Its state, in a word."""
        return "unreadable" if self.view is None else self.view.state

    @property
    def over(self) -> str:
        """What it changes."""
        return "" if self.view is None else " ".join(self.view.definition.over)

    @property
    def runs(self) -> str:
        """How many of its runs are in each state."""
        counts = {} if self.view is None else self.view.counts()
        return ", ".join(f"{number} {status}" for status, number in counts.items())


def listed(sweep: Sweep, readers: dict[str, SweepReader]) -> ListedSweep:
    """Read a sweep for a list, with the reader of its name, if there is one yet."""
    try:
        if sweep.name not in readers:
            readers[sweep.name] = SweepReader(sweep)
        return ListedSweep(sweep, readers[sweep.name].read())
    except (ConsoleError, OSError) as error:
        return ListedSweep(sweep, problem=error.what if isinstance(error, ConsoleError) else str(error))


NO_SWEEP = "There is no sweep yet."
LIST_COLUMNS = (
    Column("sweep", 4, value=lambda one: one.sweep.name),
    Column("state", 3, value=attrgetter("state"), look=lambda one: _LOOKS.get(one.state, "")),
    Column("done", 2, right=True, value=lambda one: f"{one.view.done}/{len(one.view.cells)}" if one.view else ""),
    Column("over", 1, value=attrgetter("over")),
    Column("runs", 0, value=attrgetter("runs")),
)
"""The columns of a list of sweeps."""


def cell_rows(view: SweepView, rows: Sequence[Row]) -> dict[str, Row]:
    """Return a row for each cell of a sweep by the cell's number."""
    known = {cell.cell.number: row for row in rows for cell in row.cells}
    return {str(cell.cell.number): replace(known[cell.cell.number], cells=(cell,)) for cell in view.cells}


def cell_columns(view: SweepView, best: ComparedRun | None) -> list[Column]:
    """Return the columns of a table of such rows; `best` is the run to mark."""

    def score(row: Row) -> str | None:
        return None if row.best is None else f"{f'{BEST} ' * (best in row.runs)}{metric(row.best.mid)}"

    def run(row: Row) -> Overview | None:
        return row.runs[0].overview if row.runs else None

    return [
        Column("#", 11, True, value=lambda row: row.cells[0].cell.number),
        *_axes(view),
        Column("state", 19, value=lambda row: row.status, look=lambda row: _LOOKS.get(row.status, "")),
        Column("epoch", 14, True, value=run, text=epochs_text),
        Column("best", 16, True, value=score),
        _figure("examples/s", 17, "examples_per_s", count),
        _figure("speed-up", 15, "speed_up"),
        Column("time", 13, True, value=run, text=lambda one: duration(one.seconds())),
        Column("remark", 3, value=lambda row: row.cells[0].refused),
    ]


def results_of(view: SweepView, rows: Sequence[Row]) -> list[Column]:
    """Return the columns of the table; columns in which no row has a value are dropped."""

    def finished(run: ComparedRun) -> float | None:
        return run.overview.seconds() if run.overview.status is Status.FINISHED else None

    columns = [
        Column("state", 12, key="state", value=attrgetter("status")),
        _figure("time", 10, "seconds", duration, lambda row: row.figure(finished)),
        _figure("1st epoch", 6, "first_epoch_s", duration, lambda row: row.figure(attrgetter("first_epoch_s"))),
        _figure("later", 5, "later_epoch_s", duration, lambda row: row.figure(attrgetter("later_epoch_s"))),
        _figure("examples/s", 14, "examples_per_s", count),
        _figure(f"best {view.metric}".strip(), 13, "best", metric),
        _figure("speed-up", 15, "speed_up"),
        Column("remark", 4, key="remark", value=lambda row: row.cells[0].refused),
    ]
    return [*_axes(view), *(one for one in columns if any(one.value(row) not in (None, "") for row in rows))]


def _axes(view: SweepView) -> list[Column]:
    def axis(key: SweptKey, place: int) -> Column:
        return Column(key.name, 20, key=key.key, value=lambda row: row.values[place], text=shown)

    return [axis(key, place) for place, key in enumerate(view.axes)]


def _figure(
    title: str,
    importance: int,
    key: str,
    write: Callable[[float], str] | None = None,
    pick: Callable[[Row], Spread | None] | None = None,
) -> Column:
    """Return the column of a row's figure with its spread; without `write`, the figure is a speed-up."""
    text = speed_text if write is None else lambda found: found.written(write)
    return Column(title, importance, True, key=key, value=pick or attrgetter(key), text=text, plain=attrgetter("mid"))


def as_text(view: SweepView, width: int | None) -> list[str]:
    """Write the table, the bars and the conclusion in so many cells; None for no limit, as in a pipe."""
    rows = view.rows()
    columns = results_of(view, rows)
    return paragraphs([tables.as_lines(columns, rows, width), bars(view, rows, width or _SVG_CELLS), notes(view, rows)])


def notes(view: SweepView, rows: Sequence[Row]) -> list[str]:
    """Return the conclusion, and how to keep the best run."""
    lines = [text] if (text := conclusion(view)) else []
    if (best := winner(view, rows)) is not None:
        lines.append(f"Keep the best run: tpu-console export {best.overview.run.run_id} --notebook")
    return lines


def bars(view: SweepView, rows: Sequence[Row], width: int) -> list[str]:
    """Draw the examples per second, or the best metric of a search, grouped by all axes but the first."""
    is_search = bool(view.definition.search)
    title, write = (view.metric, metric) if is_search else ("examples/s", count)
    groups: dict[str, list[Bar]] = {}
    for row in rows:
        if (found := row.best if is_search else row.examples_per_s) is not None:
            bar = Bar(" ".join(map(shown, row.values)), max(0.0, found.mid), (write(found.mid),))
            groups.setdefault("" if is_search else repr(row.values[1:]), []).append(bar)
    made = [bar for group in groups.values() for bar in group]
    if len(made) < 2:
        return []  # one bar shows nothing
    head, *drawn = bar_chart(made, [" ".join(axis.name for axis in view.axes), title], width)
    lines = iter(drawn)
    return [head, *paragraphs([*islice(lines, len(group))] for group in groups.values())]


def as_csv(view: SweepView) -> str:
    """Write one row for each combination, with the lowest and the highest of what was repeated, and its runs."""
    rows = view.rows()
    ends = (
        Column("", 0, key=f"{key}_{end}", value=attrgetter(key), plain=attrgetter(end))
        for key in ("examples_per_s", "speed_up")
        for end in ("low", "high")
    )
    runs = Column("", 0, key="runs", value=lambda row: " ".join(run.overview.run.run_id for run in row.runs))
    return tables.as_csv([*results_of(view, rows), *ends, runs], rows)


def as_markdown(view: SweepView) -> list[str]:
    """Write the table and the conclusion as Markdown."""
    rows = view.rows()
    lines = tables.as_markdown(results_of(view, rows), rows)
    return [*lines, *(line for note in notes(view, rows) for line in ("", in_markdown(note)))]


def as_svg(view: SweepView) -> str:
    """Draw the bars and the conclusion as a picture, by Rich."""
    from rich.console import Console
    from rich.text import Text

    rows = view.rows()
    console = Console(record=True, width=_SVG_CELLS, file=io.StringIO())
    for line in [*bars(view, rows, _SVG_CELLS), "", *notes(view, rows)]:
        console.print(Text(line))
    return console.export_svg(title=f"{view.definition.config.name}: {' × '.join(axis.name for axis in view.axes)}")
