"""The log pane: wrapping, folded noise, the way to errors, search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App, ComposeResult

from tests.tui.live_fakes import screen_text, until
from tpu_console.tui.widgets.side_panes import LogPane

if TYPE_CHECKING:
    from textual.pilot import Pilot

_NOISE = "I0000 00:00:1.2 3 port.cc:153] oneDNN custom operations are on."
_LINES = (
    _NOISE,
    "E0000 00:00:1.2 3 a.cc:1] the first error",
    *(f"line {number} of the log" for number in range(40)),
    "a long line " + "word " * 20 + "end-of-it",
    _NOISE,
)


class _App(App[None]):
    def compose(self) -> ComposeResult:
        yield LogPane("log")

    def on_mount(self) -> None:
        pane = self.query_one(LogPane)
        pane.show(_LINES)
        pane.focus()


def first_line(pilot: Pilot[None]) -> str:
    """The first line below the head of the pane."""
    return screen_text(pilot).splitlines()[1].strip()


async def test_long_lines_wrap_and_noise_is_folded_into_one_line() -> None:
    async with _App().run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        text = screen_text(pilot)
        assert "1 error (enter) · 2 routine" in text
        assert "end-of-it" in text  # wrapped, and the newest line is in view
        assert "oneDNN" not in text
        await pilot.press("a", "end")
        await until(pilot, lambda: "oneDNN custom operations are on." in screen_text(pilot))
        assert "port.cc" not in screen_text(pilot)


async def test_a_key_goes_to_the_error() -> None:
    async with _App().run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        assert "the first error" not in screen_text(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "the first error" in screen_text(pilot))


async def test_a_text_is_searched_and_its_matches_are_gone_through() -> None:
    async with _App().run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        await pilot.press("slash", *"LINE", "space", "1")
        await until(pilot, lambda: "/LINE 1▏" in screen_text(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "11 matches · enter next" in screen_text(pilot))
        await until(pilot, lambda: first_line(pilot) == "line 1 of the log")
        await pilot.press("enter")
        await until(pilot, lambda: first_line(pilot) == "line 10 of the log")
        await pilot.press("escape")
        await until(pilot, lambda: "11 matches" not in screen_text(pilot))
