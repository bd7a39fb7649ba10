import sys
from collections.abc import Iterator
from subprocess import DEVNULL, Popen

import pytest
from textual.pilot import Pilot

from tests.helpers import wait_until
from tests.tui.live_fakes import FakeEngine, opens, shows, until
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.process.main import EngineThread
from tpu_console.engine.runs.events import RunFinished, RunSource
from tpu_console.engine.runs.heartbeat import Heartbeat, HeartbeatThread, write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.storage.paths import runs_folder
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.jobs.run_process import HostedRun, InProcessRun
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.screens.parts import console_of
from tpu_console.tui.screens.setup import SetupScreen
from tpu_console.tui.widgets.setup_parts import PresetList

CONFIG = RunConfig(name="digits-cnn", dataset="digits", model="cnn", batch_size=32, epochs=10)


@pytest.fixture
def host() -> Iterator[Popen[bytes]]:
    """A process that stands for a host."""
    process = Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=DEVNULL)
    yield process
    process.kill()
    process.wait()


async def start(pilot: Pilot[int]) -> None:
    console_of(await opens(pilot, SetupScreen)).start_run(CONFIG)


async def test_start_opens_the_live_screen_and_quitting_names_the_attach_command(
    engine: FakeEngine, host: Popen[bytes]
) -> None:
    asked: list[tuple[RunConfig, bool]] = []

    def launcher(config: RunConfig, *, in_process: bool) -> HostedRun:
        asked.append((config, in_process))
        write_heartbeat(engine.run, host.pid)
        engine.begin()
        return HostedRun(engine.run, host)

    app = ConsoleApp(launcher=launcher)
    async with app.run_test(size=(120, 40)) as pilot:
        await start(pilot)
        await start(pilot)  # a second press while it starts
        await opens(pilot, LiveScreen)
        await shows(pilot, "compiling")
        await pilot.press("d")
    assert asked == [(CONFIG, False)]
    assert app.return_code == 0
    name = engine.run.run_id
    assert app.farewell.startswith(f"{name} is still training.")
    assert app.farewell.endswith(f"attach {name}")
    assert host.poll() is None, "detaching leaves it alone"


async def test_escape_goes_back_from_the_form_to_the_run_as_it_was(engine: FakeEngine, host: Popen[bytes]) -> None:
    engine.begin(1)
    app = ConsoleApp(run=engine.run, launcher=lambda config, in_process: HostedRun(engine.run, host))
    async with app.run_test(size=(80, 24)) as pilot:
        first = await opens(pilot, LiveScreen)
        await until(pilot, lambda: bool(first.curves))
        form = await opens(pilot, SetupScreen, after=("left", "u"))
        await until(pilot, lambda: isinstance(app.focused, PresetList))
        await until(pilot, lambda: app.screen is first, after="escape")
        assert first.cursor is not None
        form.action_back()  # a key that waited while the form was busy
        assert app.screen is first
        await pilot.press("u")
        await start(pilot)
        second = await opens(pilot, LiveScreen)
        assert second is not first
        await pilot.press("u")
        await start(pilot)  # the form stands in the stack once again
        assert await opens(pilot, LiveScreen) not in {first, second}
        assert len(app.screen_stack) == 3
        assert not second.is_attached
        assert await opens(pilot, SetupScreen, after="escape") is form
        assert len(app.screen_stack) == 2
        await until(pilot, lambda: isinstance(app.focused, PresetList))
        await until(pilot, lambda: app.screen is first, after="escape")


async def test_a_failed_start_says_why_and_keeps_the_form() -> None:
    def launcher(config: RunConfig, *, in_process: bool) -> HostedRun:
        raise ConsoleError("The run folder [x] cannot be written.", why="Disk full.", remedy="Free space.")

    async with ConsoleApp(launcher=launcher).run_test(size=(80, 24)) as pilot:
        form = await opens(pilot, SetupScreen)
        await start(pilot)
        await shows(pilot, "The run folder [x] cannot be written.", "Why: Disk full.", "What to do: Free space.")
        await until(pilot, lambda: pilot.app.screen is form, after="escape")


async def test_an_ended_training_process_is_reaped(engine: FakeEngine, host: Popen[bytes]) -> None:
    engine.begin()
    write_heartbeat(engine.run, host.pid)
    app = ConsoleApp(launcher=lambda config, in_process: HostedRun(engine.run, host))
    async with app.run_test(size=(80, 24)) as pilot:
        await start(pilot)
        await opens(pilot, LiveScreen)
        host.kill()
        await shows(pilot, "crashed")
        await until(pilot, lambda: host.returncode is not None)


class IdleEngine(EngineThread):
    """Trains nothing until it is asked to stop."""

    def run(self) -> None:
        wait_until(lambda: self.control.reason, "the request")
        self._journal.write(RunFinished("stopped", "asked from the console", {}))


async def test_quitting_with_a_run_in_process_asks_and_stops_it_first(engine: FakeEngine) -> None:
    engine.begin(1)
    journal = JournalWriter(engine.run.journal)
    thread = IdleEngine(engine.run, CONFIG, journal, RunSource.IN_PROCESS)
    heartbeat = HeartbeatThread(Heartbeat(engine.run, journal, thread.control))

    def launcher(config: RunConfig, *, in_process: bool) -> InProcessRun:
        assert in_process
        heartbeat.start()
        thread.start()
        return InProcessRun(engine.run, thread, heartbeat, journal)

    app = ConsoleApp(in_process=True, launcher=launcher)
    async with app.run_test(size=(80, 24)) as pilot:
        await start(pilot)
        await opens(pilot, LiveScreen)
        await shows(pilot, "Stop it?", after="d")
        await opens(pilot, LiveScreen, after="n")
        assert thread.is_alive()
        await shows(pilot, "Stopped on request after 1 epoch", after=("d", "y"))
        await until(pilot, lambda: not heartbeat.is_alive())
        await pilot.press("d")
    assert app.return_code == 0
    assert all(text in app.farewell for text in ("request after 1 epoch", "Best: val_accuracy 0.7800"))


async def test_a_terminal_theme_can_be_chosen(engine: FakeEngine) -> None:
    async with ConsoleApp(run=engine.run, theme_name="console-light").run_test(size=(80, 24)) as pilot:
        await opens(pilot, LiveScreen)
        assert not pilot.app.current_theme.dark
        assert ConsoleApp().theme == "console-dark"  # it was given for once
        pilot.app.theme = "dracula"
        await until(pilot, lambda: ConsoleApp().theme == "dracula")
    assert ConsoleApp(theme_name="console-light").theme == "console-light"
    (runs_folder().parent / "theme").write_text("gone")
    assert ConsoleApp().theme == "console-dark"
