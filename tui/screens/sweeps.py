"""The list of sweeps, to open one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.screen import Screen
from textual.widgets import DataTable, Static
from textual.worker import get_current_worker

from ..widgets.closing import is_closing
from ..widgets.record_table import RecordTable
from .parts import BACK, HELP, QUIT, KeysFooter, Title

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ..following.sweep import SweepReader
    from ..following.sweep_tables import ListedSweep

_LOOK_S = 2.0


class SweepsScreen(Screen[None]):
    """A table of sweeps; enter opens one."""

    CSS = """
    SweepsScreen {
        background: $background;
        #sweeps { height: 1fr; }
        #chosen { height: auto; max-height: 8; padding: 0 1; color: $text-muted; }
    }
    """
    AUTO_FOCUS = "RecordTable"
    BINDINGS: ClassVar[list[BindingType]] = [HELP, BACK, QUIT]

    def __init__(self) -> None:
        super().__init__()
        self._readers: dict[str, SweepReader] = {}
        self._known: dict[str, ListedSweep] = {}

    def compose(self) -> ComposeResult:
        """Lay out the table above what the chosen sweep shows."""
        from ..following.sweep_tables import LIST_COLUMNS

        yield Title("sweeps, newest first")
        yield RecordTable(LIST_COLUMNS, "sweeps")
        yield Static("", id="chosen", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        """Look at the sweeps now and every few seconds."""
        self._look()
        self.set_interval(_LOOK_S, lambda: self._look() if self.is_current else None, name="look at sweeps")

    @work(thread=True, exclusive=True, group="read sweeps")
    def _look(self) -> None:
        from tpu_console.engine.sweeps.folder import list_sweeps

        from ..following.sweep_tables import listed

        rows: dict[str, ListedSweep] = {}
        for sweep in (found := list_sweeps()):
            if get_current_worker().is_cancelled:
                return
            view = self._known[sweep.name].view if sweep.name in self._known else None
            if view is None or view.is_driven or sweep.is_driven or any(cell.is_running for cell in view.cells):
                self._known[sweep.name] = listed(sweep, self._readers)
            rows[sweep.name] = self._known[sweep.name]
            if len(rows) == len(found) or len(rows) % 20 == 0:
                self.app.call_from_thread(self._show, rows)
        if not found:
            self.app.call_from_thread(self._show, {})

    def _show(self, rows: dict[str, ListedSweep]) -> None:
        if not is_closing(self):
            self._table.show(rows)
            self._describe()

    @property
    def _table(self) -> RecordTable:
        return self.query_one(RecordTable)

    @on(DataTable.RowHighlighted)
    def _describe(self) -> None:
        """Show what the sweep under the cursor changes, how far it is, and its conclusion."""
        from ..following.sweep import conclusion
        from ..following.sweep_tables import NO_SWEEP

        text, one = NO_SWEEP, self._table.record
        if one is not None:
            said = conclusion(one.view) if one.view is not None else ""
            text = "\n".join(filter(None, [one.problem or f"{one.over} · {one.runs}", said]))
        self.query_one("#chosen", Static).update(text)

    @on(DataTable.RowSelected)
    def _open(self) -> None:
        from .sweep import SweepScreen

        if (one := self._table.record) is not None and one.view is not None:
            self.app.push_screen(SweepScreen(one.sweep))
