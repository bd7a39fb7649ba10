"""A chart alone in an app, and the pictures of it that tests record in `tests/record/texts/charts.txt`."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from textual import on
from textual.app import App, ComposeResult
from textual.events import MouseScrollUp
from textual.widgets import Static

from tests.tui.made_runs import made_curve
from tpu_console.tui.charts.chart import MetricChart
from tpu_console.tui.charts.curve import Axis, Curve, FloatArray, Mode, Place, Window
from tpu_console.tui.charts.frame import Mark, MarkKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from textual.pilot import Pilot


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 0.0

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

    async def wheel_up(self, pilot: Pilot[None], x: int, y: int) -> None:
        """Turn the wheel over a cell of the chart."""
        left, top = self.chart.region.offset
        self.chart.post_message(MouseScrollUp(self.chart, x, y, 0, 0, 0, False, False, False, left + x, top + y))
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
    "a spike in full": ([with_value(0, 60.0)], {"is_full": True}),
    "zoomed": ([LOSS], {"y_ends": (0.4, 0.8)}),
    "nothing": ([made_curve("loss", [])], {}),
}


async def chart_rows() -> dict[str, list[str]]:
    """Return the rows of all cases by name; the axis of the last ones is as long as that of another chart."""
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
    return rows
