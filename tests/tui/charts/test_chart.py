import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from textual import on
from textual.app import App, ComposeResult
from textual.events import Click, MouseEvent, MouseScrollUp
from textual.pilot import Pilot
from textual.widgets import Static

from tests.record import of_each, same_text
from tests.tui.live_fakes import until
from tests.tui.made_runs import made_curve
from tpu_console.tui.charts.chart import MetricChart, RedrawGate
from tpu_console.tui.charts.curve import Axis, Curve, FloatArray, Mode, Place, Window
from tpu_console.tui.charts.frame import Mark, MarkKind
from tpu_console.tui.terminal.display import in_ascii

BRAILLE = {chr(code) for code in range(0x2801, 0x2900)}


class FakeClock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class OneChart(App[None]):
    """Passes the messages of its chart back, as the live screen does."""

    CSS = "Static { height: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()

    @on(MetricChart.CursorMoved)
    def _take_cursor(self, message: MetricChart.CursorMoved) -> None:
        self.chart.cursor = message.x

    @on(MetricChart.WindowChanged)
    def _take_window(self, message: MetricChart.WindowChanged) -> None:
        self.chart.window = message.window

    def compose(self) -> ComposeResult:
        yield Static("beside")
        yield MetricChart("loss", clock=self.clock)

    @property
    def chart(self) -> MetricChart:
        return self.query_one(MetricChart)

    async def draw(self, pilot: Pilot[None], *curves: Curve, **settings: Sequence[Mark] | Sequence[Curve]) -> list[str]:
        """Show curves a minute after the last redraw, when nothing holds the next one back; return the rows."""
        self.clock.now_s += 60
        self.chart.show(curves, **settings)  # type: ignore[arg-type]
        self.chart.refresh()
        await pilot.pause()
        return shown(self.chart)

    async def send_mouse(self, pilot: Pilot[None], event: type[MouseEvent], x: int, y: int) -> None:
        left, top = self.chart.region.offset
        self.chart.post_message(event(self.chart, x, y, 0, 0, 0, False, False, False, left + x, top + y))
        await pilot.pause()


@asynccontextmanager
async def drawn(*curves: Curve, size: tuple[int, int] = (80, 24)) -> AsyncIterator[tuple[OneChart, Pilot[None]]]:
    """An app whose chart has a size, with some curves."""
    app = OneChart()
    async with app.run_test(size=(size[0], size[1] + 1)) as pilot:
        if curves:
            await app.draw(pilot, *curves)
        yield app, pilot


def shown(chart: MetricChart) -> list[str]:
    """The pane's rows as they stand on the screen."""
    return [strip.text for strip in chart.render_lines(chart.size.region)]


def falling(n: int) -> FloatArray:
    """A loss with some noise."""
    noise = np.random.default_rng(0).normal(0, 0.05, n)
    return 0.5 + 2 * np.exp(-np.arange(n) / n * 5) + noise


def with_value(at: int, value: float) -> Curve:
    """That loss with another value somewhere."""
    values = falling(500)
    values[at] = value
    return made_curve("loss", values)


