from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.tui.live_fakes import screen_text, until
from tpu_console.engine.storage.paths import cache_folder, keras_home, runs_folder, user_presets_folder
from tpu_console.presets import all_presets
from tpu_console.presets.files import preset_files
from tpu_console.tui.app import OpeningConsoleApp
from tpu_console.tui.forms.field_row import FieldRow
from tpu_console.tui.screens.kept_form import find_form, keep_form
from tpu_console.tui.screens.setup import SetupScreen
from tpu_console.tui.widgets.plan_panel import PlanPanel
from tpu_console.tui.widgets.preset_list import PresetList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from textual.screen import Screen

    from tpu_console.engine.config.run_config import RunConfig


class Watched(OpeningConsoleApp):
    """Remembers what its first frame shows."""

    first: Mapping[str, list[str]] | None = None

    async def on_opening_screen_drawn(self, _: object) -> None:
        self.first = self.first or _panes(self.screen)


def _panes(screen: Screen[object]) -> dict[str, list[str]]:
    """Return the text in each pane that the first frame takes from the last time, without scroll bars."""
    lines = ["".join(part.text for part in line) for line in screen._compositor.render_strips()]
    panes = {}
    for name in ("title", "detail", "plan"):
        x, y, width, height = screen.query_one(f"#{name}").content_region
        text = "\n".join(line[x : x + width - 1].rstrip() for line in lines[y : y + height])
        panes[name] = text.rstrip().splitlines()
    return panes


def _kept() -> object:
    return find_form(preset_files()["digits-cnn"])


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_the_first_frame_shows_the_plan_of_the_last_time_where_the_form_shows_it(size: tuple[int, int]) -> None:
    keep_form()
    app = Watched()
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: isinstance(app.screen, SetupScreen) and app.screen._plan is not None)
        await until(pilot, lambda: app.screen.is_current and _panes(app.screen) == app.first)
    assert app.first is not None
    assert any("TensorFlow" in line for line in app.first["plan"])


class Filled(OpeningConsoleApp):
    """Remembers the plan and the command that the form has when it begins to take keys."""

    then: tuple[object, str] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.started: list[RunConfig] = []

    def on_setup_screen_start_requested(self, message: SetupScreen.StartRequested) -> None:
        message.prevent_default()
        self.started.append(message.config)

    def on_setup_screen_filled(self) -> None:
        screen = self.screen
        assert isinstance(screen, SetupScreen)
        self.then = (screen._plan, screen.query_one(PlanPanel).command)


async def test_the_form_takes_keys_while_it_shows_the_plan_of_the_last_time() -> None:
    keep_form()
    app = Filled()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.then is not None)
        assert app.then == (None, "tpu-console run digits-cnn")
        await until(pilot, lambda: isinstance(app.screen, SetupScreen) and app.screen._plan is not None)


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Keep the presets from being read until this is set."""
    is_free = threading.Event()

    def wait(files: Sequence[Path]) -> object:
        is_free.wait()
        return all_presets(files)

    monkeypatch.setattr("tpu_console.presets.all_presets", wait)
    yield is_free
    is_free.set()


async def test_what_is_typed_before_the_presets_are_read_is_kept(release: threading.Event) -> None:
    keep_form()
    app = Filled()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.then is not None)
        rows = {row.spec.key: row for row in app.screen.query(FieldRow)}
        batch, dataset = rows["batch_size"], rows["dataset"]
        batch.focus_control()
        await pilot.press("end", "4")
        await until(pilot, lambda: batch.text == "164")
        await pilot.press("ctrl+y", "ctrl+r")
        assert app.clipboard == ""
        release.set()
        await until(pilot, lambda: app.clipboard == "tpu-console run digits-cnn --batch-size 164")
        await until(pilot, lambda: [config.batch_size for config in app.started] == [164])
        assert {row.spec.key: row for row in app.screen.query(FieldRow)} == rows, "no field was made again"
        await until(pilot, lambda: dataset.text == "digits" and "•" in screen_text(pilot))


async def test_a_preset_that_is_chosen_before_it_is_read_stays_chosen(release: threading.Event) -> None:
    keep_form()
    app = Filled()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.then is not None)
        await pilot.press("down")
        await until(pilot, lambda: app.screen.query_one(PresetList).highlighted == 3)
        release.set()
        await until(pilot, lambda: app.screen.query_one(PlanPanel).command == "tpu-console run fashion-mnist-cnn")
        assert app.screen.query_one(PresetList).highlighted == 3


def test_nothing_is_shown_before_it_was_kept() -> None:
    assert _kept() is None
    keep_form()
    assert _kept() is not None


def _set(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setenv(name, "jax")


def _write(place: Callable[[], Path], text: str) -> Callable[[pytest.MonkeyPatch], None]:
    def write(_: pytest.MonkeyPatch) -> None:
        place().parent.mkdir(parents=True, exist_ok=True)
        place().write_text(text, encoding="utf-8")

    return write


@pytest.mark.parametrize(
    "change",
    [
        _set("KERAS_BACKEND"),
        _set("JAX_PLATFORMS"),
        _write(lambda: runs_folder().parent / "paces.json", "{}"),
        _write(lambda: runs_folder().parent / "speeds.json", "{}"),
        _write(lambda: keras_home() / "keras.json", '{"backend": "jax"}'),
        _write(lambda: user_presets_folder() / "digits-cnn.toml", "epochs = 1"),
        _write(lambda: cache_folder() / "shown" / "form.json", "12\n[]"),
    ],
)
def test_what_was_kept_does_not_count_once_anything_has_changed(
    change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    keep_form()
    assert _kept() is not None
    change(monkeypatch)
    assert _kept() is None
