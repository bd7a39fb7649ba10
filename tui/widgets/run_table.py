"""The table of runs: any number of rows, of which only the visible ones are drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from ..following.overview import Status
from ..following.run_list import COLUMNS
from ..text.cells import clipped, end_of, widest
from ..text.keys import bind
from ..text.names import short_name
from ..text.tables import Column, fitting
from .rows_pane import Row, RowsPane

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from textual.binding import BindingType
    from textual.events import Click, Resize

    from ..following.overview import Overview

_STATES = {
    Status.UNSTARTED: ("○", "faint"),
    Status.RUNNING: ("▶", "now"),
    Status.PAUSED: ("‖", "warn"),
    Status.STOPPING: ("■", "warn"),
    Status.SILENT: ("▲", "warn"),
    Status.FINISHED: ("✓", "good"),
    Status.STOPPED: ("■", ""),
    Status.FAILED: ("✗", "bad"),
    Status.CRASHED: ("✗", "bad"),
    Status.UNREADABLE: ("✗", "bad"),
}
_GAP = 2
_LONGEST = {"changes": 36, "tags": 20, "preset": 24}
_NARROW, _LONGEST_IF_NARROW = 100, 22
_SELECTED = "●"


def _state_of(overview: Overview) -> tuple[str, str]:
    """Return the state of a run, and its look."""
    if overview.is_broken:
        return "▲ loss NaN", "warn"
    mark, look = _STATES[overview.status]
    return f"{mark} {overview.status.value}", look


_COLUMNS = (
    Column("", 20, width=1),
    *(replace(one, value=lambda run: _state_of(run)[0]) if one.title == "state" else one for one in COLUMNS),
)


def _cells_of(overview: Overview) -> dict[str, str]:
    """Return a run's row by column."""
    return {column.title: column.written(overview) for column in _COLUMNS[1:]}


def widths_of(overviews: Iterable[Overview]) -> dict[str, int]:
    """Return the width of each column; of ten thousand runs, that takes longer than a key press may wait."""
    widths = dict(_LONGEST)
    rows = [_cells_of(overview) for overview in overviews]
    for title in rows[0] if rows else ():
        width = widest([row[title] for row in rows])
        widths[title] = min(width, widths.get(title, width))
    return widths if rows else {}


