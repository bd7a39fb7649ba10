"""The runs screen: past and running runs, the newest first, to open one."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static
from textual.worker import get_current_worker

from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.engine.storage.paths import runs_folder, user_path

from .messages import OpenRun
from .parts import HELP, QUIT, Title, back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from tpu_console.engine.runs.liveness import HeartbeatWatch

    from ..following.overview import Overview

_LOOK_S = 3.0
"""Seconds between two looks at the heartbeats of running runs."""

# Key, title and width: fixed, so that rows that are still being read do not shift the others.
_COLUMNS = (
    ("state", "State", 16),
    ("preset", "Preset", 19),
    ("epochs", "Epochs", 7),
    ("best", "Best", 19),
    ("took", "Took", 8),
    ("run", "Run", 40),
)

_SHOW_S = 0.1


class RunTable(DataTable[Content]):
    """The table of runs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Open", tooltip="Open the run."),
    ]


class RunsScreen(Screen[None]):
    """A table of runs; enter opens one, which posts `OpenRun` to the app."""

    CSS = """
    RunsScreen {
        background: $background;

        #runs {
            height: 1fr; background: $background;
            scrollbar-background: $background; scrollbar-color: $foreground 25%;
            scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0;
        }
        #runs > .datatable--header { background: $background; color: $text-muted; text-style: bold; }
        #runs > .datatable--odd-row, #runs > .datatable--even-row { background: $background; }
        #chosen { height: auto; padding: 0 1; color: $text-muted; }
    }
    """
    AUTO_FOCUS = "DataTable"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r,f5", "refresh_runs", "Reload", tooltip="Reload the list."),
        back(),
        HELP,
        QUIT,
    ]

    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[str, RunDirectory] = {}
        self._remarks: dict[str, str] = {}  # what there is to say on a run's state beside its row
        self._live: dict[str, tuple[HeartbeatWatch, Overview]] = {}

    def compose(self) -> ComposeResult:
        """Lay out the title, the table and the line on the chosen run."""
        yield Title("runs, newest first")
        table = RunTable(cursor_type="row", id="runs")
        for key, title, width in _COLUMNS:
            table.add_column(title, key=key, width=width)
        yield table
        yield Static("", id="chosen", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Look at the heartbeats of running runs now and then."""
        self.set_interval(_LOOK_S, self._turn, name="heartbeats of running runs")

    def _turn(self) -> None:
        if self._live:
            self._look_again()

    def on_screen_resume(self) -> None:
        """Read the runs, also on coming back from one."""
        self.action_refresh_runs()

    def action_refresh_runs(self) -> None:
        """Read the runs again."""
        self._read_runs()

    @work(thread=True, exclusive=True, name="read runs")
    def _read_runs(self) -> None:
        """List the runs at once, then read one after the other: a long journal takes its time."""
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
        """Show runs at a glance; remember those that may change."""
        from ..widgets.run_cells import run_cells

        for watch, overview in seen:
            run = watch.run
            if overview.status.is_live or not overview.is_settled:
                self._live[run.run_id] = (watch, overview)
            else:
                self._live.pop(run.run_id, None)
            self._remarks[run.run_id] = overview.remark
            self._fill(run, run_cells(overview))
            if self.is_attached and run.run_id == self._chosen:
                self._describe(run)

    @work(thread=True, exclusive=True, group="heartbeats", name="look at heartbeats")
    def _look_again(self) -> None:
        """Look at the heartbeats of running runs, and read those again whose answer changed."""
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
            return  # left while the folder was being read
        table = self._table
        chosen = self._chosen
        self._runs = {run.run_id: run for run in runs}
        if list(self._runs) != [str(row.value) for row in table.rows]:
            table.clear()
            for name in self._runs:
                reading = Content.styled("reading …", "$foreground 60%")
                table.add_row(reading, *[Content("")] * (len(_COLUMNS) - 2), Content(name), key=name)
            if chosen in self._runs:
                table.move_cursor(row=list(self._runs).index(chosen))
        if not runs:
            folder = user_path(runs_folder())
            self.query_one("#chosen", Static).update(f"No runs in {folder} yet. Press escape to go back and start one.")

    def _fill(self, run: RunDirectory, cells: dict[str, Content]) -> None:
        if self.is_attached and run.run_id in self._table.rows:
            for column, cell in cells.items():
                self._table.update_cell(run.run_id, column, cell)

    @property
    def _table(self) -> RunTable:
        return self.query_one(RunTable)

    @property
    def _chosen(self) -> str:
        """The name of the run under the cursor; empty when there is none."""
        table = self._table
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

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
        """Open the run in place of this screen."""
        event.stop()
        if (run := self._runs.get(str(event.row_key.value))) is not None:
            # To the app: this screen is gone when the message is handled.
            self.app.post_message(OpenRun(run))
            self.dismiss()
