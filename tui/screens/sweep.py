"""The screen of a sweep, with its runs, bars and conclusion, and the list of sweeps."""

import shlex
import subprocess
from functools import partial

from textual import on, work
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import DataTable, Static
from textual.worker import get_current_worker

from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.errors import ConfigError, ConsoleError, Problem
from tpu_console.engine.machine.devices import detect_hardware
from tpu_console.engine.sweeps.cells import parse_axes
from tpu_console.engine.sweeps.folder import Definition, Sweep, create_sweep, list_sweeps, start_driver
from tpu_console.presets.catalog import find_preset

from ..following import sweep as views
from ..following.comparison import ComparedRun
from ..text.keys import bind
from ..text.plan_text import sweep_plan_lines
from ..widgets.basics import ScrollingText, call_back
from ..widgets.record_table import RecordTable
from .parts import BACK, HELP, QUIT, Confirmation, KeysFooter, Title, ValueDialog, ask_user, console_of, show_error
from .run_actions import export

_LOOK_S = 1.0
_NO_RESULTS = {
    True: "Speeds and the best result appear here as runs finish. Enter opens a run that has started. "
    "You can leave: the sweep goes on.",
    False: "Press R to train its runs, one after another.",
}
"""What is said before there are results, by whether the sweep is running."""


