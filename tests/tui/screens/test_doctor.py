"""The doctor in the console."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from textual.app import App
from textual.containers import VerticalScroll
from textual.widgets import Static

from tests.engine.machine.recorded import lay_out
from tests.helpers import LIMIT_S
from tests.tui.live_fakes import until
from tpu_console.engine.machine.environment import Environment, look_around
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.screens.checks import DoctorScreen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Host(App[None]):
    def __init__(self, look: Callable[[], Environment]) -> None:
        super().__init__()
        self._look = look

    def on_mount(self) -> None:
        self.push_screen(DoctorScreen(self._look))

    def action_help(self) -> None:
        pass

    def title_text(self) -> str:
        return str(self.screen.query_one("#title", Static).content)

    def texts(self) -> list[str]:
        return [str(static.content) for static in self.screen.query("#report Static").results(Static)]


async def test_the_report_is_shown_and_scrolls_and_the_screen_stays_usable_during_a_new_check(tmp_path: Path) -> None:
    names, go = iter(["tpu-held", "tpu-lock-of-ours", "laptop"]), threading.Event()

    def look() -> Environment:
        if (name := next(names)) != "tpu-held":
            go.wait(LIMIT_S)
        return look_around(lay_out(name, tmp_path / name).sources)

    app = Host(look)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "1 problem" in app.title_text())
        texts = "\n".join(app.texts())
        assert "where        TPU VM" in texts
        assert "Process 4242 of bob" in texts
        assert "run: ps -o pid,user,lstart,args -p 4242" in texts
        assert [line[:17] for line in texts.splitlines() if line.startswith("problem")] == ["problem  TPU free"]
        box = app.screen.query_one("#report", VerticalScroll)
        await until(pilot, lambda: box.max_scroll_y > 0 and box.max_scroll_x == 0)  # once it is laid out
        await pilot.press("end")
        await until(pilot, lambda: box.scroll_y == box.max_scroll_y > 0)
        await pilot.press("f5")
        await until(pilot, lambda: "checking" in app.title_text())
        go.set()
        await until(pilot, lambda: app.title_text().endswith("2 notes, 12 ok."))
        assert "Process 4242" not in "\n".join(app.texts())
        go.clear()
        await pilot.press("f5", "escape")
        await until(pilot, lambda: not isinstance(app.screen, DoctorScreen))
        go.set()


async def test_a_key_of_the_setup_screen_opens_it() -> None:
    app = ConsoleApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: bool(app.screen.query("PresetList")))
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, DoctorScreen))
        await until(pilot, lambda: "ok  " in str(app.screen.query_one("#report Static", Static).content))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, DoctorScreen))
