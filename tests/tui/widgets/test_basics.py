"""Results that arrive while their screen is being closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual.app import App, ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from tests.tui.live_fakes import FakeEngine
from tpu_console.engine.runs.follower import Snapshot, StateReader
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.widgets.basics import call_back, is_closing

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Late(Screen[None]):
    """Asks when its widgets are gone and it is still there."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[bool, bool]] = []

    def compose(self) -> ComposeResult:
        yield Static("a")

    def on_unmount(self) -> None:
        self.answers.append((self.is_attached, is_closing(self)))


async def test_news_of_a_run_that_come_while_the_console_closes_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine(tmp_path)
    engine.begin(1)
    news = Snapshot(StateReader(engine.run).catch_up())
    told = []

    async def be_told(self: LiveScreen) -> None:
        await self.on_live_screen_updated(self.Updated(news))
        told.append(self)

    monkeypatch.setattr(LiveScreen, "on_unmount", be_told)
    app = App[None]()
    async with app.run_test():
        await app.push_screen(LiveScreen(engine.run))
        app.exit()
    assert told


async def test_a_result_for_a_screen_that_has_closed_is_dropped() -> None:
    app, screen, taken = App[None](), Late(), list[str]()
    async with app.run_test():
        await app.push_screen(screen)
        await asyncio.to_thread(call_back, screen, taken.append, "open")
        await app.pop_screen()
        await asyncio.to_thread(call_back, screen, taken.append, "closed")
    assert taken == ["open"]
