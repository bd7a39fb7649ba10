"""The live screen: shows a running or finished run from its journal."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from textual import work
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.events import Resize
from textual.message import Message
from textual.widgets import Static

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.class_report import read_report
from tpu_console.engine.runs.events import Alerted, Phase, RunFinished, RunStarted
from tpu_console.engine.runs.follower import Snapshot
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.storage.paths import user_path

from ..charts.chart import MetricChart
from ..charts.frame import marks_of
from ..charts.scene import Marker
from ..compat import write_control
from ..following.follow import RunWatcher
from ..following.overview import Setting, read_settings, read_traced_before
from ..terminal.display import attention
from ..text import outcome
from ..text.hosts import hosts_of, topology_text
from ..text.keys import bind
from ..text.numbers import duration
from ..text.run_lines import found, mirror_text, settled, trained_by
from ..widgets.basics import PaneTabs, call_back, is_closing, mark_pane
from ..widgets.chart_grid import ChartGrid, curves_of
from ..widgets.host_panes import ReplicaPanel, SystemPane
from ..widgets.live_panes import LEFT, PANES, RIGHT, ProfilePane, SettingsPane, WaitingPane
from ..widgets.run_header import NoticeBar, OutcomeBox, RunHeader, notices_of
from .live_charts import CHART_KEYS, CURSOR_KEYS, VIEWS, ChartedScreen
from .parts import HELP, KeysFooter, TextDialog, after, console_of, in_blocks, show_error
from .run_actions import RunControls, export, predict

_SPIN_S = 0.25
_CLOCK_S = 0.9
_DETAIL = 21  # cells of a label in the details
_TINY = 16  # with fewer rows, a chart needs those of the panes below it


class LiveScreen(ChartedScreen):
    """Shows a run, whose files need not exist yet, and can steer it."""

    CSS_PATH = "live.tcss"
    AUTO_FOCUS = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide"), (170, "-roomy")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-medium"), (42, "-tall")]
    BINDINGS = [
        bind("stop", "steer('stop')"),
        bind("pause", "steer('pause')"),
        bind("pause", "steer('continue')", "Continue"),
        bind("checkpoint", "steer('checkpoint')"),
        bind("epochs", "steer('epochs')"),
        bind("rate", "steer('learning_rate')"),
        bind("profile", "steer('profile')"),
        *map(bind, ("resume", "predict", "matrix", "compare")),
        HELP,  # with the keys before it, all that a narrow footer has room for
        *CURSOR_KEYS,
        *map(bind, ("pane", "zoom")),
        bind("info", "details"),
        bind("detach", "app.leave"),
        bind("again"),
        bind("new", "app.new_run"),
        *CHART_KEYS,
        bind("export"),
        *(bind(f"number {pane.key}", f"zoom('{pane.name}')") for pane in PANES),
        bind("host", show=False),
        bind("back", show=False),
    ]
    PANES = PANES
    """What the help explains besides keys and figures."""

    @dataclass
    class Updated(Message):
        """The watcher has a snapshot; only the newest of several pending ones is handled."""

        snapshot: Snapshot

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LiveScreen.Updated)

    def __init__(self, run: RunDirectory, marker: Marker = "braille") -> None:
        super().__init__(marker)
        self.run_directory = run
        self.snapshot = Snapshot()  # the latest one
        self.controls = RunControls(self)
        self._heard: tuple[Alerted, ...] = ()
        self._watcher = self._new_watcher()
        self._host = 0
        self._settings: Sequence[Setting] = ()
        self._has_read_files = False
        self._drawn = RunState()

    def compose(self) -> ComposeResult:
        yield RunHeader(self.run_directory)
        yield OutcomeBox()
        yield NoticeBar()
        yield Static(id="filtered")
        with Horizontal(id="top"):
            yield WaitingPane()
            yield ChartGrid(self.apply_look)
            yield SettingsPane("settings")
        yield from self.bar({pane.name: pane.label for pane in PANES if pane.has_data(self._drawn)})
        with Container(id="bottom"):
            for side, panes in (("left", LEFT), ("side", RIGHT)):
                with Container(id=side):
                    for pane in panes:
                        widget = pane.make(pane.name)
                        widget.set_class(not pane.has_data(self._drawn), "-empty")
                        yield widget
        yield KeysFooter()

    def on_mount(self) -> None:
        self.set_interval(_SPIN_S, self._turn, name="live screen clock")
        # After the first frame: reading takes the processor from drawing.
        self.call_after_refresh(self._watcher.start)

    def _new_watcher(self) -> RunWatcher:
        return RunWatcher(self.run_directory, lambda snapshot: self.post_message(self.Updated(snapshot)))

    def follow_again(self) -> None:
        """Follow the run from the beginning of its journal, after it was resumed."""
        self._watcher.stop()
        self._watcher = self._new_watcher()
        self.snapshot = Snapshot()
        self.controls.has_asked_to_stop = False
        self.remove_class("-failed", "-curveless")
        self.refresh_bindings()
        self._watcher.start()

    def on_unmount(self) -> None:
        self._watcher.stop()

    @work(thread=True, name="read files")
    def _read_files(self, started: RunStarted) -> None:
        """Read the look of the charts and the run's settings outside the event loop."""
        view, settings = VIEWS.get(started.label), read_settings(self.run_directory)
        before = read_traced_before(self.run_directory, started)

        def take() -> None:
            self._settings = settings
            self.refresh_bindings()
            self.set_class(bool(settings), "-has-settings")
            self.query_one(SettingsPane).show(settings)
            self.query_one(ProfilePane).compare(before)
            self.use_view(started.label, view)

        call_back(self, take)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.snapshot.is_over and not self.snapshot.is_reading

    @property
    def is_paused(self) -> bool:
        return self.snapshot.state.phase == Phase.PAUSED

    @property
    def farewell(self) -> str:
        """The lines printed about this run after the console has closed."""
        return outcome.farewell_to(self.run_directory, self.snapshot)

    async def on_live_screen_updated(self, message: Updated) -> None:
        if is_closing(self):
            return
        was_over, was_paused, heard = self.is_over, self.is_paused, self._heard
        self.snapshot, state, is_reading = message.snapshot, message.snapshot.state, message.snapshot.is_reading
        self._heard = state.alerts
        if state.started is not None and not is_reading and not self._has_read_files:
            self._has_read_files = True
            self._read_files(state.started)
        with self.app.batch_update():
            self.draw()
            self.controls.report_answers()
            if state.alerts and state.alerts[-1] not in heard and not is_reading and not self.is_over:
                write_control(self.app, attention(f"{self.run_directory.run_id}: {state.alerts[-1].text}"))
            if self.is_paused != was_paused or self.is_over != was_over:
                self.refresh_bindings()
            if self.is_over and not was_over:
                # Make room for how the run ended: above all for a failure, which the log explains.
                self.set_class(not state.train, "-curveless")
                if not isinstance(state.end, RunFinished):
                    self.add_class("-failed")
                    self.query_one(PaneTabs).current = "log"
            await asyncio.sleep(0)  # until every widget has asked to be painted: all show the news in the same frame

    def draw(self) -> None:
        """Pass every widget its part of the latest snapshot."""
        snapshot, state = self.snapshot, self.snapshot.state
        header, is_stopping = self.query_one(RunHeader), self.controls.has_asked_to_stop
        header.show(snapshot, is_stopping=is_stopping)
        ending = None if snapshot.is_reading else outcome.outcome_of(self.run_directory, snapshot)
        self.query_one(OutcomeBox).show(ending)
        self.query_one(NoticeBar).show(notices_of(snapshot, is_stopping=is_stopping, past_alerts=False))
        self.set_class(self.is_waiting, "-waiting")
        if self.is_waiting:
            self.query_one(WaitingPane).show(header.view)
        for pane in PANES:
            if pane.has_data(state):
                widget = self.query_one(f"#{pane.name}")
                widget.remove_class("-empty")
                pane.show(widget, header.view)
        panes = self.panes
        self.query_one(PaneTabs).panes = {pane.name: pane.label for pane in PANES if pane.name in panes}
        self.query_one("#side").set_class("samples" in panes, "-samples")
        if state is not self._drawn:
            self._drawn, self.curves = state, curves_of(state)
            self.grid.show(self.curves, [*marks_of(state)])
            self.draw_bar()

    @property
    def panes(self) -> tuple[str, ...]:
        """The lower panes that have something to show, by the order of their keys."""
        return tuple(pane.name for pane in PANES if not self.query_one(f"#{pane.name}").has_class("-empty"))

    @property
    def is_waiting(self) -> bool:
        """Whether the first step is still to come."""
        return not self.is_over and not self.snapshot.is_reading and self.snapshot.state.progress is None

    def _turn(self) -> None:
        """Move what moves by itself: a spinner four times a second, clocks once unless a snapshot was drawn since."""
        header = self.query_one(RunHeader)
        if header.view.is_moving or (time.time() - header.view.now >= _CLOCK_S and not self.is_over):
            header.turn()
            if self.is_waiting:
                self.query_one(WaitingPane).show(header.view)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        run = self.run_directory
        match action:
            case "steer":
                pauses = parameters[0] in {"pause", "continue"}
                return not self.is_over and (not pauses or self.is_paused == (parameters[0] == "continue"))
            case "again":
                return self.is_over and bool(self._settings)
            case "compare":
                return self.is_over
            case "matrix":
                return outcome.has_classes(self.snapshot.state)
            case "predict":
                return self.is_over and outcome.has_model(run)
            case "export":
                return self.is_over and run.config.exists()
            case "resume":
                return self.is_over and outcome.can_resume(run, self.snapshot)
        return super().check_action(action, parameters)

    def action_steer(self, what: str) -> None:
        self.controls.steer(what)

    def action_host(self) -> None:
        numbers = tuple(hosts_of(self.snapshot.state))
        if len(numbers) > 1:
            self._host = after(numbers, self._host) if self._host in numbers else numbers[0]
            self.query_one(ReplicaPanel).choose(self._host)
            self.query_one(SystemPane).choose(self._host)

    def action_details(self) -> None:
        snapshot = self.snapshot
        self.app.push_screen(details_dialog(self.run_directory, snapshot, notices_of(snapshot), self._settings))

    def action_matrix(self) -> None:
        from .results import ReportScreen

        try:
            report = read_report(self.run_directory)
            if report is None:
                raise ConsoleError(f"The class report is missing: {self.run_directory.report.name}.")
            self.app.push_screen(ReportScreen(self.run_directory.run_id, report))
        except ConsoleError as error:
            show_error(self.app, error)

    def action_again(self) -> None:
        console_of(self).new_run_like(self.run_directory)

    def on_profile_pane_change_chosen(self, message: ProfilePane.ChangeChosen) -> None:
        """Go to the form, filled in as this run was but for what its profile says to change."""
        changes = (*message.changes, f"profile.before={self.run_directory.run_id}")
        console_of(self).new_run_like(self.run_directory, changes)

    @work(thread=True, exclusive=True, group="compare", name="find similar runs")
    def action_compare(self) -> None:
        """Compare the run with those that are selected in the list of runs, or else with others of its preset."""
        from ..following.comparison import similar_runs
        from .runs import RunsScreen

        lists = [screen for screen in self.app.screen_stack if isinstance(screen, RunsScreen)]
        selected = [run for screen in lists for run in screen.selected if run != self.run_directory]
        runs = [self.run_directory, *selected] if selected else similar_runs(self.run_directory)
        call_back(self, console_of(self).compare_runs, runs)

    def action_predict(self) -> None:
        predict(self.app, self.run_directory)

    def action_export(self) -> None:
        export(self.app, self.run_directory)

    def action_resume(self) -> None:
        console_of(self).resume_run(self.run_directory, is_finished=outcome.is_finished(self.snapshot.state))

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.height < _TINY, "-tiny")

    def watch_zoomed(self, name: str) -> None:
        super().watch_zoomed(name)
        self.set_class(name == "charts", "-one-chart")
        mark_pane(self, name, "-zoom")

    def action_pane(self) -> None:
        tabs, panes = self.query_one(PaneTabs), self.panes
        if self.zoomed:
            name = after(("charts", *panes), self.zoomed)
            if name == "charts" and self.grid.title_at(1):
                self.action_zoom_chart(1)
            else:
                self.action_zoom(name if name != "charts" else panes[0])
            return
        here = str(self.focused.id) if self.focused is not None else ""
        shown = tabs.shown
        if len(shown) == 1:
            tabs.choose(after(panes, here if here in panes else tabs.current))
        elif here in shown:
            tabs.choose(after(shown, here))
        else:
            tabs.choose(tabs.current if tabs.current in shown else shown[0])

    def action_zoom(self, name: str = "") -> None:
        """Zoom a pane, the focused one by default; the same one again goes back."""
        if not name and not self.zoomed and (self.focused is None or isinstance(self.focused, MetricChart)):
            self.action_zoom_chart()
            return
        name = name or self.zoomed or str(self.focused.id if self.focused is not None else "")
        if name != "charts" and name not in self.panes:
            return
        self.zoomed = "" if self.zoomed == name else name
        if self.zoomed in self.panes:
            self.query_one(PaneTabs).choose(self.zoomed)

    def leave_zoom(self) -> bool:
        """Show all panes again and give charts their room back; return whether a pane was zoomed or entered."""
        was_entered = self.focused is not None and self.focused.id in self.panes
        if was_entered:
            self.set_focus(None)
        return super().leave_zoom() or was_entered


