"""The checkbox of the forms, as plain text."""

from __future__ import annotations

from textual.app import App, ComposeResult

from tpu_console.tui.forms.field_row import TickBox


class OneBox(App[None]):
    def compose(self) -> ComposeResult:
        yield TickBox("search", compact=True)


async def test_on_and_off_differ_without_colours() -> None:
    async with OneBox().run_test() as pilot:
        box = pilot.app.query_one(TickBox)
        off = box.render().plain
        await pilot.press("tab", "space")
        assert box.value
        assert "X" in box.render().plain
        assert "X" not in off
        await pilot.press("space")
        assert box.render().plain == off
