import asyncio

import pytest
from textual.app import App
from textual.command import CommandList

from tpu_console.tui.compat import command_palette, write_control


async def test_nothing_is_written_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    app: App[object] = App()
    write_control(app, "\a")
    async with app.run_test():
        write_control(app, "\a")
    assert "\a" not in "".join(capfd.readouterr())


async def test_a_page_key_before_the_palette_shows_its_list_is_ignored() -> None:
    app: App[object] = App()
    async with app.run_test():
        await app.push_screen(palette := command_palette())
        commands = palette.query_one(CommandList)
        while not commands.option_count:
            await asyncio.sleep(0)
        assert not commands.size.height
        await app.run_action("command_list('page_down')", palette)
