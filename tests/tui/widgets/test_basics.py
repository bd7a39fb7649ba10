"""Results that arrive while their screen is being closed."""

import asyncio

from textual.app import App, ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from tests.helpers import ROOT
from tests.tui.live_fakes import FakeEngine
from tpu_console.engine.runs.follower import Snapshot, StateReader
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.widgets.basics import call_back, is_closing


class Late(Screen[None]):
    """Asks when its widgets are gone and it is still there."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[bool, bool]] = []

    def compose(self) -> ComposeResult:
        yield Static("a")

    def on_unmount(self) -> None:
        self.answers.append((self.is_attached, is_closing(self)))


class UpdatedWhileClosing(LiveScreen):
    """Gets an update while it closes."""

    CSS_PATH = str(ROOT / "tui" / "screens" / "live.tcss")
    news: Snapshot | None = None

    async def on_unmount(self) -> None:  # type: ignore[override]  # Textual awaits it
        self.news = Snapshot(StateReader(self.run_directory).catch_up())
        await self.on_live_screen_updated(self.Updated(self.news))


async def test_an_update_that_arrives_while_the_console_closes_is_no_error(engine: FakeEngine) -> None:
    engine.begin(1)
    app, screen = App[None](), UpdatedWhileClosing(engine.run)
    async with app.run_test():
        await app.push_screen(screen)
        app.exit()
    assert screen.news is not None


async def test_a_result_for_a_screen_that_has_closed_is_dropped() -> None:
    app, screen, taken = App[None](), Late(), list[str]()
    async with app.run_test():
        await app.push_screen(screen)
        await asyncio.to_thread(call_back, screen, taken.append, "open")
        await app.pop_screen()
        await asyncio.to_thread(call_back, screen, taken.append, "closed")
    assert taken == ["open"]
