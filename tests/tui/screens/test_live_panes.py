"""Panes beside the charts: translations, which come with the first ones, and settings."""

from tests.tui.live_fakes import FakeEngine, each_size, live, screen_text, shows, until
from tpu_console.engine.runs.events import Sample, Translated
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.following.overview import Setting
from tpu_console.tui.widgets.side_panes import SamplesPane, SettingsPane

SAMPLES = (
    Sample("Did you see the red house?", "¿Tú mira un casa rojo?", "tú mira un casa rojo"),
    Sample("I read [bold]books[/bold].", "Yo leo libros.", "yo como [UNK]"),
    Sample("Perhaps she will come tomorrow.", "Tal vez ella vendrá mañana.", ""),
)
SIZES = [(80, 24), (80, 50), (120, 40), (200, 50)]


async def test_the_newest_translations_are_shown_and_wrong_ones_beside_what_was_expected(engine: FakeEngine) -> None:
    engine.begin(1)
    async with ConsoleApp(run=engine.run).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "★     1")
        assert "samples" not in live(pilot).panes
        engine.write(Translated(1, SAMPLES))
        await shows(pilot, "7 samples")
        await pilot.press("p", "p", "p")
        pane = live(pilot).query_one(SamplesPane)
        async for size in each_size(pilot, *SIZES):
            await shows(pilot, "translations after epoch 1", "Did you see the red house?", "✓ tú mira un casa rojo")
            await until(pilot, lambda: pane.region.area)
            assert pane.region.height >= 4
            if size != (80, 24):
                await until(pilot, lambda: live(pilot).query_one("#log").region.height >= 1)
                log, side = live(pilot).query_one("#log").region, live(pilot).query_one("#side").region
                assert side.contains_region(log), "the log keeps its place"
        engine.train(2)
        engine.write(Translated(2, SAMPLES))
        await shows(pilot, "translations after epoch 2")
        await pilot.press("7")
        await shows(pilot, "I read [bold]books[/bold].", "▸ yo como [UNK]", "expected: Yo leo libros.", "▸ …")
        assert screen_text(pilot).count("expected:") == 2, "a right translation needs no second one"
        assert "CPU:0" not in screen_text(pilot)
        await until(pilot, lambda: live(pilot).zoomed == "charts", after="p")
        await shows(pilot, "3,200/s", "translations after epoch 2", after="escape")


def test_a_setting_without_a_name_and_a_value_takes_a_row() -> None:
    assert len(SettingsPane("settings").laid_out([Setting("", ""), Setting("epochs", "3")])) == 2
