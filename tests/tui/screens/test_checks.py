"""The screens that check, the preflight with a real process that says what the job says."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input, Static

from tests.engine.machine.recorded import lay_out
from tests.helpers import LIMIT_S, replace
from tests.made_verdicts import FITS, REFUSED, TOO_LARGE, speaking, telling
from tests.tui.live_fakes import each_size, opens, screen_text, shows, until
from tpu_console.engine.machine.environment import Environment, look_around
from tpu_console.engine.preflight.result import Outcome
from tpu_console.presets.catalog import find_preset
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.forms.field_row import FieldRow
from tpu_console.tui.jobs.job_process import log_file
from tpu_console.tui.screens.checks import DoctorScreen, PreflightScreen, VerdictTable
from tpu_console.tui.screens.setup import SetupScreen
from tpu_console.tui.widgets.setup_parts import PlanPanel

pytestmark = pytest.mark.usefixtures("compiler")

FASTER = replace(FITS, precision="mixed_bfloat16", replica_batch=256)
ENDLESS = "import signal\nreporter.progress('compiling for v5e-8', 0, 2, 'choices')\ntime.sleep(600)"


@asynccontextmanager
async def opened(start: Any, dataset: str = "cifar10") -> AsyncIterator[tuple[Pilot[None], PreflightScreen, list[Any]]]:
    """The preflight, ready for keys, and the list of what it returns."""
    config = find_preset("cifar10-vgg-augmented").config.model_copy(update={"dataset": dataset})
    app, screen, taken = App[None](), PreflightScreen(config, "cifar10-vgg-augmented", start), list[Any]()
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(screen, taken.append)
        await until(pilot, lambda: app.screen is screen and bool(screen.query(Input)) and app.focused is not None)
        yield pilot, screen, taken


def table(screen: PreflightScreen) -> VerdictTable:
    return screen.query_one(VerdictTable)


def text_of(screen: Screen[Any], selector: str) -> str:
    return "\n".join(str(static.content) for static in screen.query(selector).results(Static))


async def test_a_dataset_function_of_unknown_shapes_is_called_first(tmp_path: Path) -> None:
    async with opened(telling([FITS]), f"{tmp_path / 'mine.py'}:data") as (pilot, screen, _):
        await until(pilot, lambda: table(screen).row_count == 1, after="enter")
    assert log_file("call").exists()


async def test_verdicts_are_listed_and_one_is_applied() -> None:
    async with opened(telling([FITS, TOO_LARGE, REFUSED, FASTER])) as (pilot, screen, taken):
        await until(pilot, lambda: table(screen).row_count == 4, after="enter")
        await until(pilot, lambda: "fits         The train step" in text_of(screen, "#words"))
        await shows(pilot, Outcome.FITS, Outcome.DOES_NOT_FIT, Outcome.DOES_NOT_COMPILE, "2.32")
        await until(pilot, lambda: "too large    A step needs 36.52 GiB" in text_of(screen, "#words"), after="down")
        await pilot.press("down", "down")
        table(screen).action_select_cursor()
        table(screen).action_select_cursor()  # a second answer would close the screen below, too
        await until(pilot, lambda: taken)
        await pilot.pause()
    assert taken == [(256, "mixed_bfloat16")]


async def test_columns_are_dropped_and_no_unit_is_cut() -> None:
    assert FITS.bound is not None
    quick = replace(FITS, bound=replace(FITS.bound, step_s=0.000229, epoch_s=0.229, run_s=123.4))
    async with opened(telling([quick, TOO_LARGE, REFUSED])) as (pilot, screen, _):
        await until(pilot, lambda: table(screen).row_count == 3, after="enter")
        async for size in each_size(pilot, (80, 24), (120, 40)):
            await shows(pilot, "Whole run")
            await until(pilot, lambda: ("Step (at best)" in screen_text(pilot)) == (size[0] > 80))  # noqa: B023
            await until(pilot, lambda: table(screen).virtual_size.height == 4)
            cells = [str(cell).strip() for row in range(3) for cell in table(screen).get_row_at(row)]
            await shows(pilot, *cells)
            assert table(screen).virtual_size.width <= size[0]


async def test_wrong_choices_are_marked_and_start_nothing() -> None:
    async with opened(telling([FITS])) as (pilot, screen, _):
        screen.query_one("#tpus", Input).value = "v5f-8"
        await shows(pilot, "did you mean 'v5p-8'?")
        await pilot.press("enter")
        screen.query_one("#tpus", Input).value = "v5e-8"
        screen.query_one("#batches", Input).value = "32, many"
        await shows(pilot, "positive whole numbers")
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert not log_file("preflight").exists()
        screen.query_one("#batches", Input).value = "32, 64,32"
        await until(pilot, lambda: "positive whole" not in screen_text(pilot))
        await until(pilot, lambda: table(screen).row_count == 1, after="ctrl+r")
        assert '"batches": [32, 64]' in log_file("preflight").read_text()


async def test_progress_shows_the_time_and_can_be_cancelled() -> None:
    async with opened(speaking(ENDLESS)) as (pilot, screen, taken):
        await shows(pilot, "compiling for v5e-8  0 of 2 choices", "s so far", after="ctrl+r")
        first = screen_text(pilot)
        await until(pilot, lambda: screen_text(pilot) != first)  # the time goes on while the job is silent
        await until(pilot, lambda: text_of(screen, "#status").startswith("cancelled"), after="escape")
        await until(pilot, lambda: taken == [None], after="escape")


async def test_a_failure_is_shown_with_its_remedy() -> None:
    failure = """reporter.error(
        ConsoleError('There is no compiler.', why='No libtpu.', remedy="pip install 'jax[tpu]'"))"""
    async with opened(speaking(failure)) as (pilot, screen, _):
        await until(pilot, lambda: text_of(screen, "#status") == "There is no compiler. No libtpu.", after="ctrl+r")
        assert "'jax[tpu]'" in text_of(screen, "#words")


async def test_keys_of_the_form_check_the_machine_and_apply_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpu_console.tui.jobs.job_process.start_job", telling([FASTER]))
    app = ConsoleApp()
    async with app.run_test(size=(120, 40)) as pilot:
        form = await opens(pilot, SetupScreen)
        await until(pilot, lambda: any(panel.command for panel in form.query(PlanPanel)))
        doctor = await opens(pilot, DoctorScreen, after="f8")
        await until(pilot, lambda: "ok  " in text_of(doctor, "#report Static"))
        await opens(pilot, SetupScreen, after="escape")
        check = await opens(pilot, PreflightScreen, after="f9")
        await until(pilot, lambda: bool(check.query(VerdictTable)))
        await until(pilot, lambda: check.query_one(VerdictTable).row_count, after="ctrl+r")
        await opens(pilot, SetupScreen, after="enter")
        command = "tpu-console run digits-cnn --batch-size 256 --set precision=mixed_bfloat16"
        await until(pilot, lambda: form.query_one(PlanPanel).command == command)
        assert {row.spec.key: row.text for row in form.query(FieldRow)}["batch_size"] == "256"


async def test_the_report_is_shown_and_scrolls_and_the_screen_stays_usable_during_a_new_check(tmp_path: Path) -> None:
    names, go = iter(["tpu-held", "tpu-lock-of-ours", "laptop"]), threading.Event()

    def look() -> Environment:
        if (name := next(names)) != "tpu-held":
            go.wait(LIMIT_S)
        return look_around(lay_out(name, tmp_path / name).sources)

    app, screen = ConsoleApp(), DoctorScreen(look)
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(screen)
        await until(pilot, lambda: "1 problem" in text_of(screen, "#title"))
        texts = text_of(screen, "#report Static")
        assert "where        TPU VM" in texts
        assert "Process 4242 of bob" in texts
        assert "run: ps -o pid,user,lstart,args -p 4242" in texts
        assert [line[:17] for line in texts.splitlines() if line.startswith("problem")] == ["problem  TPU free"]
        box = screen.query_one("#report", VerticalScroll)
        await until(pilot, lambda: box.max_scroll_y > 0 and box.max_scroll_x == 0)  # once it is laid out
        await until(pilot, lambda: box.scroll_y == box.max_scroll_y > 0, after="end")
        await until(pilot, lambda: "checking" in text_of(screen, "#title"), after="f5")
        go.set()
        await until(pilot, lambda: text_of(screen, "#title").endswith("2 notes, 12 ok."))
        assert "Process 4242" not in text_of(screen, "#report Static")
        go.clear()
        await until(pilot, lambda: not isinstance(app.screen, DoctorScreen), after=("f5", "escape"))
        go.set()
