"""The class report on a screen, over the live screen of a run that has ended."""

import base64
import json

import pytest

from tests.helpers import replace
from tests.tui.live_fakes import FakeEngine, each_size, opens, resize, screen_text, shows, until
from tests.tui.made_runs import even_report
from tpu_console.engine.runs.class_report import ClassReport
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.storage.files import write_whole
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.screens.report import MatrixPane, PicturesPane
from tpu_console.tui.widgets.record_table import RecordTable

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
