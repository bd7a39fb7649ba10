"""The charts of the live screen: as many on a page as fit, the others on further pages, and the curves of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from textual.containers import Container
from textual.message import Message
from textual.widgets import Static

from tpu_console.engine.runs.curves import Curves, Samples
from tpu_console.engine.runs.metrics import Metric, MetricKind

from ..charts.chart import MetricChart
from ..charts.curve import Curve, FloatArray
from ..charts.frame import marks_of

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping, Sequence

    from rich.text import Text
    from textual.events import Resize

    from tpu_console.engine.runs.state import RunState


_SHARE_OF_A_CORE = 0.02
"""All charts of a page together."""

_WIDTHS = ((230, 3), (76, 2), (0, 1))
_ROWS_OF_A_CHART = 16
_MOST_ROWS = 2


class ChartPane(MetricChart, can_focus=True):
    """A chart that takes focus, so that keys can zoom and move it; numbered in the order in which they are made."""

    def __init__(self, number: int, title: str) -> None:
        super().__init__(title, id=f"chart-{number}", classes="pane")


class ChartGrid(Container):
    """Pages of charts. Only those on the current page get samples, so that the others cost nothing.

    `dress` gives a chart the look that the user has chosen.
    """

    pane_type: ClassVar[type[ChartPane]] = ChartPane

    class Rearranged(Message):
        """Other charts are shown, or the charts have changed places."""

    def __init__(self, dress: Callable[[ChartPane], None]) -> None:
        super().__init__(id="charts")
        self._dress = dress
        self._state: RunState | None = None
        self._titles: list[str] = []
        self._charts: dict[str, ChartPane] = {}
        self._columns, self._rows = 1, 1
        self._anchor = 0  # the number of a chart on the page
        self._pattern: re.Pattern[str] | None = None
        self.order: tuple[str, ...] = ()
        self.zoomed = ""

    @property
    def on_page(self) -> list[ChartPane]:
        """The visible charts, in order."""
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
        matching = len(self._matching())
        found = f"{matching} of {len(self._titles)} charts match" if matching else "no chart matches"
        return found if self._titles else ""

    def title_at(self, place: int) -> str:
        """Return the title of the chart at a place of the page, from 1, zoomed or not; empty if there is none."""
        titles = self._matching()[self._first :][: self._capacity]
        return titles[place - 1] if place <= len(titles) else ""

    def show(self, state: RunState) -> None:
        """Show a state: new metrics get a chart, visible charts their samples."""
        self._state = state
        self._show_titles(titles_of(state))

    def _show_titles(self, titles: list[str]) -> None:
        if titles == self._titles:
            self._feed()
        else:
            self._titles = titles
            self._arrange()

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
        return sorted(self._titles, key=lambda title: [*self.order, title].index(title))

    def _matching(self) -> list[str]:
        pattern = self._pattern
        return [title for title in self._ordered() if pattern is None or any(map(pattern.search, names_of(title)))]

    def _page(self) -> list[str]:
        titles = self._matching()
        return [self.zoomed] if self.zoomed in titles else titles[self._first :][: self._capacity]

    def _arrange(self) -> None:
        """Lay the page out."""
        page = self._page()
        new = [title for title in page if title not in self._charts]
        for title in new:
            self._charts[title] = self.pane_type(len(self._charts) + 1, title)
        if new:
            self.mount_all([self._charts[title] for title in new])
        for title, chart in self._charts.items():
            chart.display = title in page
        places = {self._charts[title]: place for place, title in enumerate(page)}
        self.sort_children(key=lambda chart: places.get(chart, len(places)))  # type: ignore[call-overload]  # charts only
        self.styles.grid_size_columns = min(self._columns, max(1, len(page)))
        for title in page:
            chart = self._charts[title]
            chart.gate.max_share = _SHARE_OF_A_CORE / len(page)
            self._dress(chart)
        self._feed()
        self.post_message(self.Rearranged())

    def _feed(self) -> None:
        if (state := self._state) is None or not self._titles:
            return
        marks, ruler = [*marks_of(state)], curves_of(state, self._titles[0])
        for title in self._page():
            self._charts[title].show(curves_of(state, title), marks=marks, ruler=ruler)


class ChartBar(Static):
    """One line of text."""

    DEFAULT_CSS = """
    ChartBar { width: 1fr; height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; text-align: right; }
    ChartBar.-reading { text-align: left; }
    """

    def __init__(self) -> None:
        super().__init__(id="chart-bar", classes="-blank")

    def show(self, line: Text, *, is_reading: bool) -> None:
        """Show the values at the cursor, or which charts are on the page."""
        self.set_class(is_reading, "-reading")
        self.set_class(not line.plain, "-blank")
        self.update(line, layout=False)  # one line, whatever it says


RATE = "learning rate"
_FIGURES = {
    RATE: ("lr", "learning_rate"),
    "speed": ("examples/s", "examples_per_s"),
    "step time": ("ms/step", "step_ms"),
    "input wait": ("wait %", "wait_percent"),
}
"""Charts beside those of the metrics: the name of the curve, and of its column in the run's state."""


def names_of(title: str) -> tuple[str, ...]:
    """Return the names by which a chart is found: its title and those of its curves."""
    return title, f"val_{title}", *_FIGURES.get(title, ())


def titles_of(state: RunState) -> list[str]:
    """Return the titles of all charts that a run has samples for: the loss, the other metrics, then speeds."""
    metrics = dict.fromkeys([*state.train.metrics, *state.validation.metrics])
    figures = [title for title in _FIGURES if title not in metrics and len(_figure(state, title).value)]
    return sorted(metrics, key=lambda name: name != "loss") + figures


def curves_of(state: RunState, title: str) -> list[Curve]:
    """Return the curves of one chart: the training metric, then the validation metric."""
    curves = []
    for source, prefix in ((state.train, ""), (state.validation, "val_")):
        if title in source.metrics:
            place = source.step.values, source.epoch.values, source.elapsed_s.values
            losses = source.metrics["loss"].values if "loss" in source.metrics else None
            value, metric = source.metrics[title].values, state.metric(title)
            curves.append(Curve(prefix + title, *place, value, bool(prefix), title in source.running, metric, losses))
    return curves or ([_figure(state, title)] if title in _FIGURES else [])


def all_curves(state: RunState) -> dict[str, list[Curve]]:
    """Return the curves of all charts, by title."""
    return {title: curves_of(state, title) for title in titles_of(state)}


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