LOSS, VAL = made_curve("loss", falling(500)), made_curve("val_loss", [1.5, 0.9, 0.8], [160, 320, 480])
_MARK = Mark(MarkKind.LEARNING_RATE, Place(262, 2.62, 524.0), "lr 1e-4")
_TENTHS = [10.0, 1.0, 0.1, 0.01]
CASES: dict[str, tuple[Sequence[Curve], dict[str, Any]]] = {
    "both curves": ([LOSS, VAL], {}),
    "ASCII, smoothed, with NaN": ([with_value(250, math.nan), VAL], {"marker": "ascii", "smoothing": 0.9}),
    "blocks": ([LOSS, VAL], {"marker": "block"}),
    "smoothed": ([LOSS], {"smoothing": 0.95}),
    "some NaN": ([made_curve("loss", [1.0, 0.8, math.nan, math.inf, 0.5, math.nan])], {}),
    "only NaN": ([made_curve("loss", [math.nan, math.nan])], {}),
    "logarithmic": ([made_curve("loss", _TENTHS)], {"log_scale": True}),
    "logarithmic, something hidden": ([made_curve("loss", [*_TENTHS, 0.0])], {"log_scale": True}),
    "never logarithmic": ([made_curve("accuracy", [0.1, 0.5, 0.9])], {"log_scale": True}),
    "a learning rate": ([made_curve("learning_rate", [0.1, 0.01, 0.001])], {}),
    **{f"over {axis.value}": ([LOSS], {"axis": axis}) for axis in Axis},
    "a part of the run": ([LOSS], {"window": Window(Mode.FIXED, 100, 200), "cursor": 250.0}),
    "the newest part": ([LOSS], {"window": Window(Mode.FOLLOW, 0, 50), "cursor": 480.0}),
    "a spike": ([with_value(0, 60.0)], {}),
    "spikes in ASCII": ([with_value(0, 60.0), made_curve("val_loss", [-9.0] * 9, range(9, 18))], {"marker": "ascii"}),
    "a spike in full": ([with_value(0, 60.0)], {"is_full": True}),
    "zoomed": ([LOSS], {"y_ends": (0.4, 0.8)}),
    "zoomed, logarithmic": ([LOSS], {"log_scale": True, "y_ends": (-0.5, 1.0)}),
    "near the start": ([made_curve("loss", [2.0, 1.0], [20, 500])], {}),
    "not near the start": ([made_curve("loss", [2.0, 1.0], [30, 500])], {}),
    "one sample": ([made_curve("loss", [2.0], [7])], {}),
    "nothing": ([made_curve("loss", [])], {}),
}


async def texts() -> str:
    rows = {}
    for name, (curves, settings) in CASES.items():
        async with drawn(size=(64, 12)) as (app, pilot):
            for setting, value in settings.items():
                setattr(app.chart, setting, value)
            rows[name] = await app.draw(pilot, *curves, marks=[_MARK] if name.startswith("over") else [])
    async with drawn(size=(64, 12)) as (app, pilot):
        rows["as long as another chart"] = await app.draw(pilot, made_curve("auc", [0.1, 0.2]), ruler=[LOSS])
    for size in ((40, 12), (120, 16), (12, 5), (8, 4), (5, 2), (1, 1)):
        async with drawn(LOSS, VAL, size=size) as (app, _):
            rows["{} × {}".format(*size)] = shown(app.chart)
    return of_each({name: [line.rstrip() for line in lines] for name, lines in rows.items()})


