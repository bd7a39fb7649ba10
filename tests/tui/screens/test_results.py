"""The screens that compare runs, and show the class report of one."""

import base64
import json
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from tests.helpers import replace
from tests.hostile_runs import UNSAFE, make_all
from tests.tui.live_fakes import FakeEngine, each_size, opens, resize, screen_text, shows, until
from tests.tui.made_runs import even_report, made_run
from tpu_console.engine.runs.class_report import ClassReport
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.runs.run_directory import RunDirectory, create_run, list_runs
from tpu_console.engine.storage.files import write_whole
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.charts.curve import Axis
from tpu_console.tui.following.comparison import as_csv, as_json, as_markdown, as_text, read_comparison
from tpu_console.tui.following.overview import Overview
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.screens.results import CompareScreen, MatrixPane, PicturesPane, ResultTable
from tpu_console.tui.screens.runs import RunsScreen
from tpu_console.tui.screens.setup import SetupScreen
from tpu_console.tui.widgets.chart_grid import run_pen
from tpu_console.tui.widgets.record_table import RecordTable

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


PLANTS = ["healthy", "multiple_diseases", "rust", "scab"]


@pytest.fixture
def engine(engine: FakeEngine) -> FakeEngine:
    engine.begin(1)
    return engine


def finish(engine: FakeEngine, report: ClassReport) -> None:
    write_whole(engine.run.report, json.dumps(report.as_dict()))
    engine.write(RunFinished("completed", "all epochs are done", {"classes": report.as_dict(is_brief=True)}))


async def test_the_panes_open_from_the_live_screen_one_at_a_time_without_room(engine: FakeEngine) -> None:
    finish(engine, even_report(PLANTS))
    async with ConsoleApp(run=engine.run).run_test(size=(200, 50)) as pilot:
        await shows(pilot, "balanced accuracy 0.8000", "healthy → multiple_diseases")
        async for _ in each_size(pilot, (200, 50), (80, 24)):
            await shows(pilot, "m Matrix")
        await shows(pilot, "400 validation examples", "multiple_diseases", "predicted class", after="m")
        matrix = pilot.app.screen.query_one(MatrixPane)
        assert matrix.has_focus
        row = matrix.row(1)
        looks = [(text.strip(), look) for text, look in row[1:]]
        assert looks == [("·", "faint"), ("90", "hit5"), ("10", "miss2"), ("·", "faint")]
        await shows(pilot, "precision", "0.833", "━", after="p")
        assert pilot.app.screen.query_one(RecordTable).has_focus
        await shows(pilot, "scab → healthy (10×, 10% of them)", after="3")
        assert pilot.app.screen.query_one("#mistakes").has_focus
        assert "0.833" not in screen_text(pilot)
        await shows(pilot, "predicted class", after="p")
        await resize(pilot, (120, 40))
        await shows(pilot, "400 validation examples", "predicted class", "precision", "→ healthy (10×")
        assert "1 matrix  2 classes" not in screen_text(pilot)
        await opens(pilot, LiveScreen, after="escape")


async def test_every_output_of_a_model_has_its_report(engine: FakeEngine) -> None:
    side = replace(even_report(["left", "right"]), output="side")
    finish(engine, replace(even_report(PLANTS), output="kind", others=(side,)))
    async with ConsoleApp(run=engine.run).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "m Matrix")
        await pilot.press("m")
        for output, text in (("kind", "400 validation"), ("side", "200 validation"), ("kind", "400 validation")):
            await shows(pilot, f"{output}: {text}", "h Output")
            await pilot.press("h")
        await opens(pilot, LiveScreen, after="escape")


PICTURES = [
    {"caption": f"rust → scab {number}", "height": 2, "width": 2, "rgb": base64.b64encode(bytes(range(12))).decode()}
    for number in range(3)
]


@pytest.mark.parametrize(
    ("marker", "mark"), [("braille", "▀"), ("ascii", "@")], ids=["half blocks", "shades without color"]
)
async def test_mistakes_are_drawn_as_pictures(engine: FakeEngine, marker: str, mark: str) -> None:
    finish(engine, even_report([*PLANTS[:3], "健康"] if marker == "ascii" else PLANTS))
    write_whole(engine.run.mistakes, json.dumps(PICTURES))
    async with ConsoleApp(run=engine.run, marker=marker).run_test(size=(200, 50)) as pilot:
        await shows(pilot, "m Matrix")
        await shows(pilot, "predicted class", "worst first", "scab 0", "scab 2", mark, after="m")
        assert marker != "ascii" or screen_text(pilot).isascii()
        await until(pilot, lambda: pilot.app.screen.query_one(PicturesPane).has_focus, after="4")
        await pilot.resize_terminal(80, 24)  # the focused pane is the one that stays
        await shows(pilot, "4 pictures", "scab 0")
        assert pilot.app.screen.query_one(PicturesPane).has_focus


async def test_many_classes_scroll_and_keep_the_names_of_their_rows(engine: FakeEngine) -> None:
    finish(engine, even_report([f"kind {n}" for n in range(300)]))
    async with ConsoleApp(run=engine.run).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "m Matrix")
        await shows(pilot, "0 kind 0", "1 kind 1", after="m")
        pane = pilot.app.screen.query_one(MatrixPane)
        pane.scroll_to(x=pane.max_scroll_x, y=pane.max_scroll_y, animate=False)
        await shows(pilot, "299 kind 299", " 299 ", " 90")
        last = next(line for line in screen_text(pilot).splitlines() if "299 kind 299" in line)
        assert last.split()[-2] == "90"
        await shows(pilot, "kind 0 ", after="p")
        assert pilot.app.screen.query_one(RecordTable).row_count == 300


async def test_a_missing_or_damaged_report_is_an_error(engine: FakeEngine) -> None:
    finish(engine, even_report(PLANTS))
    async with ConsoleApp(run=engine.run).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "m Matrix")
        engine.run.report.unlink()
        await shows(pilot, "missing", after="m")
        await opens(pilot, LiveScreen, after="escape")
        engine.run.report.write_text("{")
        await shows(pilot, "damaged", after="m")
