"""Results that arrive while their screen is being closed."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from tpu_console.engine.machine.devices import Hardware
from tpu_console.tui.screens.setup import SetupScreen
from tpu_console.tui.widgets.closing import is_closing


class Late(Screen[None]):
    """Asks when its widgets are gone and it is still there."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[bool, bool]] = []

    def compose(self) -> ComposeResult:
        yield Static("a")

    def on_unmount(self) -> None:
        self.answers.append((self.is_attached, is_closing(self)))


async def test_a_screen_is_closing_before_it_is_gone() -> None:
    app, screen = App[None](), Late()
    async with app.run_test():
        await app.push_screen(screen)
        assert not is_closing(screen)
        assert not is_closing(screen.query_one(Static))
        await app.pop_screen()
        assert screen.answers == [(True, True)]
        assert is_closing(screen)


async def test_hardware_that_is_detected_while_the_form_closes_is_no_error() -> None:
    class LateForm(SetupScreen):
        def on_unmount(self) -> None:
            self._take_hardware(Hardware())

    app = App[None]()
    async with app.run_test():
        await app.push_screen(LateForm(detect=Hardware))
        await app.pop_screen()
