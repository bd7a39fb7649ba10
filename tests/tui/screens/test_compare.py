"""The screen that compares runs."""

from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from tests.hostile_runs import UNSAFE, make_all
from tests.tui.live_fakes import FakeEngine, each_size, opens, screen_text, shows, until
from tests.tui.made_runs import made_run
from tpu_console.engine.runs.run_directory import RunDirectory, create_run, list_runs
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.charts.curve import Axis
from tpu_console.tui.following.comparison import as_csv, as_json, as_markdown, as_text, read_comparison
from tpu_console.tui.following.overview import Overview
from tpu_console.tui.screens.compare import CompareScreen, ResultTable
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.screens.runs import RunsScreen
from tpu_console.tui.screens.setup import SetupScreen
from tpu_console.tui.widgets.chart_grid import run_pen

SIZES = [(80, 24), (120, 40), (200, 50)]


def rising(to: float, epochs: int = 5) -> list[dict[str, float]]:
    return [{"val_accuracy": to * epoch / epochs, "loss": 1 / epoch} for epoch in range(1, epochs + 1)]


def two_runs() -> list[RunDirectory]:
    return [made_run(rising(0.8)), made_run(rising(0.9, 8), batch_size=64)]


def overviews(screen: CompareScreen) -> list[Overview]:
    assert screen.comparison is not None
    return [run.overview for run in screen.comparison.runs]


async def shown(pilot: Pilot[Any]) -> CompareScreen:
    screen = await opens(pilot, CompareScreen)
    await until(pilot, lambda: screen.query_one(ResultTable).row_count > 0)
    return screen


async def test_curves_results_and_differences_are_shown() -> None:
    async with ConsoleApp(compared=two_runs()).run_test(size=SIZES[0]) as pilot:
        screen = await shown(pilot)
        async for size in each_size(pilot, *SIZES):
            legends = {80: "A .800 ★5 B .900 ★8", 120: "A 0.8000 ★ 0.8000 (5)  B 0.9000 ★ 0.9000 (8)"}
            await shows(pilot, legends.get(size[0], "A batch_size 16: 0.8000 ★ 0.8000 (5)"), "B★", "B is better than A")
            assert [chart.title for chart in screen.grid.on_page][:2] == ["val_accuracy", "loss"]
            if size[0] < 150:
                await shows(pilot, "  results  differences  ")  # without numbers: 1 and 2 zoom charts
                await shows(pilot, "batch_size", after="p")
            if size[0] < 150:
                await pilot.press("p")


async def test_one_cursor_reads_all_runs_on_every_axis_which_may_begin_where_each_run_does() -> None:
    async with ConsoleApp(compared=two_runs()).run_test(size=(120, 40)) as pilot:
        screen = await shown(pilot)
        await shows(pilot, "val_accuracy A n/a B n/a", after=("left", "home"))
        await shows(pilot, "step 80   val_accuracy A 0.800 B 0.900", after="end")
        await pilot.press("x", "end")
        assert screen.axis is Axis.EPOCH
        await shows(pilot, "epoch 8   val_accuracy A 0.800 B 0.900")
        await pilot.press("escape")
        assert screen.cursor is None

        before = [curve for curve in screen.read_curves if curve.name.endswith("loss")]
        await shows(pilot, "since start", after="|")
        after = [curve for curve in screen.read_curves if curve.name.endswith("loss")]
        for axis in Axis:
            for old, new in zip(before, after, strict=True):
                assert (new.along(axis) == old.along(axis) - old.along(axis)[0]).all()
        await until(pilot, lambda: "since start" not in screen_text(pilot), after="|")