def details_dialog(
    run: RunDirectory, snapshot: Snapshot, notices: Sequence[str], settings: Sequence[Setting]
) -> TextDialog:
    """Make the dialog with the details of a run: the most urgent notices and the changed settings come first."""
    state, ready, kept, fit = snapshot.state, snapshot.state.accelerator, snapshot.state.checkpoint, snapshot.state.fit
    same = [(one.key, one.text) for one in settings if one.preset is None]
    changed = [(one.key, one.text) for one in settings if one.preset is not None]
    facts = {
        "run": run.run_id,
        "trained by": trained_by(state.started) if state.started is not None else "",
        "accelerator": found(Phase.CONNECTING, state),
        "backend": topology_text(ready) if ready is not None else "",
        "data": found(Phase.LOADING, state),
        "model": found(Phase.BUILDING, state),
        "training": settled(fit) if fit is not None else "",
        "monitored metric": state.monitor if fit is not None else "",
        "best model": f"{kept.path} (epoch {kept.epoch}, {kept.monitor} {kept.value:.4f})" if kept is not None else "",
        "mirror": f"{state.mirror.place}: {mirror_text(state)}" if state.mirror is not None else "",
    }
    parts = {
        "Notices": [("", notice) for notice in notices],
        "Changed from the preset": changed,
        "What next": outcome.next_commands(run, state) if snapshot.is_over else [],
        "Run": [(label, text) for label, text in facts.items() if text],
        "Phases": [(name, duration(s)) for name, s in state.phase_s.items()],
        "Files": [("folder", user_path(run.path)), *outcome.output_pairs(run)],
        "As in the preset" if changed else "Settings": same,
    }
    return TextDialog("Details", lambda room: in_blocks(parts, room, _DETAIL, "dim"))
