"""A table of records that drops its least important columns if there is too little room."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from textual.content import Content
from textual.events import Resize
from textual.widgets import DataTable

from ..text.keys import bind
from ..text.tables import Column, fitting

_PADDING = 1  # cells on each side of a column
_ENDS = "Go to the first or the last row."


class RecordTable(DataTable[Content], inherit_bindings=False):
    """Records by key, one per row; enter selects the one that is marked.

    A column is as wide as its widest cell, or as its `Column` says. The titles of the columns are the keys of cells.
    """

    BINDINGS = [
        bind("enter", "select_cursor"),
        bind("up", "cursor_up"),
        bind("down", "cursor_down"),
        bind("page up", "page_up"),
        bind("page down", "page_down"),
        bind("first", "scroll_top", about=_ENDS),
        bind("last", "scroll_bottom", about=_ENDS),
    ]
    DEFAULT_CSS = """
    RecordTable {
        background: $background;
        scrollbar-background: $background; scrollbar-color: $foreground 25%;
        scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0;
        & > .datatable--header { background: $background; color: $text-muted; text-style: bold; }
        & > .datatable--odd-row, & > .datatable--even-row { background: $background; }
    }
    """

    def __init__(self, shape: Sequence[Column], table_id: str) -> None:
        super().__init__(cursor_type="row", id=table_id, cell_padding=_PADDING)
        self._shape = tuple(shape)
        self._laid_out: list[Column] = []
        self._records: dict[str, Any] = {}
        self._cells: dict[str, dict[str, Content]] = {}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "select_cursor" or self.cursor_type != "none"

    @property
    def chosen(self) -> str:
        """The key of the row under the cursor; empty if there is none."""
        return list(self._cells)[self.cursor_row] if self._cells else ""

    @property
    def record(self) -> Any:
        """The record under the cursor; None if there is none."""
        return self._records.get(self.chosen)

    def show(self, records: Mapping[str, Any], shape: Sequence[Column] | None = None) -> None:
        """Show these records, and other columns if they are given; the cursor stays on its record, or in its row."""
        self._shape = tuple(shape or self._shape)
        chosen, before = self.chosen, self._cells
        self._records = dict(records)
        self._cells = {
            key: {column.title: Content.styled(column.written(record), column.look(record)) for column in self._shape}
            for key, record in records.items()
        }
        if [*before] != [*self._cells] or self._fitting() != self._laid_out:
            self._lay_out(chosen)
            return
        for key, cells in self._cells.items():
            for column in self._laid_out if cells != before[key] else ():
                self.update_cell(key, column.title, _cell(cells[column.title], column))

    def on_resize(self, event: Resize) -> None:
        if self._fitting() != self._laid_out:
            self._lay_out(self.chosen)

    def _fitting(self) -> list[Column]:
        # A table that has not been shown has no width. If it takes less than the screen, its Resize says so.
        room = (self.size.width or self.app.size.width) - self.styles.scrollbar_size_vertical - 2 * _PADDING
        wide = []
        for column in self._shape:
            longest = max((cells[column.title].cell_length for cells in self._cells.values()), default=0)
            if self._cells and not longest and not column.width:
                continue  # nothing is in it
            wide.append(replace(column, width=min(room, max(column.width, len(column.title), longest))))
        return fitting(wide, room, 2 * _PADDING) if wide else []

    def _lay_out(self, chosen: str) -> None:
        self._laid_out, row = self._fitting(), self.cursor_row
        self.clear(columns=True)
        for column in self._laid_out:
            self.add_column(column.cell(column.title), key=column.title, width=column.width)
        for key, cells in self._cells.items():
            self.add_row(*(_cell(cells[column.title], column) for column in self._laid_out), key=key)
        self.move_cursor(row=list(self._cells).index(chosen) if chosen in self._cells else row)


def _cell(content: Content, column: Column) -> Content:
    missing = column.width - content.cell_length
    if missing < 0:  # only if one column takes all the room; names often differ only at the end
        return Content("…") + content[1 - missing :]
    return content.pad_left(missing) if column.right else content
