"""The screen of a sweep."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from tests.tui.live_fakes import each_size, opens, says, screen_text, shows, until
from tests.tui.made_runs import made_run, made_sweep
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.sweeps.folder import Sweep
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.screens.parts import Confirmation, TextDialog
from tpu_console.tui.screens.runs import RunsScreen
from tpu_console.tui.screens.setup import SetupScreen
from tpu_console.tui.screens.sweep import SweepScreen
from tpu_console.tui.widgets.record_table import RecordTable

SIZES = [(80, 24), (120, 40), (200, 50)]
SPEEDS = {1: 1000.0, 2: 2000.0, 3: 3000.0}


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("screens.sweep", "widgets.setup_parts"):
        monkeypatch.setattr(f"tpu_console.tui.{module}._LOOK_S", 0.2)


async def shown(pilot: Pilot[Any]) -> SweepScreen:
    screen = await opens(pilot, SweepScreen)
    await until(pilot, lambda: screen.query_one(RecordTable).row_count > 0)
    return screen


def offered(pilot: Pilot[Any]) -> set[str]:
    """The keys in the footer that do something with the sweep."""
    actions = {binding.binding.action for binding in pilot.app.screen.active_bindings.values()}
    return {"stop", "retry", "export"} & {action.removeprefix("screen.") for action in actions}


async def test_combinations_results_and_the_conclusion_are_shown_once_the_sweep_can_be_read() -> None:
    sweep = made_sweep(speeds=SPEEDS)
    definition = sweep.path / "sweep.toml"
    content = definition.read_bytes()
    definition.unlink()
    async with ConsoleApp(sweep=sweep).run_test(size=SIZES[0]) as pilot:
        await opens(pilot, TextDialog)
        await pilot.press("escape")
        definition.write_bytes(content)
        screen = await shown(pilot)
        async for _ in each_size(pilot, *SIZES):
            stands = ("stopped", "3 of 4 done", "sim:8", "3.00×", "waiting")
            await shows(pilot, *stands, "The best val_accuracy is 0.9000")
        assert screen.query_one(RecordTable).row_count == 4
        results = str(screen.query_one("#results Static", Static).content)
        assert "█" in results
        assert "examples/s" in results


async def test_enter_opens_the_run_and_escape_comes_back() -> None:
    sweep = made_sweep(speeds=SPEEDS)
    async with ConsoleApp(sweep=sweep).run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        assert (await opens(pilot, LiveScreen, after=("down", "enter"))).run_directory == sweep.runs()[2]
        await pilot.press("escape")
        screen = await shown(pilot)
        await pilot.press("escape")  # it is the first screen
        assert pilot.app.screen is screen
        await until(pilot, says(pilot, "This run has not started yet."), after=("down", "down", "enter"))


async def test_a_key_exports_the_best_run(jobs_from: Callable[[Any], None]) -> None:
    sweep = made_sweep(speeds=SPEEDS, scores={2: 0.95})
    asked = []

    def start(name: str, options: dict[str, Any], _log: Path) -> object:
        asked.append((name, options["form"], options["run"]))
        raise ConsoleError("There is no such job in this test.")

    jobs_from(start)
    async with ConsoleApp(sweep=sweep).run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        await shows(pilot, "★ 0.9500", "% Export")
        await until(pilot, lambda: asked, after=("percent_sign", "enter"))
        assert asked == [("export", "notebook", str(sweep.runs()[2].path))]


async def test_sweeps_are_found_from_the_form_and_from_the_runs() -> None:
    sweep = made_sweep(speeds=SPEEDS, scores={2: 0.95})
    made_sweep(["batch_size=16,32"], SPEEDS)
    (sweep.path.parent / "20200101-000000-damaged").mkdir()
    (sweep.path.parent / "20200101-000000-damaged" / "sweep.toml").write_text("repeat = 1")
    lock = sweep.lock()
    app = ConsoleApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, f"▶ sweep {sweep.name[9:]}", "^g Watch")
        await opens(pilot, SweepScreen, after="ctrl+g")
        await opens(pilot, SetupScreen, after="escape")
        await shows(pilot, "b Sweeps", after="ctrl+l")
        await shows(pilot, "complete", "2/2", "running", "3/4", "unreadable", "accelerator=cpu,sim:8", after="b")
        await shows(pilot, "1 waiting", "The best val_accuracy is 0.9500", after="down")
        os.close(lock)
        await shows(pilot, "stopped")
        await pilot.press("enter")
        await shown(pilot)
        assert f"sweep {sweep.name}" in screen_text(pilot)
        await opens(pilot, RunsScreen, after=("escape", "escape"))
        await until(pilot, lambda: "▶ sweep" not in screen_text(pilot), after="escape")


async def asked(pilot: Pilot[Any], key: str) -> None:
    await opens(pilot, Confirmation, after=key)
    await pilot.press("y")
    await shown(pilot)


async def test_a_key_stops_the_sweep_after_its_run_and_again_with_it() -> None:
    sweep = made_sweep(speeds=SPEEDS)
    lock = sweep.lock()
    async with ConsoleApp(sweep=sweep).run_test(size=(80, 24)) as pilot:
        await shown(pilot)
        await shows(pilot, "running")
        await asked(pilot, "K")
        await until(pilot, lambda: sweep.requested("stop"))
        assert not sweep.requested("stop-run")
        await shows(pilot, "stopping")
        await asked(pilot, "K")
        await until(pilot, lambda: sweep.requested("stop-run"))
        os.close(lock)
        await until(pilot, lambda: offered(pilot) == {"retry", "export"})
        await pilot.press("K")
        assert not isinstance(pilot.app.screen, Confirmation)


async def test_a_finished_sweep_offers_neither_stop_nor_retry_and_one_without_results_no_notebook() -> None:
    async with ConsoleApp(sweep=made_sweep(["batch_size=16,32"], SPEEDS)).run_test(size=(80, 24)) as pilot:
        await shown(pilot)
        await shows(pilot, "complete")
        assert offered(pilot) == {"export"}
    async with ConsoleApp(sweep=made_sweep(speeds={})).run_test(size=(80, 24)) as pilot:
        await shown(pilot)
        await until(pilot, lambda: offered(pilot) == {"retry"})


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Sweep]:
    """The sweeps whose processes were started, which do nothing."""
    found: list[Sweep] = []

    def start(sweep: Sweep) -> SimpleNamespace:
        found.append(sweep)
        return SimpleNamespace(poll=lambda: 0)

    monkeypatch.setattr("tpu_console.tui.screens.sweep.start_driver", start)
    return found


async def test_a_key_retries_a_failed_run_of_a_running_sweep_and_resumes_a_stopped_one(
    started: list[Sweep],
) -> None:
    sweep = made_sweep(speeds={1: 1000.0})
    sweep.note(2, made_run(end=None))
    lock = sweep.lock()
    async with ConsoleApp(sweep=sweep).run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        await shows(pilot, "crashed", "running")
        await until(pilot, says(pilot, "Only runs that stopped or failed can be tried again"), after="R")
        await pilot.press("down")
        await asked(pilot, "R")
        await until(pilot, lambda: sweep.requested("retry-0002"))
        os.close(lock)
        await shows(pilot, "stopped")
        await asked(pilot, "R")
        await until(pilot, lambda: started == [sweep])


async def test_the_list_starts_a_sweep_after_a_question(started: list[Sweep]) -> None:
    async with ConsoleApp().run_test(size=(80, 24)) as pilot:
        await opens(pilot, SetupScreen)
        await shows(pilot, "There is no sweep yet.", "Press u", after="b")
        await shows(pilot, "New sweep", after="u")
        field = pilot.app.screen.query_one(Input)
        for wrong, why in (("digits-cnn", "several values"), ("digit seed=1,2", "digits-cnn"), ("'", "preset")):
            field.value = wrong
            await shows(pilot, why, after="enter")
        field.value = "digits-cnn batch_size=16,32 epochs=2"
        await until(pilot, lambda: "preset: " not in screen_text(pilot))
        await shows(pilot, "Start the sweep?", "2 batch_size", after="enter")
        assert not started
        await pilot.press("y")
        await shown(pilot)
        await until(pilot, lambda: len(started) == 1)
        (sweep,) = started
        definition = sweep.read()
        assert (definition.over, definition.config.epochs) == (("batch_size=16,32",), 2)
