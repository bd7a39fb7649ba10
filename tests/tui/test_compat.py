from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App

from tpu_console.tui.compat import write_control

if TYPE_CHECKING:
    import pytest


async def test_nothing_is_written_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    app: App[object] = App()
    write_control(app, "\a")
    async with app.run_test():
        write_control(app, "\a")
    assert "\a" not in "".join(capfd.readouterr())
