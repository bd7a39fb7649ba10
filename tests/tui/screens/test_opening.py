from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from textual import events

from tests.tui.live_fakes import FakeEngine, until
from tests.tui.screens.test_app_imports import HEAVY
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.runs.journal import encode
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.presets import find_preset
from tpu_console.tui.app import OpeningConsoleApp
from tpu_console.tui.forms.fields import ESSENTIAL
from tpu_console.tui.forms.run_form import RunForm
from tpu_console.tui.screens.kept_form import FIELDS
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.screens.opening import OpeningForm
from tpu_console.tui.screens.setup import SetupScreen

if TYPE_CHECKING:
    from pathlib import Path

    from textual.geometry import Offset
    from textual.pilot import Pilot
    from textual.screen import Screen

# Prints what the first frame shows and what is loaded then, and ends.
FIRST_FRAME = """
import asyncio, json, pathlib, sys
from tpu_console.tui.app import OpeningConsoleApp

is_form = sys.argv[1] == "form"
answer, *runs = map(pathlib.Path, sys.argv[2:])

class First(OpeningConsoleApp):
    async def on_opening_screen_drawn(self, message):
        if is_form:
            return
        message.prevent_default()
        self.answer()

    def on_setup_screen_filled(self):
        self.call_after_refresh(self.answer)

    def answer(self):
        lines = ["".join(part.text for part in line) for line in self.screen._compositor.render_strips()]
        answer.write_text(json.dumps(["\\n".join(lines), sorted(sys.modules)]))
        self.exit()

def first():
    if not runs:
        return First()
    from tpu_console.engine.runs.journal_blocks import start_early
    from tpu_console.engine.runs.run_directory import RunDirectory
    start_early(RunDirectory(runs[0]))
    return First(run=RunDirectory(runs[0]))

async def main():
    async with first().run_test(size=(120, 40)) as pilot:
        await pilot.pause()

asyncio.run(main())
"""
TOO_SLOW = {"pydantic", "numpy", "plotext", "psutil", "orjson", *HEAVY}


def first_frame(folder: Path, *runs: Path, until: str = "drawn") -> tuple[str, set[str]]:
    answer = folder / "answer.json"
    subprocess.run([sys.executable, "-c", FIRST_FRAME, until, answer, *runs], check=True)
    text, modules = json.loads(answer.read_text(encoding="utf-8"))
    return text, set(modules)


@pytest.mark.parametrize("is_kept", [False, True])
def test_the_first_frame_holds_the_presets_and_the_main_fields_and_loads_nothing_else(
    tmp_path: Path, *, is_kept: bool
) -> None:
    if is_kept:
        keep = "from tpu_console.tui.screens.kept_form import keep_form; keep_form()"
        subprocess.run([sys.executable, "-c", keep], check=True)
    text, modules = first_frame(tmp_path)
    assert ("tpu-console run digits-cnn" in text) is is_kept
    values = find_preset("digits-cnn").config
    for label, value in {
        "Dataset": values.dataset,
        "Model": values.model,
        "Batch size": values.batch_size,
        "Epochs": values.epochs,
        "Learning rate": values.optimizer.learning_rate,
        "Accelerator": values.accelerator,
    }.items():
        assert f"{label:<23}{value}" in text
    assert "CIFAR-10 with augmentation" in text
    assert "Handwritten digits, without a network" in text
    assert modules.isdisjoint(TOO_SLOW)
    assert not any(name.startswith(("tpu_console.tui.forms", "tpu_console.engine.planning")) for name in modules)


def test_a_form_that_was_kept_takes_keys_before_the_configuration_is_imported(tmp_path: Path) -> None:
    keep = "from tpu_console.tui.screens.kept_form import keep_form; keep_form()"
    subprocess.run([sys.executable, "-c", keep], check=True)
    text, modules = first_frame(tmp_path, until="form")
    assert "^r Start" in text
    assert "tpu-console run digits-cnn" in text
    assert modules.isdisjoint(TOO_SLOW)


def test_the_first_frame_of_a_run_holds_its_name_and_its_end_and_loads_nothing_else(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "20261120-133100-digits-cnn")
    run.path.mkdir()
    summary = {"epochs": 3, "monitor": "val_loss", "best": {"epoch": 2, "val_loss": 0.25}}
    run.journal.write_bytes(encode(RunFinished("completed", "all epochs are done", summary), time.time()))
    text, modules = first_frame(tmp_path, run.path)
    assert "20261120-133100-digits-cnn" in text
    assert "Finished: 3 epochs." in text
    assert "best val_loss 0.2500 in epoch 2" in text
    assert modules.isdisjoint(TOO_SLOW)


def test_the_main_fields_are_those_that_the_form_shows_first() -> None:
    assert set(FIELDS) == set(ESSENTIAL)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_the_form_takes_the_place_of_the_first_frame_with_its_panes_where_they_were(
    size: tuple[int, int],
) -> None:
    app = OpeningConsoleApp()
    async with app.run_test(size=size) as pilot:
        opening = app._screen_stacks[app.DEFAULT_MODE][0]
        assert isinstance(opening, OpeningForm)
        await until(pilot, lambda: _is_filled(pilot))
        then = _places(opening)
        await until(pilot, lambda: _places(app.screen) == then)


async def test_the_form_takes_the_place_without_parsing_all_style_sheets_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, parsed = OpeningConsoleApp(), []
    async with app.run_test(size=(120, 40)) as pilot:
        monkeypatch.setattr(app.stylesheet, "reparse", lambda: parsed.append(app.screen))
        await until(pilot, lambda: _is_filled(pilot))
        assert parsed == []
        app.theme = "console-light"
        await until(pilot, lambda: parsed != [])


async def test_keys_that_are_pressed_before_the_form_is_there_go_to_it() -> None:
    app = OpeningConsoleApp()
    async with app.run_test(size=(120, 40)) as pilot:
        app.screen.post_message(_key("ctrl+o"))
        await until(pilot, lambda: _is_filled(pilot))
        await until(pilot, lambda: app.screen.query_one(RunForm).shows_all)


async def test_a_key_that_is_pressed_before_there_is_a_plan_gets_one() -> None:
    app = OpeningConsoleApp()
    async with app.run_test(size=(120, 40)) as pilot:
        app.screen.post_message(_key("ctrl+y"))
        await until(pilot, lambda: app.clipboard == "tpu-console run digits-cnn")


async def test_a_run_takes_the_place_of_its_name(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "runs")
    engine.begin()
    async with OpeningConsoleApp(run=engine.run).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, LiveScreen) and pilot.app.screen._settings != ())


def _is_filled(pilot: Pilot[int]) -> bool:
    screen = pilot.app.screen
    return isinstance(screen, SetupScreen) and screen._config is not None


def _places(screen: Screen[Any]) -> list[tuple[Offset, int]]:
    regions = [screen.query_one(f"#{name}").region for name in ("presets", "detail", "form")]
    return [(region.offset, region.width) for region in regions]


def _key(name: str) -> events.Key:
    return events.Key(name, None)