class RunTable(RowsPane):
    """Rows by run; enter opens one."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--good", "rows--warn", "rows--cursor"}
    DEFAULT_CSS = """
    RunTable {
        background: $background; scrollbar-background: $background; scrollbar-color: $foreground 25%;
        .rows--good { color: $text-success; }
        .rows--warn { color: $text-warning; }
        .rows--cursor { background: $block-cursor-blurred-background; text-style: bold; }
        &:focus .rows--cursor { color: $block-cursor-foreground; background: $block-cursor-background; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("enter", "open"),
        bind("up", "move(-1)"),
        bind("down", "move(1)"),
        bind("page up", "page(-1)"),
        bind("page down", "page(1)"),
        bind("first", "end(-1)"),
        bind("last", "end(1)"),
    ]

    cursor: reactive[int] = reactive(0)

    class Highlighted(Message):
        """The cursor is on another run, or on none."""

    class Opened(Message):
        """The run under the cursor is to be opened."""

    def __init__(self) -> None:
        super().__init__("", "runs")
        self._order: Sequence[str] = ()
        self._known: dict[str, Overview] = {}
        self._selected: Collection[str] = ()
        self._widths: dict[str, int] = {}
        self._columns: list[Column] = []

    @property
    def chosen(self) -> str:
        """The run under the cursor; empty if there is none."""
        return self._order[self.cursor] if self._order else ""

    def know(self, overviews: Iterable[Overview], widths: Mapping[str, int]) -> None:
        """Take in what was read of some runs, and the widths of their cells."""
        self._known |= {overview.run.run_id: overview for overview in overviews}
        wider = {title: width for title, width in widths.items() if width > self._widths.get(title, 0)}
        if wider:
            self._widths |= wider
            self._lay_out()
        self.refresh()

    def show(self, order: Sequence[str], selected: Collection[str]) -> None:
        """Show runs in an order; the cursor stays on its run."""
        before = self.chosen
        place = {run_id: index for index, run_id in enumerate(order)}
        self._order, self._selected = order, selected
        self.set_reactive(RunTable.cursor, place.get(before, min(self.cursor, max(0, len(order) - 1))))
        self._lay_out()
        self._keep_in_view()
        self.post_message(self.Highlighted())

    def _lay_out(self) -> None:
        room = max(self.room, 1)
        wide = [
            replace(column, width=min(room, max(column.width, len(column.title), self._widths.get(column.title, 0))))
            for column in _COLUMNS
        ]
        if room < _NARROW:
            short = {"changes", "tags"}
            wide = [
                replace(one, width=min(one.width, _LONGEST_IF_NARROW)) if one.title in short else one for one in wide
            ]
        self._columns = fitting(wide, room, _GAP)
        self.rows_changed()

    def on_resize(self, event: Resize) -> None:
        """Choose the columns for the new width."""
        event.prevent_default()
        self._lay_out()

    def head(self) -> list[Row]:
        """The titles."""
        return [[((" " * _GAP).join(column.cell(column.title) for column in self._columns), "head")]]

    def row_count(self) -> int:
        """How many runs there are."""
        return len(self._order)

    def row(self, index: int) -> Row:
        """Return one run's cells."""
        run_id = self._order[index]
        overview = self._known.get(run_id)
        cells = {"run": short_name(run_id), "state": "reading …"} if overview is None else _cells_of(overview)
        cells[""] = _SELECTED if run_id in self._selected else ""
        looks: Mapping[str, str] = {"state": "faint" if overview is None else _state_of(overview)[1], "": "now"}
        pieces: list[tuple[str, str]] = []
        for column in self._columns:
            text = _fitted(cells.get(column.title, ""), column)
            pieces += [(" " * _GAP, "")] * bool(pieces) + [(text, looks.get(column.title, ""))]
        return pieces

    def render_line(self, y: int) -> Strip:
        """Draw one line; the row under the cursor stands out."""
        strip = super().render_line(y)
        if not self._order or y + self.scroll_offset.y - 1 != self.cursor or y == 0:
            return strip
        return Strip(Segment.apply_style(strip, post_style=self._style("cursor")), strip.cell_length)

    def on_focus(self) -> None:
        """Draw the cursor in the colours of the focus."""
        self.refresh()

    def watch_cursor(self) -> None:
        """Draw the cursor where it is, and let the screen know."""
        self._keep_in_view()
        self.refresh()
        self.post_message(self.Highlighted())

    def _keep_in_view(self) -> None:
        height, top = max(1, self.size.height - 1), round(self.scroll_y)
        wanted = min(max(top, self.cursor - height + 1), self.cursor)
        if wanted != top:
            self.scroll_to(y=wanted, animate=False, immediate=True, force=True)

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self.cursor = min(max(0, self.cursor + rows), max(0, len(self._order) - 1))

    def action_page(self, pages: int) -> None:
        """Move the cursor by a page."""
        self.action_move(pages * max(1, self.size.height - 2))

    def action_end(self, side: int) -> None:
        """Move the cursor to the first or the last run."""
        self.action_move(side * len(self._order))

    def action_open(self) -> None:
        """Open the run."""
        if self.chosen:
            self.post_message(self.Opened())

    def on_click(self, event: Click) -> None:
        """Move the cursor to a row; a click on the row under the cursor opens it."""
        offset = event.get_content_offset(self)
        row = offset.y + self.scroll_offset.y - 1 if offset is not None else -1
        if offset is None or offset.y == 0 or not 0 <= row < len(self._order):
            return
        if row == self.cursor:
            self.action_open()
        else:
            self.cursor = row


def _fitted(text: str, column: Column) -> str:
    """Return a text in a column's width; of names, which differ at their end, the end is kept."""
    return column.cell((end_of if column.title == "run" else clipped)(text, column.width))