async def test_before_the_first_step_it_says_what_it_waits_for() -> None:
    async with drawn(made_curve("loss", [])) as (app, pilot):
        (strip,) = [strip for strip in app.chart.render_lines(app.chart.size.region) if "waiting" in strip.text]
        assert abs(strip.text.index("waiting") - (80 - 26) // 2) <= 1
        assert next(iter(strip)).style != app.chart.rich_style, "it is not dim"
        # The first points are drawn immediately; later ones wait until the gate lets them through.
        app.chart.show([made_curve("loss", [3.0, 2.0])])
        await pilot.pause()
        assert "train 2.000" in shown(app.chart)[0]
        app.chart.show([made_curve("loss", [3.0, 2.0, 1.0])])
        await pilot.pause()
        assert "train 2.000" in shown(app.chart)[0]
        app.clock.now_s += 1.0
        await until(pilot, lambda: "train 1.000" in shown(app.chart)[0])  # the chart's timer
        # A curve that begins again replaces the earlier one.
        assert "train 5.000" in (await app.draw(pilot, made_curve("loss", [7.0, 6.0, 5.0])))[0]


async def test_pictures_are_as_recorded() -> None:
    same_text("charts.txt", await texts())


@pytest.mark.parametrize("log_scale", [False, True])
async def test_the_ascii_pane_is_ascii(log_scale: bool) -> None:
    async with drawn() as (app, pilot):
        app.chart.marker, app.chart.smoothing = "ascii", 0.6
        app.chart.log_scale, app.chart.title = log_scale, "précision"
        rows = await app.draw(pilot, with_value(250, math.nan), VAL, made_curve("mae", [1.0]))
        assert "?" not in in_ascii("".join(rows)).replace("pr?cision", ""), "every character has a lookalike"
        glyphs = set(in_ascii("".join(rows[1:])))
        assert {"*", ".", "!", "+", "|", "-"} <= glyphs
        assert "@" in glyphs, "the best epoch does not look like the curve"


async def test_text_and_background_are_the_themes_own() -> None:
    async with drawn(made_curve("loss", falling(100))) as (app, pilot):
        for theme in ("textual-dark", "textual-light", "ansi-dark", "ansi-light"):
            app.theme = theme
            await pilot.pause()
            base = app.chart.rich_style
            parts = [part for y in range(24) for part in app.chart.render_line(y)]
            looks = [(part.text, part.style) for part in parts if part.style is not None]
            assert all(style.bgcolor == base.bgcolor for _, style in looks)
            assert all(style.color == base.color for text, style in looks if set(text) & {*"│┤└┬"})
            (color,) = {style.color for text, style in looks if set(text) & BRAILLE}
            assert (color is not None and color.triplet is None) is theme.startswith("ansi")


async def test_without_color_the_curves_differ_by_glyph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with drawn(made_curve("loss", falling(100)), made_curve("val_loss", [1.0, 0.6], [50, 100])) as (app, _):
        strips = app.chart.render_lines(app.chart.size.region)
        styles = [segment.style for strip in strips for segment in strip if segment.style is not None]
        colors = [style.color.triplet for style in styles if style.color is not None and style.color.triplet]
        assert all(red == green == blue for red, green, blue in colors)
        glyphs = {*"".join(shown(app.chart)[1:])}
        assert {"●", "★"} <= glyphs
        assert BRAILLE & glyphs


async def test_the_crosshair_is_drawn_over_the_same_picture_and_hides_no_curve() -> None:
    async with drawn(LOSS) as (app, pilot):
        before, row = shown(app.chart), app.chart.render_line(5)
        app.chart.cursor = 250.0
        await pilot.pause()
        after = shown(app.chart)
        assert app.chart.render_line(4) is not row
        assert f"train {LOSS.value[249]:.4f}" in after.pop(0)
        assert f"train {LOSS.value[-1]:.4f}" in (title := before.pop(0))
        column = after[-2].index("┴")
        changed = {(one[column], other[column]) for one, other in zip(before, after, strict=True)}
        assert {other for one, other in changed if one != other} == {"┊", "┴"}
        assert {one for one, other in changed if one != other} <= set(" ·─┬")
        beside = [[row[:column] + row[column + 1 :] for row in rows] for rows in (before, after)]
        assert beside[0] == beside[1]
        app.chart.cursor = None
        await pilot.pause()
        assert shown(app.chart) == [title, *before]


async def test_moving_the_crosshair_never_shows_half_of_a_new_picture() -> None:
    async with drawn(made_curve("loss", [1.0, 0.9])) as (app, pilot):
        app.chart.show([made_curve("loss", [1.0, 0.9, 0.25])])
        app.clock.now_s += 1.0  # the gate is open, but its timer has not fired
        app.chart.cursor = 9.0
        await pilot.pause()
        assert "train 0.9000" in shown(app.chart)[0]
        assert "2.5" not in shown(app.chart)[-1]
        while "train 0.2500" not in shown(app.chart)[0]:
            app.clock.now_s += 0.1
            await pilot.pause(0.01)


async def test_a_moved_crosshair_leaves_nothing_behind_inside_a_border() -> None:
    async with drawn() as (app, pilot):
        app.chart.styles.border = ("round", "white")
        await app.draw(pilot, made_curve("loss", [1.0] * 500))
        whole = app.chart.outer_size.region
        columns = []
        for x in (100.0, 300.0):
            app.chart.cursor = x
            await pilot.pause()
            rows = ["".join(segment.text for segment in strip) for strip in app.chart.render_lines(whole)]
            columns.append({row.index("┊") for row in rows if "┊" in row})
            # All rows of the plot but the one with the curve.
            assert sum("┊" in row for row in rows) == 24 - 2 - 1 - 2 - 1
            assert "┊" in rows[2]
        assert len(columns[0]) == len(columns[1]) == 1
        assert columns[0] != columns[1]


async def test_the_mouse_zooms_pans_and_shows_everything_again() -> None:
    async with drawn(LOSS) as (app, pilot):

        async def drag(x: int, y: int) -> None:
            await pilot.mouse_down(MetricChart, offset=(40, 10))
            await pilot.hover(MetricChart, offset=(x, y))
            await pilot.mouse_up(MetricChart, offset=(x, y))

        await app.send_mouse(pilot, MouseScrollUp, 40, 10)
        zoomed = app.chart.window
        assert zoomed.mode is Mode.FIXED
        assert zoomed.right - zoomed.left == pytest.approx(499 / 1.25)
        await drag(45, 10)
        assert app.chart.window.left < zoomed.left
        await pilot.double_click(MetricChart, offset=(40, 10))
        assert app.chart.window == Window()

        await app.send_mouse(pilot, MouseScrollUp, 1, 10)  # over the labels of the vertical axis
        assert app.chart.window == Window()
        assert app.chart.y_ends is not None
        low, high = app.chart.y_ends
        assert "y zoom" in shown(app.chart)[0]
        await drag(40, 13)
        moved = app.chart.y_ends
        assert moved[0] > low
        assert moved[1] - moved[0] == pytest.approx(high - low)
        app.chart.zoom_y(2.0, moved[1])
        assert app.chart.y_ends == pytest.approx((sum(moved) / 2, moved[1]))
        for _ in range(60):
            app.chart.zoom_y(1.25, 1.0)
        await pilot.pause()
        assert "┤" in "".join(shown(app.chart)[1:])
        await pilot.double_click(MetricChart, offset=(40, 10))
        assert app.chart.y_ends is None


async def test_the_crosshair_follows_the_pointer_until_a_click_puts_it_down() -> None:
    async with drawn(LOSS) as (app, pilot):
        await pilot.hover(MetricChart, offset=(40, 10))
        first = app.chart.cursor
        assert first == int(first or 0.5), "the crosshair stands on a sample"
        await pilot.hover(MetricChart, offset=(50, 10))
        assert (app.chart.cursor or 0) > first
        await pilot.mouse_down(MetricChart, offset=(50, 10))
        await pilot.hover(MetricChart, offset=(55, 10))
        await pilot.mouse_up(MetricChart, offset=(55, 10))
        await app.send_mouse(pilot, Click, 55, 10)
        dragged = app.chart.cursor
        await pilot.hover(MetricChart, offset=(30, 10))
        assert app.chart.cursor != dragged, "a drag is not a click"
        # A drag that ends outside does not take the click that follows.
        await pilot.mouse_down(MetricChart, offset=(40, 10))
        await pilot.hover(MetricChart, offset=(45, 10))
        await pilot.mouse_up(Static)
        await pilot.click(MetricChart, offset=(60, 10))
        down = app.chart.cursor
        await pilot.hover(MetricChart, offset=(20, 10))
        assert app.chart.cursor == down is not None


async def test_the_legend_highlights_the_curve_under_the_pointer() -> None:
    async with drawn(made_curve("loss", [1.0] * 50), made_curve("val_loss", [2.0] * 50)) as (app, pilot):
        rows = shown(app.chart)
        for value, name in (("1.0", "train"), ("2.0", "val")):
            row = next(number for number, text in enumerate(rows) if text.lstrip().startswith(f"{value}┤"))
            await pilot.hover(MetricChart, offset=(44, row))
            header = app.chart.render_line(0)
            assert [s.text.split()[0] for s in header if s.style is not None and s.style.underline] == [name]


@pytest.mark.parametrize(("cost_s", "wait_s"), [(0.001, 0.25), (0.03, 1.0), (0.045, 1.5), (2.0, 2.0)])
def test_the_wait_grows_with_the_cost_up_to_a_limit(cost_s: float, wait_s: float) -> None:
    gate = RedrawGate(FakeClock())
    gate.drawn(cost_s)
    assert gate.wait_s() == pytest.approx(wait_s)


def test_a_held_redraw_waits_but_never_too_long() -> None:
    clock = FakeClock()
    gate = RedrawGate(clock)
    gate.drawn(0.0)
    while gate.wait_s() > 0.0:  # a key every tenth of a second
        gate.hold(0.3)
        clock.now_s += 0.1
    assert clock.now_s == pytest.approx(2.0, abs=0.15)
