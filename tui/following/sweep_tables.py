"""Writes the results of a sweep as text with bars, CSV, Markdown and SVG."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.sweeps.axes import SweptKey, shown

from ..text import tables
from ..text.names import Status
from ..text.numbers import count, duration, metric
from ..text.tables import Bar, Column, bar_chart, in_markdown, paragraphs
from .run_list import epochs_text
from .sweep import Row, Spread, SweepReader, SweepView, conclusion, speed_text, winner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpu_console.engine.sweeps.folder import Sweep

    from .comparison import ComparedRun
    from .overview import Overview

_LOOKS = {
    "running": "$text-accent",
    "stopping": "$text-warning",
    "complete": "$text-success",
    "finished": "$text-success",
    "failed": "$text-error",
    "crashed": "$text-error",
}

_SVG_CELLS = 100


@dataclass(frozen=True)
class ListedSweep:
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
        return ListedSweep(sweep, None, error.what if isinstance(error, ConsoleError) else str(error))


NO_SWEEP = "There is no sweep yet."
LIST_COLUMNS = (
    Column("sweep", 4, value=lambda one: one.sweep.name),
    Column("state", 3, value=lambda one: one.state, look=lambda one: _LOOKS.get(one.state, "")),
    Column("done", 2, right=True, value=lambda one: f"{one.view.done}/{len(one.view.cells)}" if one.view else ""),
    Column("over", 1, value=lambda one: one.over),
    Column("runs", 0, value=lambda one: one.runs),
)
"""The columns of a list of sweeps."""


def cell_rows(view: SweepView, rows: Sequence[Row]) -> dict[str, Row]:
    """Return a row for each cell of a sweep by the cell's number."""
    known = {cell.cell.number: row for row in rows for cell in row.cells}
    return {str(cell.cell.number): replace(known[cell.cell.number], cells=(cell,)) for cell in view.cells}


def cell_columns(view: SweepView, best: ComparedRun | None) -> list[Column]:
    """Return the columns of a table of such rows; `best` is the run to mark."""

    def score(row: Row) -> str | None:
        return None if row.best is None else f"{'★ ' * (best in row.runs)}{metric(row.best.mid)}"

    def run(row: Row) -> Overview | None:
        return row.runs[0].overview if row.runs else None

    return [
        Column("#", 11, True, value=lambda row: row.cells[0].cell.number),
        *(_axis(axis, place) for place, axis in enumerate(view.axes)),
        Column("state", 19, value=lambda row: row.status, look=lambda row: _LOOKS.get(row.status, "")),
        Column("epoch", 14, True, value=run, text=epochs_text),
        Column("best", 16, True, value=score),
        _figure("examples/s", "", lambda row: row.examples_per_s, _around(count), 17),
        _figure("speed-up", "", lambda row: row.speed_up, speed_text, 15),
        Column("time", 13, True, value=run, text=lambda one: duration(one.seconds())),
        Column("remark", 3, value=lambda row: row.cells[0].refused),
    ]


def results_of(view: SweepView, rows: Sequence[Row]) -> list[Column]:
    """Return the columns of the table; those that no row has a value for are left out."""
    own = [_axis(axis, place) for place, axis in enumerate(view.axes)]
    columns: list[Column] = [
        Column("state", 12, key="state", value=lambda row: row.status),
        _figure("time", "seconds", _seconds, _around(duration), 10),
        _figure(
            "1st epoch", "first_epoch_s", lambda row: row.figure(lambda run: run.first_epoch_s), _around(duration), 6
        ),
        _figure("later", "later_epoch_s", lambda row: row.figure(lambda run: run.later_epoch_s), _around(duration), 5),
        _figure("examples/s", "examples_per_s", lambda row: row.examples_per_s, _around(count), 14),
        _figure(f"best {view.metric}".strip(), "best", lambda row: row.best, _around(metric), 13),
        _figure("speed-up", "speed_up", lambda row: row.speed_up, speed_text, 15),
        Column("remark", 4, key="remark", value=lambda row: row.cells[0].refused),
    ]
    return [*own, *(one for one in columns if any(one.value(row) not in (None, "") for row in rows))]


def _seconds(row: Row) -> Spread | None:
    """Return how long runs took that finished."""
    return row.figure(lambda run: run.overview.seconds() if run.overview.status is Status.FINISHED else None)


def _axis(axis: SweptKey, place: int) -> Column:
    return Column(axis.name, 20, key=axis.key, value=lambda row: row.values[place], text=shown)


def _figure(
    title: str, key: str, pick: Callable[[Row], Spread | None], write: Callable[[Spread], str], importance: int
) -> Column:
    """Return the column of a figure."""
    return Column(title, importance, True, key=key, value=pick, text=write, plain=lambda found: found.mid)


def _around(write: Callable[[float], str]) -> Callable[[Spread], str]:
    """Return what writes a figure with half of its spread in percent, such as ``1,234 ±3%``."""

    def text(found: Spread) -> str:
        if found.low == found.high or not found.mid:
            return write(found.mid)
        return f"{write(found.mid)} ±{50 * (found.high - found.low) / abs(found.mid):.0f}%"

    return text


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
    more: list[Column] = [
        Column("", 0, key=f"{key}_{end}", value=attrgetter(key), plain=attrgetter(end))
        for key in ("examples_per_s", "speed_up")
        for end in ("low", "high")
    ]
    more.append(Column("", 0, key="runs", value=lambda row: " ".join(run.overview.run.run_id for run in row.runs)))
    return tables.as_csv([*results_of(view, rows), *more], rows)


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
