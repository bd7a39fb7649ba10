"""The Textual app: opens a run or the form for a new one, and starts runs."""

from __future__ import annotations

import asyncio
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App, ScreenStackError, SystemCommand
from textual.command import CommandPalette

from tpu_console.engine.errors import ConsoleError

from .compat import QuietApp, command_palette
from .jobs.run_process import HostedRun, InProcessRun, Prewarmer, launch, launch_resumed
from .screens.parts import Confirmation, ask_user, help_dialog, show_error
from .terminal.display import DARK, LIGHT, AsciiOnly, keep_theme, kept_theme
from .text.keys import MOVING, bind
from .text.outcome import goes_on

if TYPE_CHECKING:
    from textual.filter import LineFilter
    from textual.screen import Screen

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.machine.devices import Hardware
    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.sweeps.folder import Sweep

    from .charts.scene import Marker
    from .screens.live import LiveScreen
    from .screens.results import CompareScreen
    from .screens.setup import SetupScreen

_TEND_S = 1.0
_FIRST_MODE = "first"
_LONGEST_EXIT_S = 5.0
_LONGEST_OPENING_S = 1.0


class ConsoleApp(QuietApp):
    """The whole console. Screens are imported when they are shown, so that the first frame appears quickly.

    It opens with the form for a new run, or with a run, a comparison by a metric (by default one that all have), or a
    sweep. With `in_process`, runs train in this process instead of in one that outlives the console. The default theme
    is the one that was chosen last.
    """

    TITLE = "tpu-console"
    # A custom mode makes the first screen the base of the stack, with its style sheet: no empty frame.
    DEFAULT_MODE = _FIRST_MODE
    # Messages cover the keys for a moment, and above them only what their text needs: none may lose its last words.
    CSS = """
    ToastRack { margin-bottom: 0; max-height: 6; overflow-y: hidden; }
    Toast { width: auto; max-width: 100%; padding: 0 1; margin: 0; }
    """
    BINDINGS = [
        bind("quit", "leave", show=False, priority=True),
        bind("suspend", "suspend_process", priority=True),
        bind("ask to quit", "ask_to_leave"),  # not with priority: a text field takes the letter
    ]

    def __init__(
        self,
        *,
        run: RunDirectory | None = None,
        compared: Sequence[RunDirectory] = (),
        metric: str = "",
        sweep: Sweep | None = None,
        preset_files: Sequence[Path] = (),
        in_process: bool = False,
        marker: str = "braille",
        theme_name: str | None = None,
        launcher: Callable[..., HostedRun | InProcessRun] | None = None,
        prewarmer: Prewarmer | None = None,
    ) -> None:
        super().__init__()
        self.farewell = ""  # what to print on the terminal after the console has closed
        self.failure: BaseException | None = None  # the bug that closed the console, if one did
        self._preset_files = tuple(preset_files)
        self._in_process = in_process
        self._marker: Marker = "ascii" if marker == "ascii" else "block" if marker == "block" else "braille"
        self._ascii_only = AsciiOnly()
        self._launcher = launcher
        self._form: SetupScreen | None = None
        self._hosted: list[HostedRun | InProcessRun] = []
        self._is_launching = False
        self._prewarmer = prewarmer or Prewarmer()
        self._keyed: Screen[Any] | None = None  # the screen that got the last key
        self.add_mode(_FIRST_MODE, lambda: self._first_screen(run, compared, metric, sweep))
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        # Assigning it would parse all style sheets twice more before the first frame.
        wanted = (theme_name, kept_theme(), DARK.name)
        self.set_reactive(App.theme, next(name for name in wanted if name in self.available_themes))
        self.stylesheet.set_variables(self.get_css_variables())
        self.add_class(f"-theme-{self.theme}", "-dark-mode" if self.current_theme.dark else "-light-mode", update=False)

    async def on_event(self, event: events.Event) -> None:
        """Pass a key on when the screen is ready: of two keys that arrive together, the first may have opened it."""
        if isinstance(event, events.Key) and self.screen_stack and self.screen is not self._keyed:
            self._keyed, there = self.screen, asyncio.Event()
            if self.screen.call_later(there.set):  # after all that was sent to it when it was opened
                with suppress(TimeoutError):
                    await asyncio.wait_for(there.wait(), _LONGEST_OPENING_S)
        await super().on_event(event)

    def _first_screen(
        self, run: RunDirectory | None, compared: Sequence[RunDirectory], metric: str, sweep: Sweep | None
    ) -> Screen[None]:
        if compared:
            return self._compare_screen(compared, metric)
        if sweep is not None:
            from .screens.sweep import SweepScreen

            return SweepScreen(sweep)
        return self._live_screen(run) if run is not None else self._setup_screen()

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return (*filters, self._ascii_only) if self._marker == "ascii" else filters

    def draw_with(self, marker: Marker) -> None:
        """Use a screen's marker for everything, later screens included."""
        self._marker = marker
        for screen in self.screen_stack:
            screen.query("*").refresh()

    def on_resize(self) -> None:
        """Repaint everything, even if the terminal has the same size as before.

        A terminal that shrinks and grows back quickly loses what was outside; Textual sees only the final size.
        """
        self.refresh()

    def clear_selection(self) -> None:
        """Clear the selection, if there is a screen.

        From Python 3.12 on, Textual starts tasks eagerly: an input of the first screen clears it before the screen is
        there.
        """
        with suppress(ScreenStackError):
            super().clear_selection()

    def on_mount(self) -> None:
        self.set_interval(_TEND_S, self._tend, name="tend runs")
        if not self.is_headless and sys.__stdin__ is not None:
            watch = select.poll()
            watch.register(sys.__stdin__, 0)
            self.set_interval(_TEND_S, partial(self._end_without_terminal, watch), name="watch the terminal")

    def _end_without_terminal(self, watch: select.poll) -> None:
        """End when the terminal, or the page, has closed without a signal, as under `nohup`.

        Textual would read the end of its input again and again.
        """
        if not any(event & (select.POLLHUP | select.POLLERR) for _, event in watch.poll(0)):
            return
        if self._own_run is not None:
            self._end_by(signal.SIGHUP)
        else:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGHUP)

    def _live_screen(self, run: RunDirectory) -> LiveScreen:
        from .screens.live import LiveScreen

        return LiveScreen(run, marker=self._marker)

    def _compare_screen(self, runs: Sequence[RunDirectory], metric: str = "") -> CompareScreen:
        from .screens.results import CompareScreen

        return CompareScreen(runs, metric, self._marker)

    def _setup_screen(self) -> SetupScreen:
        """Return the one form, which keeps its content while it is hidden."""
        if self._form is None:
            from .screens.setup import SetupScreen

            self._form = SetupScreen(self._preset_files)
            self.install_screen(self._form, "form")
        return self._form

    def _tend(self) -> None:
        self._hosted = [hosted for hosted in self._hosted if hosted.tend()]

    @property
    def trains_here(self) -> bool:
        """Whether a run still trains in this process."""
        return self._own_run is not None

    @property
    def _own_run(self) -> InProcessRun | None:
        self._tend()
        return next((hosted for hosted in self._hosted if isinstance(hosted, InProcessRun)), None)

    def start_run(self, config: RunConfig) -> None:
        """Start the form's run; a second press while it starts does nothing."""
        if self._in_process and self._own_run is not None:
            what, why = "A run is already training inside this console.", "One process can train only one run."
            remedy = "Wait for it or stop it. Without --in-process, several runs can train at the same time."
            show_error(self, ConsoleError(what, why=why, remedy=remedy))
            return
        if self._in_process:
            self._hear_signals()
        start = self._launcher or partial(launch, prewarmer=self._prewarmer)
        self._start(partial(start, config, in_process=self._in_process))

    def resume_run(self, run: RunDirectory, *, is_finished: bool) -> None:
        what, then, yes = f"Resume {run.run_id}?", "It goes on from its newest checkpoint.", "Resume"
        if is_finished:
            what, yes = f"Go on training {run.run_id}?", "Go on"
            then = (
                f"{then[:-1]}, for as many epochs again, or with twice the patience if it ended early. "
                f"For another number of epochs: tpu-console resume {run.run_id} --epochs N"
            )
        question = Confirmation(what, then, yes=yes, no="Leave it")
        ask_user(self, question, lambda _: self._start(partial(launch_resumed, run)))

    def _start(self, start: Callable[..., HostedRun | InProcessRun]) -> None:
        """Start a run in a thread, unless one is being started: creating a folder may be slow on a network disk.

        If the user did not start the run before, ask, and start it with ``trust``.
        """

        def launch_it() -> None:
            try:
                hosted = start()
            except (ConsoleError, OSError) as error:
                trusted = partial(self._start, partial(start, trust=True))
                self.call_from_thread(partial(show_error, what="The run cannot be started."), self, error, trusted)
            else:
                self.call_from_thread(self._launched, hosted)  # type: ignore[arg-type]  # a coroutine: Textual awaits it
            finally:
                self._is_launching = False

        if not self._is_launching:
            self._is_launching = True
            self.run_worker(launch_it, name="start a run", thread=True, exit_on_error=False)

    def _hear_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # a console inside another program, which handles signals itself
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            loop.add_signal_handler(number, self._end_by, number)

    def _end_by(self, number: signal.Signals) -> None:
        """Write the last event of the run in this process, and exit."""
        # Without a terminal, drawing and native threads may hang: then the kernel's alarm ends the process.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, _LONGEST_EXIT_S)
        if (own := self._own_run) is not None:
            name = "its terminal closing (SIGHUP)" if number == signal.SIGHUP else number.name
            own.end(name)
        self.exit(return_code=128 + number)

    def warm_up(self, config: RunConfig, hardware: Hardware) -> None:
        """Import the framework for the form's run in a process that waits for it."""
        if not self._in_process and self._launcher is None:
            prepare = partial(self._prewarmer.want, config, hardware)
            self.run_worker(prepare, name="warm up", group="warm up", thread=True, exit_on_error=False)

    async def _launched(self, hosted: HostedRun | InProcessRun) -> None:
        self._hosted.append(hosted)
        from .screens.live import LiveScreen

        if isinstance(self.screen, LiveScreen) and self.screen.run_directory == hosted.run:
            self.screen.follow_again()  # the run was resumed
            return
        form = self.screen
        while self.screen_stack.index(form) < len(self.screen_stack) - 1:  # it was opened a second time, over a run
            await self.pop_screen()
        self.push_screen(self._live_screen(hosted.run))

    def open_run(self, run: RunDirectory) -> None:
        self.push_screen(self._live_screen(run))

    def compare_runs(self, runs: Sequence[RunDirectory]) -> None:
        if len(runs) < 2:
            self.notify("No other run of this preset to compare with.", markup=False)
        else:
            self.push_screen(self._compare_screen(runs))

    def action_sweeps(self) -> None:
        from .screens.sweep import SweepsScreen

        self.push_screen(SweepsScreen())

    def action_doctor(self) -> None:
        from .screens.checks import DoctorScreen

        self.push_screen(DoctorScreen())

    def action_new_run(self) -> None:
        form = self._setup_screen()
        form.set_focus(None)  # the list of presets takes it
        self.push_screen(form)

    def new_run_like(self, run: RunDirectory, changes: Sequence[str] = (), *, is_trusted: bool = False) -> None:
        """Open the form, filled in as a run was; with `is_trusted`, the user need not have started that run."""
        from tpu_console.engine.config.reading import load_config, parse_assignment, with_changes
        from tpu_console.engine.config.user_code import check_started

        try:
            config = load_config(run.config)
            if not is_trusted:
                check_started(run.run_id, config)
            config = with_changes(config, [parse_assignment(change) for change in changes])
        except ConsoleError as error:
            show_error(self, error, lambda: self.new_run_like(run, changes, is_trusted=True))
            return
        self.action_new_run()
        self._setup_screen().begin_like(config)
        if changes:
            self.notify(f"As {run.run_id}, but {', '.join(changes)}.", markup=False)

    def action_help(self) -> None:
        active = self.screen.active_bindings.values()
        keys = [(self.get_key_display(one.binding), one.binding.tooltip) for one in active]
        self.push_screen(help_dialog(keys, *(getattr(self.screen, name, ()) for name in ("PANES", "FIGURES"))))

    def watch_theme(self, theme: str) -> None:
        keep_theme(theme)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        seen = {""}
        for node, binding, is_enabled, about in screen.active_bindings.values():
            is_palette = binding.action.endswith("command_palette")
            if is_enabled and not is_palette and binding.id not in MOVING and about not in seen:
                seen.add(about)
                named = (binding.description.capitalize(), about) if binding.description else (about.rstrip("."), "")
                yield SystemCommand(*named, partial(self.run_action, binding.action, node))
        yield SystemCommand("Theme", "Choose the colors; they are remembered.", self.action_change_theme)

    def action_command_palette(self) -> None:
        """Open the command palette, unless one is still closing: both would have the same ID."""
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(command_palette())

    def action_help_quit(self) -> None:
        """Say how to leave; Textual calls this for Ctrl+C if nothing is selected."""
        self.notify("To leave, press q; Ctrl+Q leaves at once. Runs keep training.")

    async def action_quit(self) -> None:
        """Quit like `action_leave`, however Textual triggers it."""
        self.action_leave()

    def action_ask_to_leave(self) -> None:
        """Ask, then leave; if a run trains in this process, ask about that run instead."""
        if self._own_run is not None:
            self.action_leave()
        else:
            then = "Runs keep training. To watch one again: tpu-console attach"
            ask_user(self, Confirmation("Quit tpu-console?", then, yes="Quit", no="Stay"), lambda _: self._leave())

    def action_leave(self) -> None:
        if (own := self._own_run) is None:
            self._leave()
            return

        def stop(_answer: str) -> None:
            own.engine.control.stop("requested in the console")
            self.notify("Stopping the run and saving the model.")

        what, yes = "A run is training inside this console. Stop it?", "Stop the run"
        then = "It cannot continue without the console. The current steps finish and the model is saved; "
        then += "after that you can quit."
        ask_user(self, Confirmation(what, then, yes=yes, no="Keep training"), stop)

    def _leave(self) -> None:
        self._take_leave()
        self.exit(0)

    def _take_leave(self) -> None:
        shown = list(dict.fromkeys(screen.farewell for screen in self.screen_stack if hasattr(screen, "farewell")))
        going = [hosted.run.run_id for hosted in self._hosted if hosted.tend()]
        unseen = [run_id for run_id in going if not any(run_id in text for text in shown)]
        self.farewell = "\n".join([*shown, *(goes_on(run_id) for run_id in unseen)])
        for hosted in self._hosted:
            hosted.release()
        self._prewarmer.close()

    def handle_bug(self, error: BaseException | None) -> None:
        if self.failure is None:
            self.failure = error
            with suppress(Exception):  # the bug may be in what is needed here
                if (own := self._own_run) is not None:
                    own.end("an internal error")
                self._take_leave()
