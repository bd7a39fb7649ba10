"""Charts on pages, as many on each as fit: those of the live screen, and those of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from rich.style import Style
from rich.text import Text
from textual.containers import Container
from textual.message import Message

from tpu_console.engine.runs.curves import Curves, Samples
from tpu_console.engine.runs.metrics import Metric, MetricKind

from ..charts.chart import MetricChart
from ..charts.curve import Axis, Curve, Extent, FloatArray, Series, extent_of
from ..charts.frame import Legend, legends_of
from ..charts.scale import format_value
from ..charts.scene import SLOTS, Marker, Pen, pen_for, style_of, tone_of
from ..text.numbers import clock

if TYPE_CHECKING:
    import re

    from textual.events import Resize
    from textual.theme import Theme

    from tpu_console.engine.runs.state import RunState

    from ..charts.frame import Mark
    from ..charts.scene import DrawnCurve
    from ..following.comparison import ComparedRun

_SHARE_OF_A_CORE = 0.02  # all charts of a page together
_WIDTHS = ((230, 3), (76, 2), (0, 1))
_ROWS_OF_A_CHART = 16
_MOST_ROWS = 2


class ChartGrid(Container):
    """Pages of charts. Only those on the current page get samples, so that the others cost nothing.

    Each is a `kind` of chart, to which `apply_look` gives the look that the user has chosen.
    """

    class Rearranged(Message):
        """Other charts are shown, or the charts have changed places."""

    def __init__(self, apply_look: Callable[[MetricChart], None], kind: type[MetricChart] = MetricChart) -> None:
        super().__init__(id="charts")
        self._apply_look, self._kind = apply_look, kind
        self._curves: Mapping[str, Sequence[Curve]] = {}
        self._marks: Sequence[Mark] = ()
        self._charts: dict[str, MetricChart] = {}
        self._columns, self._rows = 1, 1
        self._anchor = 0  # the number of a chart on the page
        self._pattern: re.Pattern[str] | None = None
        self.order: tuple[str, ...] = ()
        self.zoomed = ""

    @property
    def on_page(self) -> list[MetricChart]:
        return [self._charts[title] for title in self._page()]

    @property
    def place(self) -> str:
        """Which of the charts are on the page; empty if all are."""
        titles, page = self._matching(), self._page()
        if not 0 < len(page) < len(titles):
            return ""
        first, last = titles.index(page[0]) + 1, titles.index(page[-1]) + 1
        return f"chart {first if first == last else f'{first}–{last}'} of {len(titles)} · PgUp PgDn"

    @property
    def found(self) -> str:
        """How many charts match the filter; empty before there is any."""
        if not self._curves:
            return ""
        matching = len(self._matching())
        return f"{matching} of {len(self._curves)} charts match" if matching else "no chart matches"

    def title_at(self, place: int) -> str:
        """Return the title of the chart at a place of the page, from 1, zoomed or not; empty if there is none."""
        titles = self._matching()[self._first :][: self._capacity]
        return titles[place - 1] if place <= len(titles) else ""

    def show(self, curves: Mapping[str, Sequence[Curve]], marks: Sequence[Mark] = ()) -> None:
        """Show curves by title: new titles get a chart, visible charts their samples."""
        update = self._feed if [*curves] == [*self._curves] else self._arrange
        self._curves, self._marks = curves, marks
        update()

    def filter(self, pattern: re.Pattern[str] | None) -> None:
        """Show only charts whose title, or the name of a curve, matches."""
        self._pattern, self._anchor = pattern, 0
        self._arrange()

    def reorder(self, order: Sequence[str]) -> None:
        """Put the charts of these titles first, in this order."""
        self.order = tuple(order)
        self._arrange()

    def move(self, title: str, by: int) -> None:
        """Move a chart by places among the charts that match the filter; its page follows it."""
        titles = self._matching()
        at = titles.index(title)
        titles.insert(max(0, at + by), titles.pop(at))
        self._anchor = titles.index(title)
        self.reorder([*titles, *(other for other in self._ordered() if other not in titles)])

    def turn(self, pages: int) -> None:
        """Go on by pages, or by charts if one is zoomed; stop at both ends."""
        titles = self._matching()
        if self.zoomed:
            at = titles.index(self.zoomed) if self.zoomed in titles else 0
            self.zoomed = titles[min(max(0, at + pages), len(titles) - 1)] if titles else ""
        else:
            self._anchor = max(0, min(self._first + pages * self._capacity, len(titles) - 1))
        self._arrange()

    def zoom(self, title: str) -> None:
        """Show one chart alone, or all again for an empty title, on the page of the one that was zoomed."""
        titles = self._matching()
        if not title and self.zoomed in titles:
            self._anchor = titles.index(self.zoomed)
        self.zoomed = title
        self._arrange()

    def on_resize(self, event: Resize) -> None:
        """Fit the page to the size; the first visible chart stays visible."""
        columns = next(count for width, count in _WIDTHS if event.size.width >= width)
        rows = min(max(1, event.size.height // _ROWS_OF_A_CHART), _MOST_ROWS)
        if (columns, rows) != (self._columns, self._rows):
            self._columns, self._rows = columns, rows
            self._arrange()

    @property
    def _capacity(self) -> int:
        return self._columns * self._rows

    @property
    def _first(self) -> int:
        return self._anchor // self._capacity * self._capacity

    def _ordered(self) -> list[str]:
        return sorted(self._curves, key=lambda title: [*self.order, title].index(title))

    def _matching(self) -> list[str]:
        """Return the titles of the charts whose title, or the name of a curve in them, matches."""
        if (pattern := self._pattern) is None:
            return self._ordered()
        names = {title: (title, f"val_{title}", *_FIGURES.get(title, ())) for title in self._ordered()}
        return [title for title in names if any(map(pattern.search, names[title]))]

    def _page(self) -> list[str]:
        titles = self._matching()
        return [self.zoomed] if self.zoomed in titles else titles[self._first :][: self._capacity]

    def _arrange(self) -> None:
        """Lay the page out."""
        titles = self._page()
        for title in titles:
            if title not in self._charts:
                self._charts[title] = chart = self._kind(title)
                chart.id = f"chart-{len(self._charts)}"
                self.mount(chart.add_class("pane"))
        page = [self._charts[title] for title in titles]
        for chart in self._charts.values():
            chart.display = chart in page
        self.sort_children(key=lambda chart: page.index(chart) if chart in page else len(page))
        self.styles.grid_size_columns = min(self._columns, max(1, len(page)))
        for chart in page:
            chart.gate.max_share = _SHARE_OF_A_CORE / len(page)
            self._apply_look(chart)
        self._feed()
        self.post_message(self.Rearranged())

    def _feed(self) -> None:
        ruler = [*chain(*self._curves.values())]
        for title in self._page():
            self._charts[title].show(self._curves[title], marks=self._marks, ruler=ruler)


RATE = "learning rate"
_FIGURES = {  # charts beside those of the metrics: the name of the curve, and of its column in the run's state
    RATE: ("lr", "learning_rate"),
    "speed": ("examples/s", "examples_per_s"),
    "step time": ("ms/step", "step_ms"),
    "input wait": ("wait %", "wait_percent"),
}


def curves_of(state: RunState) -> dict[str, list[Curve]]:
    """Return the curves of all charts by title: the loss, the other metrics, then the figures.

    The curve of a training metric comes before that of the validation metric.
    """
    curves: dict[str, list[Curve]] = {}
    for source, prefix in ((state.train, ""), (state.validation, "val_")):
        place = source.step.values, source.epoch.values, source.elapsed_s.values
        losses = source.metrics["loss"].values if "loss" in source.metrics else None
        for title, samples in source.metrics.items():
            is_running, metric = title in source.running, state.metric(title)
            curve = Curve(prefix + title, *place, samples.values, bool(prefix), is_running, metric, losses)
            curves.setdefault(title, []).append(curve)
    figures = {title: [_figure(state, title)] for title in _FIGURES if title not in curves}
    measured = {title: figure for title, figure in figures.items() if len(figure[0].value)}
    return dict(sorted(curves.items(), key=lambda item: item[0] != "loss")) | measured


def read_curves(curves: Mapping[str, Sequence[Curve]], on_page: Sequence[str]) -> list[Curve]:
    """Return the curves to read at the cursor: those on the page, the learning rate and the other metrics."""
    titles = dict.fromkeys([*on_page, RATE, *(title for title in curves if title not in _FIGURES)])
    return [curve for title in titles for curve in curves.get(title, ())]


def _figure(state: RunState, title: str) -> Curve:
    """Return the curve of a figure, without the samples that were not measured: NaN would look like an alarm."""
    if title in {"speed", "step time"} and not state.epochs:
        # Between the reports of the first epoch, which may take hours; then each epoch has a speed.
        train, batch = state.train, state.fit.global_batch if state.fit is not None else None
        steps, seconds = np.diff(train.step.values), np.diff(train.elapsed_s.values)
        step_s = np.divide(seconds, steps, out=np.full(len(steps), np.nan), where=(steps > 0) & (seconds > 0))
        is_speed = title == "speed"
        name = "recent examples/s" if is_speed else "recent ms/step"
        return _known(name, train, 1, (batch or np.nan) / step_s if is_speed else 1e3 * step_s)
    name, column = _FIGURES[title]
    curves = state.input_curve if title == "input wait" else state.speed
    measured = curves.metrics.get(column, Samples())
    return _known(name, curves, 0, measured.values if len(measured) else np.full(len(curves), np.nan))


def _known(name: str, curves: Curves, begin: int, values: FloatArray) -> Curve:
    """Return a curve of the finite values; the first one belongs to the point of this number."""
    known = np.isfinite(values)
    step, epoch, elapsed_s = (column.values[begin:][known] for column in (curves.step, curves.epoch, curves.elapsed_s))
    rate = Metric(name, kind=MetricKind.RATE)
    return Curve(name, step, epoch, elapsed_s, values[known], is_validation=False, metric=rate)


_DIM = Style(dim=True)
_LABELLED = 3  # forms of the legend with labels
_LEAST_RUNS = 3
_FAR, _LEAST_SPREAD = 8.0, 0.005  # in spreads of the better half; as a share of its worst value


def run_pen(mark: str, theme: Theme, marker: Marker = "braille") -> Pen:
    """Return the pen of a run: eight colors in turn, and its letter beside the line."""
    place = ord(mark) - ord("A")
    pen = pen_for(place % SLOTS, marker, tone_of(theme), is_validation=place // SLOTS % 2 > 0)
    return replace(pen, glyph=mark, has_points=False, is_dashed=False, has_letters=marker != "ascii")


def compared_curves(
    runs: Sequence[ComparedRun], metric: str = "", *, is_relative: bool = False
) -> dict[str, list[Curve]]:
    """Return the curves of some runs by metric: first the one they are judged by, then other validation metrics.

    A curve's name is the letter of its run and the metric, such as ``A val_loss``. If they are relative, the first
    sample of each run is at step, epoch and second 0.
    """
    curves: dict[str, list[Curve]] = {}
    for run in runs:
        measured = [*chain(*curves_of(run.state).values())]
        begins = [(extent_of(measured, axis) or (0.0,))[0] for axis in Axis]
        for curve in measured:
            named = replace(curve, name=f"{run.mark} {curve.name}")
            if is_relative:
                step, epoch, elapsed_s = (curve.along(axis) - begin for axis, begin in zip(Axis, begins, strict=True))
                named = replace(named, step=step, epoch=epoch, elapsed_s=elapsed_s)
            curves.setdefault(curve.name, []).append(named)
    order = sorted(curves, key=lambda name: (name != metric, not name.startswith("val_")))
    return {name: curves[name] for name in order}


def compared_reading(shown: Mapping[str, Sequence[Curve]], axis: Axis, x: float, theme: Theme, width: int) -> Text:
    """Write the value of each run at a position, metric by metric."""
    place = clock(x) if axis is Axis.TIME else f"{axis.value} {x:,.4g}" if axis is Axis.EPOCH else f"step {x:,.0f}"
    line = Text(place, no_wrap=True)
    for metric, curves in shown.items():
        line.append(f"   {metric}", _DIM)
        for curve in curves:
            mark = curve.name[0]
            line.append(f" {mark} ", style_of(run_pen(mark, theme).color)).append(format_value(curve.at(axis, x), 3))
    line.truncate(width, overflow="ellipsis")
    return line


class ComparedChart(MetricChart):
    """A chart of one metric with one curve per run."""

    labels: Mapping[str, str] = {}  # what to call each run in the legend, by its letter
    is_relative = False  # whether all runs start at 0

    def _pen(self, curve: Curve) -> Pen:
        return run_pen(curve.name[0], self.app.current_theme, self.marker)

    def _notes(self) -> list[tuple[str, Style]]:
        return [*super()._notes(), *([("since start", _DIM)] if self.is_relative else [])]

    def _legends(self) -> list[Legend]:
        plain = [replace(entry, name="") for entry in self._entries()]
        labels = [self.labels.get(series.curve.name[0]) for series in self._started()]
        named = [replace(one, name=f"{label}:" if label else "") for one, label in zip(plain, labels, strict=True)]
        return [*islice(legends_of(named, self.title), _LABELLED), *legends_of(plain, self.title)]

    def _trace(self, series: Series, ends: Extent) -> DrawnCurve:
        """Return what is drawn of a curve; the vertical range follows the good runs.

        A run that is much worse than the better half would make their curves look the same.
        """
        sign = 1.0 if series.curve.metric.lower_is_better or series.curve.name.endswith("loss") else -1.0
        values = [sign * other.latest for other in self._started()]
        good = sorted(value for value in values if math.isfinite(value))[: max(2, (len(values) + 1) // 2)]
        is_far = False
        if len(values) >= _LEAST_RUNS and len(good) > 1:
            spread = max(good[-1] - good[0], _LEAST_SPREAD * abs(good[-1]))
            is_far = sign * series.latest > good[-1] + _FAR * spread
        return replace(super()._trace(series, ends), is_followed=not is_far)
