"""The list of sweeps, to open one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.content import Content
from textual.screen import Screen
from textual.widgets import DataTable, Static
from textual.worker import get_current_worker

from tpu_console.engine.errors import ConsoleError

from ..text.keys import bind
from ..widgets.closing import is_closing
from ..widgets.fitting_table import FittingTable
from .parts import BACK, HELP, QUIT, KeysFooter, Title

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ..following.sweep import SweepReader, SweepView

_LOOK_S = 2.0
_LOOKS = {"running": "$text-accent", "stopping": "$text-warning", "complete": "$text-success"}


class SweepsTable(FittingTable):
    """A row per sweep."""

    BINDINGS: ClassVar[list[BindingType]] = [bind("enter", "select_cursor")]


class SweepsScreen(Screen[None]):
    """A table of sweeps; enter opens one."""

    CSS = """
    SweepsScreen {
        background: $background;
        #sweeps { height: 1fr; }
        #chosen { height: auto; max-height: 8; padding: 0 1; color: $text-muted; }
    }
    """
    AUTO_FOCUS = "SweepsTable"
    BINDINGS: ClassVar[list[BindingType]] = [HELP, BACK, QUIT]

    def __init__(self) -> None:
        super().__init__()
        self._readers: dict[str, SweepReader] = {}
        self._views: dict[str, SweepView] = {}
        self._errors: dict[str, str] = {}
        self._rows: dict[str, dict[str, Content]] = {}

    def compose(self) -> ComposeResult:
        """Lay out the table above what the chosen sweep shows."""
        from ..following.sweep_tables import LIST_COLUMNS

        yield Title("sweeps, newest first")
        yield SweepsTable(LIST_COLUMNS, "sweeps")
        yield Static("", id="chosen", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        """Look at the sweeps now and every few seconds."""
        self._look()
        self.set_interval(_LOOK_S, lambda: self._look() if self.is_current else None, name="look at sweeps")

    @work(thread=True, exclusive=True, group="read sweeps")
    def _look(self) -> None:
        from tpu_console.engine.sweeps.folder import list_sweeps

        from ..following.sweep import SweepReader
        from ..following.sweep_tables import listed

        rows: dict[str, dict[str, str]] = {}
        for sweep in (found := list_sweeps()):
            if get_current_worker().is_cancelled:
                return
            try:
                if sweep.name not in self._readers:
                    self._readers[sweep.name] = SweepReader(sweep)
                view = self._views.get(sweep.name)
                if view is None or view.is_driven or sweep.is_driven or any(cell.is_running for cell in view.cells):
                    view = self._views[sweep.name] = self._readers[sweep.name].read()
                rows[sweep.name] = listed(view)
            except (ConsoleError, OSError) as error:
                rows[sweep.name] = {"sweep": sweep.name, "state": "unreadable"}
                self._errors[sweep.name] = str(error)
            if len(rows) == len(found) or len(rows) % 20 == 0:
                self.app.call_from_thread(self._show, rows)
        if not found:
            self.app.call_from_thread(self._show, {})

    def _show(self, rows: dict[str, dict[str, str]]) -> None:
        if is_closing(self):
            return
        styled = {
            key: {name: Content.styled(text, _LOOKS.get(text, "")) for name, text in row.items()}
            for key, row in rows.items()
        }
        if styled != self._rows:
            self._rows = styled
            self._table.show(styled)
        self._describe()

    @property
    def _table(self) -> SweepsTable:
        return self.query_one(SweepsTable)

    @on(DataTable.RowHighlighted)
    def _describe(self) -> None:
        """Show what the sweep under the cursor changes, how far it is, and its conclusion."""
        from ..following.sweep import conclusion
        from ..following.sweep_tables import listed

        text = "There is no sweep yet. Start one: tpu-console sweep digits-cnn --over batch_size=16,32"
        if (view := self._views.get(self._table.chosen)) is not None:
            row = listed(view)
            text = "\n".join(filter(None, [f"{row['over']} · {row['runs']}", conclusion(view)]))
        elif self._rows:
            text = self._errors.get(self._table.chosen, "")
        self.query_one("#chosen", Static).update(text)

    @on(DataTable.RowSelected)
    def _open(self) -> None:
        from .sweep import SweepScreen

        if (view := self._views.get(self._table.chosen)) is not None:
            self.app.push_screen(SweepScreen(view.sweep))