class SweepScreen(Screen[None]):
    """Watches a sweep; enter opens the run under the cursor."""

    CSS = """
    SweepScreen {
        #cells { height: auto; max-height: 60%; }
        #results { height: 1fr; padding: 1 1 0 1; }
        &.-short #results { padding: 0 1; }
        #results Static { width: 1fr; }
    }
    """
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall")]
    AUTO_FOCUS = "RecordTable"
    BINDINGS = [
        bind("stop", about="Stop the sweep after its current run (asks first)."),
        bind("resume", "retry", about="Go on with the sweep, or train a run again (asks first)."),
        bind("export", about="Write the best run as code or in another format."),
        HELP,
        BACK,
        QUIT,
    ]

    _reader: views.SweepReader | None = None
    _view: views.SweepView | None = None
    _best: ComparedRun | None = None
    _process: subprocess.Popen[bytes] | None = None
    _is_reading = False
    _problem = ""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__()
        self._sweep = sweep

    def compose(self) -> ComposeResult:
        yield Title(f"sweep {self._sweep.name}")
        yield RecordTable((), "cells")
        yield ScrollingText(Static("", markup=False), id="results")
        yield KeysFooter()

    def on_mount(self) -> None:
        self.call_after_refresh(self._look)
        self.set_interval(_LOOK_S, self._look, name="look at the sweep")

    def _look(self) -> None:
        if self._process is not None:
            self._process.poll()  # leaves no zombie
        if self.is_current and not self._is_reading:
            self._is_reading = True
            self._read()

    @work(thread=True, group="read the sweep")
    def _read(self) -> None:
        try:
            self._reader = self._reader or views.SweepReader(self._sweep)
            view = self._reader.read()
        except (ConsoleError, OSError) as error:
            if str(error) != self._problem:  # shown once: a network disk may come back
                self._problem = str(error)
                call_back(self, partial(show_error, self.app, error, what="The sweep cannot be read."))
        else:
            self._problem = ""
            call_back(self, self._show, view)
        finally:
            self._is_reading = False

    def _show(self, view: views.SweepView) -> None:
        rows = view.rows()
        self._view, self._best = view, views.winner(view, rows)
        self.query_one(RecordTable).show(views.cell_rows(view, rows), views.cell_columns(view, self._best))
        self.refresh_bindings()
        done = f"{view.done} of {len(view.cells)} done"
        self.query_one(Title).show(f"sweep {self._sweep.name} · {view.state} · {done}")
        width = max(20, self.size.width - 4)
        results = "\n".join([*views.notes(view, rows), "", *views.bars(view, rows, width)]).strip("\n")
        self.query_one("#results Static", Static).update(results or _NO_RESULTS[view.is_driven])

    @property
    def _chosen(self) -> views.SeenCell | None:
        row: views.Row | None = self.query_one(RecordTable).record
        return None if row is None else row.cells[0]

    @on(DataTable.RowSelected)
    def _open(self) -> None:
        cell = self._chosen
        if cell is not None and cell.run is not None:
            console_of(self).open_run(cell.run.overview.run)
        elif cell is not None:
            self.notify(cell.refused or "This run has not started yet.", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self._view
        match action:
            case "stop":
                return view is not None and view.is_driven
            case "retry":
                return view is not None and not (view.definition.search if view.is_driven else view.is_complete)
            case "export":
                return self._best is not None
        return True

    async def action_dismiss(self, result: None = None) -> None:
        if len(self.app.screen_stack) > 1:
            await super().action_dismiss(result)

    def action_stop(self) -> None:
        """Ask, then stop the sweep after its run; if that was asked for, the run too."""
        if self._sweep.is_stopping:
            what, explanation = "stop-run", "It is saved, and R goes on from there."
            question = Confirmation("Stop the current run too?", explanation, yes="Stop it", no="Let it finish")
        else:
            what, explanation = "stop", "To stop that run too, press K again. Press R to go on with the sweep later."
            question = Confirmation("Stop the sweep after its current run?", explanation, yes="Stop", no="Go on")
        ask_user(self.app, question, lambda _: self._sweep.request(what))

    def action_retry(self) -> None:
        """Ask, then train the run under the cursor again; if the sweep does not run, go on with it."""
        cell, view = self._chosen, self._view
        if view is None or cell is None:
            return
        number = cell.cell.number
        if not view.is_driven:
            question = Confirmation("Go on with the sweep?", "It trains what is missing.", yes="Go on", no="Leave it")
            ask_user(self.app, question, lambda _: self.go_on())
        elif cell.status not in views.LEFT:
            self.notify("Only runs that stopped or failed can be tried again.")
        else:
            what, yes = f"Train run {number} again?", "Train again"
            question = Confirmation(what, "Its turn comes last.", yes=yes, no="Leave it")
            ask_user(self.app, question, lambda _: self._sweep.request(f"retry-{number:04}"))

    @work(thread=True, exclusive=True, group="go on")
    def go_on(self, trust: bool = False) -> None:
        """Start the process that trains what is missing of the sweep."""
        try:
            self._process = start_driver(self._sweep.checked(trust=trust))
            self.app.call_from_thread(self.notify, "The sweep is running.")
        except (ConsoleError, OSError) as error:
            show = partial(show_error, what="The sweep cannot start.")
            self.app.call_from_thread(show, self.app, error, partial(self.go_on, trust=True))

    def action_export(self) -> None:
        if self._best is not None:
            export(self.app, self._best.overview.run)


class SweepsScreen(Screen[None]):
    """A table of sweeps; enter opens one."""

    CSS = """
    SweepsScreen {
        #sweeps { height: 1fr; }
        #chosen { height: auto; max-height: 8; padding: 0 1; color: $text-muted; }
    }
    """
    AUTO_FOCUS = "RecordTable"
    BINDINGS = [bind("new", about="Set up a sweep."), HELP, BACK, QUIT]

    def __init__(self) -> None:
        super().__init__()
        self._readers: dict[str, views.SweepReader] = {}
        self._known: dict[str, views.ListedSweep] = {}

    def compose(self) -> ComposeResult:
        yield Title("sweeps, newest first")
        yield RecordTable(views.LIST_COLUMNS, "sweeps")
        yield Static("", id="chosen", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        self._look()
        self.set_interval(_LOOK_S, lambda: self._look() if self.is_current else None, name="look at sweeps")

    @work(thread=True, exclusive=True, group="read sweeps")
    def _look(self) -> None:
        rows: dict[str, views.ListedSweep] = {}
        for sweep in list_sweeps():
            if get_current_worker().is_cancelled:
                return
            view = self._known[sweep.name].view if sweep.name in self._known else None
            if view is None or view.is_driven or sweep.is_driven or any(cell.is_running for cell in view.cells):
                self._known[sweep.name] = views.listed(sweep, self._readers)
            rows[sweep.name] = self._known[sweep.name]
        call_back(self, self._show, rows)

    def _show(self, rows: dict[str, views.ListedSweep]) -> None:
        self.query_one(RecordTable).show(rows)
        self._describe()

    @on(DataTable.RowHighlighted)
    def _describe(self) -> None:
        text, one = f"{views.NO_SWEEP} Press u to start one.", self.query_one(RecordTable).record
        if one is not None:
            said = views.conclusion(one.view) if one.view is not None else ""
            text = "\n".join(filter(None, [one.problem or f"{one.over} · {one.runs}", said]))
        self.query_one("#chosen", Static).update(text)

    def action_new(self) -> None:
        text = "A preset, and the values of some settings. Every combination is trained, one run after another."
        example = "digits-cnn batch_size=16,32 epochs=2"
        ask_user(self.app, ValueDialog("New sweep", text, example, _problem), self._plan)

    @work(thread=True, exclusive=True, group="plan a sweep")
    def _plan(self, typed: str) -> None:
        try:
            definition = typed_sweep(typed)
            plan = "\n".join(sweep_plan_lines(definition, detect_hardware()))
        except ConsoleError as error:
            self.app.call_from_thread(show_error, self.app, error)
            return
        question = Confirmation("Start the sweep?", plan, yes="Start", no="Don't")
        self.app.call_from_thread(ask_user, self.app, question, lambda _: self._start(definition))

    def _start(self, definition: Definition) -> None:
        try:
            sweep = create_sweep(definition)
        except (ConsoleError, OSError) as error:
            show_error(self.app, error, what="The sweep cannot be created.")
        else:
            self.app.push_screen(screen := SweepScreen(sweep))
            screen.go_on()

    @on(DataTable.RowSelected)
    def _open(self) -> None:
        if (one := self.query_one(RecordTable).record) is not None and one.view is not None:
            self.app.push_screen(SweepScreen(one.sweep))


def typed_sweep(text: str) -> Definition:
    """Return the sweep of a line such as ``digits-cnn batch_size=16,32 epochs=2``, or raise `ConsoleError`."""
    try:
        preset, *words = shlex.split(text)
    except ValueError as error:
        raise ConfigError([Problem("sweep", "starts with the name of a preset")]) from error
    axes = dict(zip(words, parse_axes(words) if words else [], strict=True))
    over = tuple(word for word, axis in axes.items() if len(axis.values) != 1)
    if not over:
        raise ConfigError([Problem("sweep", "needs a setting with several values, such as batch_size=16,32")])
    changes = [(axis.key, axis.values[0]) for word, axis in axes.items() if word not in over]
    return Definition(config=with_changes(find_preset(preset).config, changes), over=over)


def _problem(typed: str) -> str:
    """Say what is wrong with a line that should be a sweep; empty if nothing is."""
    try:
        typed_sweep(typed)
    except ConsoleError as error:
        return str(error)
    return ""
