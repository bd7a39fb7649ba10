from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App

from tpu_console.tui.terminal.display import attention, call_attention

if TYPE_CHECKING:
    import pytest


def test_the_bell_and_a_notification_that_cannot_control_the_terminal() -> None:
    assert attention("The loss jumped.") == "\a\x1b]9;The loss jumped.\x1b\\"
    hostile = attention("a\x1b\\\x07\x1b]0;b" + "c" * 999)
    assert hostile[4:-2].isprintable()
    assert len(hostile) < 250


async def test_nothing_is_written_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    app: App[object] = App()
    call_attention(app, "before it runs")
    async with app.run_test():
        call_attention(app, "The loss jumped.")
    assert "\a" not in "".join(capfd.readouterr())
