"""The charts of a comparison: one per metric, with one curve per run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from ..charts.curve import Axis, Curve, sample_at
from ..charts.legend import style_of
from ..charts.pens import SLOTS, Pen, pen_for, tone_of
from ..charts.scale import format_value
from ..text.numbers import clock
from .chart_grid import ChartGrid, ChartPane, curves_of, titles_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.theme import Theme

    from ..charts.raster import Marker
    from ..following.comparison import ComparedRun

_DIM = Style(dim=True)
_GAP = " "


def run_pen(mark: str, theme: Theme, marker: Marker = "braille", *, is_validation: bool = True) -> Pen:
    """Return the pen of a run: eight colours in turn, and its letter on the line."""
    place = ord(mark) - ord("A")
    pen = pen_for(place % SLOTS, marker, tone_of(theme), is_validation=place // SLOTS % 2 > 0)
    return replace(pen, glyph=mark, has_points=is_validation, has_beads=marker != "ascii", is_dashed=False)


def compared_curves(runs: Sequence[ComparedRun], metric: str = "") -> dict[str, list[Curve]]:
    """Return the curves of some runs by metric: first the one they are judged by, then other validation metrics.

    A curve's name is the letter of its run and the metric, such as ``A val_loss``.
    """
    curves: dict[str, list[Curve]] = {}
    for run in runs:
        for curve in (curve for title in titles_of(run.state) for curve in curves_of(run.state, title)):
            curves.setdefault(curve.name, []).append(replace(curve, name=f"{run.mark}{_GAP}{curve.name}"))
    order = sorted(curves, key=lambda name: (name != metric, not name.startswith("val_")))
    return {name: curves[name] for name in order}


def reading_line(shown: Mapping[str, Sequence[Curve]], axis: Axis, x: float, theme: Theme, width: int) -> Text:
    """Write the value of each run at a place, metric by metric."""
    place = clock(x) if axis is Axis.TIME else f"{axis.value} {x:,.4g}" if axis is Axis.EPOCH else f"step {x:,.0f}"
    line = Text(place, no_wrap=True)
    for metric, curves in shown.items():
        line.append(f"   {metric}", _DIM)
        for curve in curves:
            along, mark = curve.along(axis), curve.name[0]
            value = format_value(float(curve.value[sample_at(along, x)]), 3) if len(along) and along[0] <= x else "n/a"
            line.append(f" {mark} ", style_of(run_pen(mark, theme).color)).append(value)
    line.truncate(width, overflow="ellipsis")
    return line


class ComparedChart(ChartPane):
    """A chart of one metric with one curve per run."""

    def _pen(self, curve: Curve) -> Pen:
        return run_pen(curve.name[0], self.app.current_theme, self.marker, is_validation=curve.is_validation)

    def _legends(self) -> list[Text]:
        line = Text(no_wrap=True)
        for series in self._started():
            pen = self._pen(series.curve)
            line.append(f"{pen.glyph} ", style_of(pen.color)).append(f"{format_value(series.latest, 3)}  ")
        return [line]


class ComparedGrid(ChartGrid):
    """Pages of charts of several runs."""

    pane_type = ComparedChart
    _compared: Mapping[str, Sequence[Curve]] = {}

    def compare(self, curves: Mapping[str, Sequence[Curve]]) -> None:
        """Show curves by metric."""
        self._compared = curves
        self._show_titles([*curves])

    def _feed(self) -> None:
        ruler = [curve for several in self._compared.values() for curve in several]
        for title in self._page():
            self._charts[title].show(self._compared[title], marks=(), ruler=ruler)
