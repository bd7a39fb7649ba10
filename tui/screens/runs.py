"""The runs screen: past and running runs, the newest first, to open one."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import get_current_worker

from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.engine.storage.paths import runs_folder, user_path

from ..text.tables import Column
from ..widgets.fitting_table import FittingTable
from .messages import OpenRun
from .parts import BACK, HELP, QUIT, KeysFooter, Title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widgets import DataTable

    from tpu_console.engine.runs.liveness import HeartbeatWatch

    from ..following.overview import Overview

_LOOK_S = 3.0
"""Seconds between two checks of the heartbeats of running runs."""

# With widths, so that rows that are still being read hardly shift the others.
_COLUMNS = (
    Column("State", 8, width=12),
    Column("Preset", 4, width=12),
    Column("Epochs", 7, width=7, right=True),
    Column("Best", 6, width=19),
    Column("Took", 5, width=8, right=True),
    Column("Run", 9),
)

_SHOW_S = 0.1


class RunTable(FittingTable):
    """The table of runs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,l", "select_cursor", "Open", tooltip="Open the run."),
    ]


class RunsScreen(Screen[None]):
    """A table of runs; enter opens one, which posts `OpenRun` to the app."""

    CSS = """
    RunsScreen {
        background: $background;

        #runs { height: 1fr; }
        #chosen { height: auto; padding: 0 1; color: $text-muted; }
    }
    """
    AUTO_FOCUS = "DataTable"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r,f5", "refresh_runs", "Reload", tooltip="Reload the list."),
        BACK,
        HELP,
        QUIT,
    ]

    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[str, RunDirectory] = {}
        self._remarks: dict[str, str] = {}  # details of a run's state that do not fit into its row
        self._live: dict[str, tuple[HeartbeatWatch, Overview]] = {}

    def compose(self) -> ComposeResult:
        """Lay out the title, the table and the line on the chosen run."""
        yield Title("runs, newest first")
        yield RunTable(_COLUMNS, "runs")
        yield Static("", id="chosen", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        """Check the heartbeats of running runs every few seconds."""
        self.set_interval(_LOOK_S, self._turn, name="heartbeats of running runs")

    def _turn(self) -> None:
        if self._live and self.is_current:
            self._look_again()

    def on_screen_resume(self) -> None:
        """Read the runs, also after coming back from one."""
        self.action_refresh_runs()

    def action_refresh_runs(self) -> None:
        """Read the runs again."""
        self._read_runs()

    @work(thread=True, exclusive=True, name="read runs")
    def _read_runs(self) -> None:
        """List the runs immediately, then read them one by one, because a long journal takes a while."""
        runs = list_runs()
        self.app.call_from_thread(self._list, runs)
        # The journal reader imports NumPy: wait until the table is shown, and do not block key presses.
        from tpu_console.engine.runs.liveness import watch_once

        from ..following.overview import OverviewReader

        worker = get_current_worker()
        reader = OverviewReader(runs)
        seen: list[tuple[HeartbeatWatch, Overview]] = []
        shown_at = time.monotonic()
        for run in runs:
            if worker.is_cancelled:
                return
            known = self._live.get(run.run_id)
            watch = known[0] if known is not None else watch_once(run)
            seen.append((watch, reader.read(watch)))
            if time.monotonic() - shown_at > _SHOW_S:
                self.app.call_from_thread(self._show, seen)
                seen, shown_at = [], time.monotonic()
        self.app.call_from_thread(self._show, seen)
        reader.save()

    def _show(self, seen: Sequence[tuple[HeartbeatWatch, Overview]]) -> None:
        """Fill the rows of some runs; remember those that may change."""
        from ..widgets.run_cells import run_cells

        rows = {}
        for watch, overview in seen:
            run = watch.run
            if overview.status.is_live or not overview.is_settled:
                self._live[run.run_id] = (watch, overview)
            else:
                self._live.pop(run.run_id, None)
            self._remarks[run.run_id] = overview.remark
            rows[run.run_id] = run_cells(overview)
        if self.is_attached:
            self._table.change(rows)
            if self._table.chosen in rows:
                self._describe(self._runs[self._table.chosen])

    @work(thread=True, exclusive=True, group="heartbeats", name="look at heartbeats")
    def _look_again(self) -> None:
        """Check the heartbeats of running runs, and read those again whose status changed."""
        from ..following.overview import OverviewReader

        reader = OverviewReader([watch.run for watch, _ in self._live.values()])
        for watch, before in list(self._live.values()):
            life = watch.look()
            if (life.liveness, life.is_settled) != (before.life.liveness, before.life.is_settled):
                self.app.call_from_thread(self._show, [(watch, reader.read(watch))])
            elif life.silent_s:
                self.app.call_from_thread(self._show, [(watch, replace(before, life=life))])

    def _list(self, runs: list[RunDirectory]) -> None:
        """Show the list of runs; existing rows keep their content until they are read again."""
        if not self.is_attached:
            return  # closed while the folder was being read
        if list(self._runs) != [run.run_id for run in runs]:
            self._runs = {run.run_id: run for run in runs}
            reading = Content.styled("reading …", "$foreground 60%")
            self._table.show({name: {"State": reading, "Run": Content(name)} for name in self._runs})
        if not runs:
            folder = user_path(runs_folder())
            self.query_one("#chosen", Static).update(f"No runs in {folder} yet. Press escape to go back and start one.")

    @property
    def _table(self) -> RunTable:
        return self.query_one(RunTable)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the folder of the run under the cursor, and remarks that do not fit into its row."""
        run = self._runs.get(str(event.row_key.value))
        if run is not None:
            self._describe(run)

    def _describe(self, run: RunDirectory) -> None:
        remark = self._remarks.get(run.run_id, "")
        text = user_path(run.path) + (f"\n{remark[0].upper()}{remark[1:]}" if remark else "")
        self.query_one("#chosen", Static).update(text)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the run."""
        event.stop()
        if (run := self._runs.get(str(event.row_key.value))) is not None:
            self.post_message(OpenRun(run))
