"""The charts of the live screen: pages, filter, cursor, window, and what is remembered."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from textual._compositor import Compositor, LayoutUpdate
from textual.pilot import Pilot

from tests.tui.live_fakes import FakeEngine, each_size, live, opens, screen_text, shows, until
from tpu_console.engine.runs.events import EpochEnded, FitStarted, InputMeasured, Progress
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.charts.chart import MetricChart
from tpu_console.tui.charts.curve import Axis, Mode, Window
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.screens.live_charts import VIEWS, ChartView
from tpu_console.tui.screens.runs import RunsScreen
from tpu_console.tui.widgets.basics import PaneTabs
from tpu_console.tui.widgets.chart_grid import curves_of, read_curves

ALL_TITLES = ["loss", "accuracy", "learning rate", "speed", "step time"]


@pytest.fixture
def engine(engine: FakeEngine) -> FakeEngine:
    engine.begin(4)
    return engine


def shown(pilot: Pilot[int]) -> list[str]:
    """The titles of the charts on the page."""
    return [chart.title for chart in live(pilot).grid.on_page]


async def page_has(pilot: Pilot[int], *titles: str, after: str | Sequence[str] = ()) -> None:
    """Press a key, or several, and wait until the page has the charts of these titles."""
    await until(pilot, lambda: shown(pilot) == [*titles], after=after)


def opened(engine: FakeEngine, size: tuple[int, int] = (80, 24)) -> AbstractAsyncContextManager[Pilot[int]]:
    return ConsoleApp(run=engine.run).run_test(size=size)


def saved_view() -> ChartView:
    return VIEWS.get("digits-cnn") or ChartView()


async def until_read(pilot: Pilot[int]) -> None:
    await until(pilot, lambda: len(shown(pilot)) > 1 and "speed" in live(pilot).curves)


def events() -> Iterator[object]:
    yield Progress(1, 10, 10, 1.0, {"accuracy": 0.5, "loss": 2.0})
    logs = {"accuracy": 0.5, "loss": 2.0, "val_loss": 2.1, "val_f1": 0.3}
    yield EpochEnded(1, 20, 20, 2.0, 2.0, 1.0, 0.1, None, None, 0.002, logs)
    yield InputMeasured(1, 20, 2.0, 20, 0.5, 1.0, "input")


def test_every_metric_has_a_chart_and_a_figure_only_once_it_is_measured() -> None:
    state = RunState()
    for event in events():
        state = reduce(state, event, 1.0)  # type: ignore[arg-type]  # any event
    assert [*curves_of(state)] == ["loss", "accuracy", "f1", "learning rate", "input wait"]
    timed = EpochEnded(2, 40, 20, 4.0, 2.0, 1.0, 0.1, 50.0, 640.0, 0.001, {"loss": 1.0})
    state = reduce(state, timed, 2.0)
    assert [*curves_of(state)][3:] == ["learning rate", "speed", "step time", "input wait"]
    (speed,) = curves_of(state)["speed"]
    assert (speed.name, speed.step.tolist(), speed.value.tolist()) == ("examples/s", [40.0], [640.0])
    assert [curve.name for curve in curves_of(state)["loss"]] == ["loss", "val_loss"]
    names = [curve.name for curve in read_curves(curves_of(state), ["f1", "step time"])]
    assert names == ["val_f1", "ms/step", "lr", "loss", "val_loss", "accuracy"]


def test_the_first_epoch_has_speeds_between_its_reports() -> None:
    state = reduce(RunState(), FitStarted(2, 100, 32, 32, 1), 0.0)
    for step, at in ((10, 1.0), (20, 2.0), (40, 3.0)):
        state = reduce(state, Progress(1, step, step, at, {"loss": 1.0}), at)
    assert [*curves_of(state)] == ["loss", "speed", "step time"]
    (speed,), (step_time,) = curves_of(state)["speed"], curves_of(state)["step time"]
    assert step_time.value.tolist() == [100.0, 50.0]
    assert (speed.step.tolist(), speed.value.tolist()) == ([20.0, 40.0], [320.0, 640.0])


async def test_as_many_charts_as_fit_and_pages_of_the_others(engine: FakeEngine) -> None:
    counts = {(60, 24): 1, (120, 40): 2, (200, 50): 4}
    async with opened(engine) as pilot:
        async for size in each_size(pilot, *counts):
            count = counts[size]
            await page_has(pilot, *ALL_TITLES[:count])
            await until(pilot, lambda: all(chart.region.area for chart in live(pilot).grid.on_page))
            await shows(pilot, "of 5 · PgUp PgDn")
            await page_has(pilot, *ALL_TITLES[count : 2 * count], after="pagedown")
            await until(pilot, lambda: shown(pilot)[-1] == "step time", after=["pagedown"] * (5 // count))
            await page_has(pilot, *ALL_TITLES[:count], after=["pageup"] * (5 // count + 1))


async def test_charts_on_other_pages_get_no_samples(engine: FakeEngine) -> None:
    async with opened(engine) as pilot:
        await page_has(pilot, "loss", "accuracy")
        loss = live(pilot).grid.on_page[0]
        await until(pilot, lambda: shown(pilot)[0] == "learning rate", after="pagedown")
        engine.train(5)
        await until(pilot, lambda: len(live(pilot).snapshot.state.epochs) == 5)
        assert len(loss._curves[1].value) == 4
        await until(pilot, lambda: len(loss._curves[1].value) == 5, after="pageup")


async def test_filter(engine: FakeEngine) -> None:
    async with opened(engine, (120, 40)) as pilot:
        await until_read(pilot)
        await pilot.press("slash", *"^lr")  # the name of its curve
        await page_has(pilot, "learning rate")
        await page_has(pilot, "accuracy", "learning rate", after=("escape", "slash", *"acc|rate"))
        await shows(pilot, "2 of 5 charts match acc|rate", after="enter")
        await pilot.press("slash", "left_parenthesis")
        await until(pilot, lambda: live(pilot).query_one("#filter").has_class("-bad"))
        assert shown(pilot) == ["accuracy", "learning rate"]
        await page_has(pilot, "loss", "accuracy", after="escape")
        await shows(pilot, "no chart matches nothing", after=("slash", *"nothing", "enter"))
        await pilot.press("left", "z", "1", "plus", "f")  # nothing to act on, and nothing breaks
        assert shown(pilot) == []
        await pilot.press("escape", "0", "escape")
        await until(pilot, lambda: shown(pilot) == ["loss", "accuracy"] and "matches" not in screen_text(pilot))


async def test_one_cursor_for_all_charts_and_the_values_there(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[Compositor] = []
    render = Compositor.render_full_update

    def render_and_note(compositor: Compositor, simplify: bool = False) -> LayoutUpdate:
        whole.append(compositor)
        return render(compositor, simplify)

    monkeypatch.setattr(Compositor, "render_full_update", render_and_note)
    async with opened(engine, (120, 40)) as pilot:
        await until_read(pilot)
        await shows(pilot, "step 80 · epoch 4", "0.5000", "lr 0.002", after="left")
        assert {chart.cursor for chart in live(pilot).grid.on_page} == {live(pilot).cursor}
        assert whole
        whole.clear()
        await pilot.press(*["left"] * 5)
        await shows(pilot, "step 60 · epoch 3")
        assert not whole, "moving the cursor does not draw the whole screen again"
        await shows(pilot, "step 4 · epoch", after="home")
        await shows(pilot, "step 8 · epoch", after="right")
        await pilot.press("shift+right")  # by a tenth of 76 steps
        await shows(pilot, "step 16 · epoch")
        for keys in (["g"], ["g", "g"]):  # to the star, and back around to it
            await until(pilot, lambda: live(pilot).cursor == 60.0, limit_s=5, after=keys)
        await shows(pilot, "Go to step", after="colon")
        await pilot.press(*"x", "enter")
        await shows(pilot, "Enter a number")
        await opens(pilot, LiveScreen, after=("backspace", *"39", "enter"))
        await until(pilot, lambda: live(pilot).cursor == 40.0)
        await until(pilot, lambda: live(pilot).cursor == 60.0, limit_s=5, after="g")
        await shows(pilot, "step 60 · epoch 3", after="x")
        assert live(pilot).axis is Axis.EPOCH
        await until(pilot, lambda: "step 80 ·" not in screen_text(pilot), after=("end", "escape"))


async def test_the_mouse_moves_one_cursor_and_one_window_for_all_charts(engine: FakeEngine) -> None:
    async with opened(engine, (120, 40)) as pilot:
        await until_read(pilot)
        screen = live(pilot)
        await until(pilot, lambda: all(chart.region.area for chart in screen.grid.on_page))
        await pilot.hover(screen.grid.on_page[0], offset=(30, 8))
        await until(pilot, lambda: screen.cursor is not None)
        assert {chart.cursor for chart in screen.grid.on_page} == {screen.cursor}
        await pilot.click(screen.grid.on_page[1], offset=(30, 8))
        await pilot.hover("#header")
        assert screen.cursor is not None, "a click puts it down"
        window = Window(Mode.FIXED, 20.0, 40.0)
        screen.grid.on_page[1].post_message(MetricChart.WindowChanged(window))
        await until(pilot, lambda: {chart.window for chart in screen.grid.on_page} == {window})


async def test_keys_zoom_pan_follow_and_choose_the_range(engine: FakeEngine) -> None:
    async with opened(engine, (120, 40)) as pilot:
        await until_read(pilot)
        screen = live(pilot)
        await until(pilot, lambda: screen.window == Window(Mode.FOLLOW, 42.0, 80.0), after="f")
        await until(pilot, lambda: screen.window.mode is Mode.FIXED, after="comma")
        assert {chart.window for chart in screen.grid.on_page} == {screen.window}
        before = screen.window
        await until(pilot, lambda: screen.window.right - screen.window.left < before.right - before.left, after="plus")
        await until(pilot, lambda: screen.window == Window(), after=("minus", "full_stop", "0"))
        await until(pilot, lambda: all(chart.is_full for chart in screen.grid.on_page), after="v")
        await pilot.press("f", "home", "shift+left")  # the window goes with the cursor
        await until(pilot, lambda: screen.window.mode is Mode.FIXED)
        assert screen.cursor is not None
        assert screen.window.left <= screen.cursor <= screen.window.right
        await pilot.press("escape", "escape")

        chart = screen.grid.on_page[0]
        await shows(pilot, "┤")  # a chart that was never drawn has no axis to zoom
        await until(pilot, lambda: chart.y_ends is not None, after="shift+up")
        low, high = chart.y_ends or (0.0, 0.0)
        await pilot.press("ctrl+up")
        await until(pilot, lambda: chart.y_ends == pytest.approx((low + (high - low) / 10, high + (high - low) / 10)))
        await until(pilot, lambda: chart.y_ends is None, after="escape")


async def test_escape_leaves_the_cursor_then_the_window_then_the_zoomed_chart(engine: FakeEngine) -> None:
    async with opened(engine) as pilot:
        await until_read(pilot)
        screen = live(pilot)
        await pilot.press("2", "f", "left")
        await until(pilot, lambda: (shown(pilot), screen.cursor is not None) == (["accuracy"], True))
        await page_has(pilot, "learning rate", after="pagedown")
        assert screen.focused is screen.grid.on_page[0]
        await shows(pilot, "chart 3 of 5 · PgUp PgDn", after="escape")
        await until(pilot, lambda: screen.cursor is None and screen.window != Window())
        await until(pilot, lambda: screen.window == Window() and len(shown(pilot)) == 1, after="escape")
        await page_has(pilot, "learning rate", "speed", after="escape")
        await opens(pilot, RunsScreen, after="escape")


async def test_order_axis_and_pane_are_kept_for_the_next_run_of_the_preset_but_not_smoothing(
    engine: FakeEngine, tmp_path: Path
) -> None:
    async with opened(engine, (120, 40)) as pilot:
        await until_read(pilot)
        await page_has(
            pilot, "accuracy", "loss", after=("4", "escape", "2", "escape", "less_than_sign", "l", "s", "x", "asterisk")
        )
        await page_has(pilot, "learning rate", "accuracy", after=("pagedown", "1", "escape", "circumflex_accent"))
        await page_has(pilot, "learning rate", "speed", after=("greater_than_sign", "greater_than_sign"))
    assert saved_view().marker == "block"
    other = FakeEngine(tmp_path / "more")
    other.begin(1)
    async with opened(other, (120, 40)) as pilot:
        await page_has(pilot, "accuracy", "loss")
        screen = live(pilot)
        await until(pilot, lambda: screen.marker == "block")
        assert (screen.log_scale, screen.smoothing, screen.axis) == (False, 0.0, Axis.EPOCH)
        assert screen.query_one(PaneTabs).current == "replicas"


async def test_a_view_of_another_version_is_not_used(engine: FakeEngine) -> None:
    VIEWS.put("digits-cnn", ChartView(axis="parsecs", order=("accuracy",)))
    async with opened(engine) as pilot:
        await until_read(pilot)
        assert shown(pilot)[0] == "loss"
        await until(pilot, lambda: saved_view().axis == "epoch", after="x")


async def test_a_terminal_that_needs_ascii_does_not_change_the_remembered_marker(engine: FakeEngine) -> None:
    VIEWS.put("digits-cnn", ChartView(marker="block"))
    async with ConsoleApp(run=engine.run, marker="ascii").run_test(size=(120, 40)) as pilot:
        await until_read(pilot)
        await until(pilot, lambda: saved_view().axis == "epoch", after="x")
        assert live(pilot).marker == "ascii"
    assert saved_view().marker == "block"


async def test_a_key_before_the_remembered_view_is_read_changes_only_its_own_part(tmp_path: Path) -> None:
    VIEWS.put("digits-cnn", ChartView(marker="block", order=("accuracy",), pane="replicas"))
    engine = FakeEngine(tmp_path / "more")
    async with ConsoleApp(run=engine.run).run_test(size=(120, 40)) as pilot:
        await opens(pilot, LiveScreen)
        await until(pilot, lambda: live(pilot).axis is Axis.EPOCH, after="x")
        engine.begin(1)
        await until(pilot, lambda: saved_view().axis == "epoch")
        assert saved_view() == ChartView("epoch", "block", ("accuracy",), "replicas")
