"""The log pane: wrapping, folded noise, the way to errors, search."""

from textual.app import App, ComposeResult
from textual.pilot import Pilot

from tests.tui.live_fakes import screen_text, shows, until
from tpu_console.tui.widgets.live_panes import LogPane

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


async def test_long_lines_wrap_noise_is_folded_into_one_line_and_a_key_goes_to_the_error() -> None:
    async with _App().run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        text = screen_text(pilot)
        assert "1 error (enter) · 2 routine" in text
        assert "end-of-it" in text  # wrapped, and the newest line is in view
        assert not any(word in text for word in ("oneDNN", "the first error"))
        await shows(pilot, "the first error", after="enter")
        await shows(pilot, "oneDNN custom operations are on.", after=("a", "end"))
        assert "port.cc" not in screen_text(pilot)


async def test_a_text_is_searched_and_its_matches_are_gone_through() -> None:
    async with _App().run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        await shows(pilot, "/LINE 1▏", after=("slash", *"LINE", "space", "1"))
        await shows(pilot, "11 matches · enter next", after="enter")
        await until(pilot, lambda: first_line(pilot) == "line 1 of the log")
        await until(pilot, lambda: first_line(pilot) == "line 10 of the log", after="enter")
        await until(pilot, lambda: "11 matches" not in screen_text(pilot), after="escape")
