"""The charts of a comparison: one per metric, with one curve per run."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from ..charts.curve import Axis, Curve, Extent, extent_of
from ..charts.legend import SLOTS, Legend, Pen, legends_of, pen_for, style_of, tone_of, written
from ..text.numbers import clock
from .chart_grid import ChartGrid, ChartPane, curves_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.theme import Theme

    from ..charts.legend import Marker
    from ..charts.scene import DrawnCurve
    from ..charts.series import Series
    from ..following.comparison import ComparedRun

_DIM = Style(dim=True)
_LABELLED = 3  # forms of the legend with labels
_LEAST_RUNS = 3
_FAR, _LEAST_SPREAD = 8.0, 0.005  # in spreads of the better half; as a share of its worst value


def run_pen(mark: str, theme: Theme, marker: Marker = "braille") -> Pen:
    """Return the pen of a run: eight colours in turn, and its letter beside the line."""
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


def reading_line(shown: Mapping[str, Sequence[Curve]], axis: Axis, x: float, theme: Theme, width: int) -> Text:
    """Write the value of each run at a place, metric by metric."""
    place = clock(x) if axis is Axis.TIME else f"{axis.value} {x:,.4g}" if axis is Axis.EPOCH else f"step {x:,.0f}"
    line = Text(place, no_wrap=True)
    for metric, curves in shown.items():
        line.append(f"   {metric}", _DIM)
        for curve in curves:
            mark = curve.name[0]
            line.append(f" {mark} ", style_of(run_pen(mark, theme).color)).append(written(curve.at(axis, x), 3))
    line.truncate(width, overflow="ellipsis")
    return line


class ComparedChart(ChartPane):
    """A chart of one metric with one curve per run."""

    labels: Mapping[str, str] = MappingProxyType({})  # what to call each run in the legend, by its letter
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


class ComparedGrid(ChartGrid):
    """Pages of charts of several runs."""

    pane_type = ComparedChart
    labels: Mapping[str, str] = MappingProxyType({})  # what to call the runs, by letter
    is_relative = False

    def _feed(self) -> None:
        for chart in self.query(ComparedChart):
            chart.labels, chart.is_relative = self.labels, self.is_relative
        super()._feed()
