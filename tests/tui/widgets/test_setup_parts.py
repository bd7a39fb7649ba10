"""The list of presets."""

from textual.app import App, ComposeResult

from tests.tui.live_fakes import resize, until
from tpu_console.presets.catalog import find_preset
from tpu_console.tui.widgets.setup_parts import PresetList


class Host(App[None]):
    def compose(self) -> ComposeResult:
        yield PresetList()


async def test_page_keys_do_no_harm_in_a_terminal_without_room_for_the_list() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        presets = app.query_one(PresetList)
        presets.show([find_preset(name) for name in ("digits-cnn", "mnist-mlp", "imdb-text")], [], "mnist-mlp")
        presets.focus()
        presets.styles.border = ("round", "white")
        await resize(pilot, (80, 1))
        presets.mark_edited("mnist-mlp", is_edited=True)
        await until(pilot, lambda: not presets.scrollable_content_region)
        await pilot.press("pagedown", "pageup")
        assert presets.highlighted == 1
        await resize(pilot, (80, 24))
        await until(pilot, lambda: presets.scrollable_content_region)
        await until(pilot, lambda: presets.highlighted == 2, after="pagedown")