async def test_a_run_is_compared_with_those_of_its_preset_or_those_selected_in_the_list() -> None:
    runs = [made_run(rising(0.8 + n / 50), label=label) for n, label in enumerate(("one", "two", "one"))]
    async with ConsoleApp().run_test(size=(120, 40)) as pilot:
        await opens(pilot, SetupScreen)
        await opens(pilot, RunsScreen, after="ctrl+l")
        await shows(pilot, "val_accuracy")
        for keys, compared in ((), runs[::-2]), (("down", "space", "home"), runs[:0:-1]):  # the one in the middle
            await pilot.press(*keys, "enter")
            live = await opens(pilot, LiveScreen)
            await until(pilot, lambda: live.is_over)  # noqa: B023  called at once
            await pilot.press("c")
            screen = await shown(pilot)
            assert [one.run for one in overviews(screen)] == compared
            assert (await opens(pilot, LiveScreen, after=("down", "enter"))).run_directory == compared[1]
            await opens(pilot, CompareScreen, after="escape")
            await opens(pilot, RunsScreen, after=("escape", "escape"))


async def test_a_running_run_grows_and_a_damaged_one_takes_part() -> None:
    engine, damaged = FakeEngine(), create_run("damaged")
    damaged.journal.write_bytes(b"\x00garbage\n")
    engine.begin(1)
    async with ConsoleApp(compared=[engine.run, damaged]).run_test(size=(120, 40)) as pilot:
        screen = await shown(pilot)
        await shows(pilot, "running", "not started")
        engine.train(2)
        screen.action_reload()
        await until(pilot, lambda: overviews(screen)[0].facts.epochs_done == 2)


async def test_twenty_runs_fit_on_a_small_screen_and_space_shows_and_hides_a_curve() -> None:
    runs = [made_run(rising(0.5 + n / 50), epochs=n + 2) for n in range(20)]
    async with ConsoleApp(compared=runs).run_test(size=(80, 24)) as pilot:
        screen = await shown(pilot)
        assert screen.query_one(ResultTable).row_count == 20
        assert screen.grid.size.height >= 6
        assert {curve.name[0] for curve in screen.read_curves} == set("OPQRST"), "the curves of the best six"
        hidden = "14 runs without curves; space shows one."
        await until(pilot, lambda: hidden in " ".join(screen_text(pilot).split()))  # once its second row is laid out
        for is_shown in (True, False):
            await pilot.press("space")
            await until(pilot, lambda: ("A" in {curve.name[0] for curve in screen.read_curves}) == is_shown)  # noqa: B023
        await pilot.press("p")
        differences = screen.query_one("#differences Static", Static)
        await until(pilot, lambda: "21: T" in str(differences.render()))


async def test_the_range_follows_the_good_runs_and_the_bad_one_is_marked_at_the_edge() -> None:
    curves = [[0.98 - 0.2 / (epoch + 2) + run / 500 for epoch in range(20)] for run in range(3)] + [[0.1] * 20]
    runs = [made_run([{"val_accuracy": value} for value in curve]) for curve in curves]
    async with ConsoleApp(compared=runs).run_test(size=(120, 40)) as pilot:
        screen = await shown(pilot)
        await shows(pilot, "▼ 0.100")
        scene = screen.grid.on_page[0]._scene
        assert scene is not None
        assert scene.y.ends[0] > 0.8


def test_every_run_has_a_letter_and_the_first_eight_have_unique_colors() -> None:
    theme = ConsoleApp().current_theme
    pens = [run_pen(mark, theme) for mark in "ABCDEFGHIJKLMNOPQRST"]
    assert len({pen.glyph for pen in pens}) == 20
    assert len({pen.color for pen in pens[:8]}) == 8


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> list[RunDirectory]:
    home = tmp_path_factory.mktemp("hostile")
    make_all(home)
    return list_runs(home / "runs")


@pytest.mark.parametrize("part", range(3))
async def test_hostile_runs_are_compared_without_harm(part: int, hostile: list[RunDirectory]) -> None:
    runs = hostile[part::3][:20]
    comparison = read_comparison(runs)
    texts = [as_json(comparison), as_csv(comparison), *as_markdown(comparison), *as_text(comparison, 80)]
    assert not UNSAFE & {*"".join(texts)}
    async with ConsoleApp(compared=runs).run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        for key in ("p", "pagedown", "x", "end"):
            await pilot.press(key)
            assert not UNSAFE & {*screen_text(pilot)}
