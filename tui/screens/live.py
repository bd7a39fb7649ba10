"""The live screen: shows a running or finished run from its journal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.containers import Container, Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.class_report import read_report
from tpu_console.engine.runs.events import RunFinished, RunStarted
from tpu_console.engine.runs.follower import Snapshot

from ..following.run_settings import read_settings
from ..following.watcher import RunWatcher, WatchUpdate
from ..terminal.attention import call_attention
from ..text.farewell import farewell_to
from ..text.hosts import hosts_of
from ..text.outcome import can_resume, has_classes, outcome_of
from ..widgets.chart_grid import ChartBar, ChartGrid
from ..widgets.closing import is_closing
from ..widgets.epoch_table import EpochTable
from ..widgets.log_pane import LogPane
from ..widgets.notice_bar import NoticeBar, notices_of
from ..widgets.outcome_box import OutcomeBox
from ..widgets.pane_tabs import PaneTabs
from ..widgets.replica_panel import ReplicaPanel
from ..widgets.run_header import RunHeader
from ..widgets.settings_pane import SamplesPane, SettingsPane
from ..widgets.system_pane import SystemPane
from ..widgets.waiting_pane import WaitingPane
from .details import details_dialog
from .dialogs import error_dialog
from .live_keys import BOTTOM_PANES, FIRST_NUMBER, KEYS, SAMPLES, STEERING, SYSTEM, after
from .live_steering import SteeredScreen
from .live_view import VIEWS
from .messages import CompareRuns, NewRunLike, ResumeRun
from .parts import KeysFooter
from .report import ReportScreen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.timer import Timer

    from tpu_console.engine.runs.events import Alerted
    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.runs.state import RunState

    from ..charts.raster import Marker
    from ..following.run_settings import Setting
    from .live_view import ChartView

_SPIN_S = 0.25
_TURNS_A_SECOND = 4


class LiveScreen(SteeredScreen):
    """Shows a run, whose files need not exist yet, and can steer it."""

    CSS_PATH = "live.tcss"
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = KEYS

    class Updated(Message):
        """The watcher has an update; only the newest of several pending ones is handled."""

        def __init__(self, update: WatchUpdate) -> None:
            super().__init__()
            self.update = update

        def can_replace(self, message: Message) -> bool:
            """Replace an earlier update."""
            return isinstance(message, LiveScreen.Updated)

    def __init__(self, run: RunDirectory, marker: Marker = "braille") -> None:
        super().__init__(run, WatchUpdate(Snapshot()), marker)
        self._watcher = RunWatcher(run, self._tell)
        self._clock: Timer | None = None
        self._turns = 0
        self._drawn_state: RunState | None = None
        self._heard: Alerted | None = None
        self._host = 0
        self._settings: Sequence[Setting] = ()
        self._has_read_files = False

    def compose(self) -> ComposeResult:
        """Lay the panes out; `live.tcss` says which are seen at which size."""
        yield RunHeader(self.run_directory, self._opened_at())
        yield OutcomeBox()
        yield NoticeBar()
        yield Static(id="filtered")
        with Horizontal(id="top"):
            yield WaitingPane()
            yield ChartGrid(self.dress)
            yield SettingsPane()
        with Horizontal(id="between"):
            yield PaneTabs(BOTTOM_PANES, FIRST_NUMBER)
            yield ChartBar()
            yield Input(placeholder="charts that match a regular expression", id="filter", compact=True)
        with Container(id="bottom"):
            with Container(id="left"):
                yield EpochTable()
            with Container(id="side"):
                yield ReplicaPanel()
                yield LogPane()
        yield KeysFooter()

    def _opened_at(self) -> float:
        try:
            return self.run_directory.config.stat().st_mtime
        except OSError:
            return time.time()

    def on_mount(self) -> None:
        """Begin to follow the run."""
        self._clock = self.set_interval(_SPIN_S, self._turn, name="live screen clock")
        # After the first frame: reading takes the processor from drawing.
        self.call_after_refresh(self._watcher.start)

    def follow_again(self) -> None:
        """Follow the run from the beginning of its journal, after it was resumed."""
        self._watcher.stop()
        self._watcher = RunWatcher(self.run_directory, self._tell)
        self.latest = WatchUpdate(Snapshot())
        self._is_stopping = False
        self.remove_class("-failed", "-curveless")
        self.refresh_bindings()
        self._watcher.start()

    def on_unmount(self) -> None:
        """Stop following it."""
        self._watcher.stop()

    @work(thread=True, name="read files")
    def _read_files(self, started: RunStarted) -> None:
        """Read the look of the charts, the run's settings and usual times outside the event loop."""
        from tpu_console.engine.runs.run_history import usual_phases

        view, settings = VIEWS.get(started.label), read_settings(self.run_directory)
        usual = usual_phases(started.config) if self.is_waiting else {}
        self.app.call_from_thread(self._take_files, started.label, view, settings, usual)

    def _take_files(
        self, preset: str, view: ChartView | None, settings: Sequence[Setting], usual: Mapping[str, float]
    ) -> None:
        if is_closing(self):
            return  # left while they were read
        self._settings = settings
        self.refresh_bindings()
        self.set_class(bool(settings), "-has-settings")
        self.query_one(SettingsPane).show(settings)
        self.query_one(WaitingPane).expect(usual)
        self.use_view(preset, view)

    def _tell(self, update: WatchUpdate) -> None:
        """Post the watcher's update; called from its thread."""
        self.post_message(self.Updated(update))

    @property
    def snapshot(self) -> Snapshot:
        """The latest snapshot of the run."""
        return self.latest.snapshot

    @property
    def farewell(self) -> str:
        """The lines printed about this run after the console has closed."""
        return farewell_to(self.run_directory, self.snapshot)

    def on_live_screen_updated(self, message: Updated) -> None:
        """Draw the news."""
        if is_closing(self):
            return
        was_over, was_paused = self.is_over, self.is_paused
        self.latest = message.update
        started = self.snapshot.state.started
        if started is not None and not self.latest.is_reading and not self._has_read_files:
            self._has_read_files = True
            self._read_files(started)
        with self.app.batch_update():
            self._draw()
        self._ring()
        self.report_answers()
        if self.is_paused != was_paused:
            self.refresh_bindings()
        if self.is_over and not was_over:
            self.refresh_bindings()
            self.set_class(not self.snapshot.state.train, "-curveless")
            if not isinstance(self.snapshot.state.end, RunFinished):
                # The outcome takes precedence over curves, above all over empty ones.
                self.add_class("-failed")
                self.bottom_pane = "log"  # if there is room for only one pane, the log explains the failure

    def _ring(self) -> None:
        """Call for attention if there is a new alert."""
        state = self.snapshot.state
        newest = state.alerts[-1] if state.alerts else None
        is_new, self._heard = newest != self._heard, newest
        if newest is None or self.latest.is_reading or not is_new:
            return
        if not self.is_over:
            call_attention(self.app, f"{self.run_directory.run_id}: {newest.text}")

    def _draw(self) -> None:
        """Pass every widget its part of the latest snapshot."""
        snapshot, state = self.snapshot, self.snapshot.state
        header = self.query_one(RunHeader)
        is_unreadable = bool(self.latest.trouble) and state.started is None
        header.show(
            snapshot, is_stopping=self._is_stopping, is_reading=self.latest.is_reading, is_unreadable=is_unreadable
        )
        outcome = None if self.latest.is_reading else outcome_of(self.run_directory, snapshot)
        self.query_one(OutcomeBox).show(outcome)
        self.query_one(NoticeBar).show(notices_of(self.latest, is_stopping=self._is_stopping, past_alerts=False))
        self.query_one(LogPane).show(snapshot.log)
        self.set_class(self.is_waiting, "-waiting")
        if self.is_waiting:
            self.query_one(WaitingPane).show(header.view)
        if state is not self._drawn_state:
            self._drawn_state = state
            self.query_one(EpochTable).show(state, header.view.pace)
            self.query_one(ReplicaPanel).show(state)
            self._draw_system(state)
            self._draw_samples(state)
            self.state = state
            self.grid.show(state)
            self.draw_bar()

    @property
    def is_waiting(self) -> bool:
        """Whether the first step is still to come."""
        return not self.is_over and not self.latest.is_reading and self.snapshot.state.progress is None

    def _draw_samples(self, state: RunState) -> None:
        """Show translations; their pane comes with the first ones."""
        if state.translated is None:
            return
        if SAMPLES not in self._bottom_panes:
            side = self.query_one("#side")
            side.mount(self._new_pane(SamplesPane()), before="#log")
            side.add_class("-samples")
        self.query_one(SamplesPane).show(state.translated)

    def _draw_system(self, state: RunState) -> None:
        """Show what the hosts do; the pane comes with their first figures."""
        if not state.hosts and state.input is None:
            return
        if SYSTEM not in self._bottom_panes:
            pane = SystemPane()
            pane.along(self.axis, self.window)
            self.query_one("#left").mount(self._new_pane(pane))
        self.query_one(SystemPane).show(state)

    def _turn(self) -> None:
        """Move what moves by itself: a spinner four times a second, clocks once."""
        header = self.query_one(RunHeader)
        self._turns += 1
        if header.view.is_moving or (self._turns % _TURNS_A_SECOND == 0 and not self.is_over):
            header.turn()
            if self.is_waiting:
                self.query_one(WaitingPane).show(header.view)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer stopping until the run is over, and class scores and a similar run after that."""
        if (action in STEERING and self.is_over) or (action == "again" and not (self.is_over and self._settings)):
            return False
        if action in {"pause", "go_on"} and self.is_paused != (action == "go_on"):
            return False
        if action == "compare" and not self.is_over:
            return False
        if action == "classes" and not has_classes(self.snapshot.state):
            return False
        if action == "resume" and not (self.is_over and can_resume(self.run_directory, self.snapshot)):
            return False
        return super().check_action(action, parameters)

    def action_host(self) -> None:
        """Show the next of several hosts in the panes that show one."""
        numbers = tuple(hosts_of(self.snapshot.state))
        if len(numbers) < 2:
            return
        self._host = after(numbers, self._host) if self._host in numbers else numbers[0]
        for pane in self.query(ReplicaPanel):
            pane.choose(self._host)
        for system in self.query(SystemPane):
            system.choose(self._host)

    def action_details(self) -> None:
        """Show the details of the run."""
        self.app.push_screen(details_dialog(self.run_directory, self.snapshot, notices_of(self.latest), self._settings))

    def action_classes(self) -> None:
        """Show the class report."""
        try:
            report = read_report(self.run_directory)
            if report is None:
                raise ConsoleError(f"The class report is missing: {self.run_directory.report.name}.")
        except ConsoleError as error:
            self.app.push_screen(error_dialog(error))
            return
        self.app.push_screen(ReportScreen(self.run_directory.run_id, report))

    def action_again(self) -> None:
        """Go to the form, filled in as this run was."""
        self.post_message(NewRunLike(self.run_directory))

    @work(thread=True, exclusive=True, group="compare", name="find similar runs")
    def action_compare(self) -> None:
        """Compare the run with others of its preset."""
        from ..following.comparison import similar_runs

        runs = similar_runs(self.run_directory)
        if len(runs) > 1:
            self.post_message(CompareRuns(runs))
        else:
            self.notify("There is no other run of this preset to compare with.", markup=False)

    def action_resume(self) -> None:
        """Continue the run from its newest checkpoint."""
        self.post_message(ResumeRun(self.run_directory))
