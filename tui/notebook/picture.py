"""A run's curves as a PNG for a notebook's cell, with the console's own samples, ranges, ticks and values.

It uses matplotlib's objects, never pyplot, and states everything that it draws: the user's backend, figure and style
stay as they are, and do not change the picture. The background is transparent and every color can be read on white and
on black, because a kernel does not know the theme of its page.
"""

from __future__ import annotations

import re
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from tpu_console.engine.monitoring.alerts import overfitting
from tpu_console.engine.runs.events import RunSource

from ..charts.curve import Axis, Extent, Series, extent_of
from ..charts.legend import Entry, Pen, header_line, legends_of, pen_for
from ..charts.scale import x_scale, x_ticks, y_scale, y_ticks
from ..charts.scene import DrawnCurve, View, build_scene
from ..text.cells import BAR, BAR_LEFT, BEST
from ..text.outcome import best_text, outcome_of
from ..text.run_lines import metrics_in_order
from ..text.tables import Column, as_html, table
from ..widgets.chart_grid import curves_of
from ..widgets.epoch_table import columns_for
from ..widgets.replica_panel import table_of
from ..widgets.run_header import HeaderView, facts_row, header_rows, status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.runs.state import RunState

WIDTH = 860  # of the picture, in CSS pixels
_ROW = 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 52, 34  # around the plot of a chart, in CSS pixels
_MOST_CHARTS = 6
_SHARP = 2  # image pixels per CSS pixel
_TRAIN, _VALIDATION, _ALARM = "#3a8fd6", "#e0781e", "#e5484d"
_TEXT, _GRID = "#808080", "#80808040"
_MOST_POINTS = 60
_LETTER = 6.6  # CSS pixels of a letter in the legend, on average
_CELLS_HIGH = 12  # rows of a chart in the console with about as many labels
_AXIS = Axis.EPOCH
_PLOT = "axes fraction"


def charts_of(state: RunState) -> list[str]:
    """Return the metrics that are drawn, the loss first."""
    metrics = dict.fromkeys([*state.train.metrics, *state.validation.metrics])
    return sorted(metrics, key=lambda name: name != "loss")[:_MOST_CHARTS]


def size_of(state: RunState) -> tuple[int, int]:
    """Return the picture's width and height in CSS pixels."""
    return WIDTH, _ROW * -(-len(charts_of(state)) // 2)


def draw(state: RunState) -> bytes:
    """Return the picture of a run with samples as a PNG, two image pixels per CSS pixel."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    png = BytesIO()
    FigureCanvasAgg(figure_of(state)).print_png(png)
    return png.getvalue()


def figure_of(state: RunState) -> Any:
    """Return the picture of a run with samples as a figure of matplotlib."""
    from matplotlib.figure import Figure

    titles, (width, height) = charts_of(state), size_of(state)
    figure = Figure((width / 72, height / 72), dpi=72 * _SHARP, facecolor="none")
    figure.set_layout_engine("none")
    cell = width / min(len(titles), 2)
    for number, title in enumerate(titles):
        row, column = divmod(number, 2)
        left, bottom = column * cell + _LEFT, height - (row + 1) * _ROW + _BOTTOM
        plot = (cell - _LEFT - _RIGHT, _ROW - _TOP - _BOTTOM)
        axes = figure.add_axes((left / width, bottom / height, plot[0] / width, plot[1] / height))
        axes.set_axis_off()
        _Chart(axes, state, title, plot[0]).draw()
    return figure


class _Chart:
    """One metric: training, validation, and the best epoch, in so many CSS pixels of axes without decoration."""

    def __init__(self, axes: Any, state: RunState, title: str, width: float) -> None:
        self._axes, self._state, self._title, self._width = axes, state, title, width
        self._series = [Series(curve) for curve in curves_of(state)[title]]

    def draw(self) -> None:
        self._write(self._title, (0, 1), (0, 34), size=13, weight="bold")
        left, right = extent_of([series.curve for series in self._series], _AXIS) or (0.0, 1.0)
        ends, width = (left, max(right, left + 1e-9)), int(self._width / _LETTER)
        traces = [DrawnCurve.of(series, _pen(series), _AXIS, ends) for series in self._series]
        scene = build_scene(traces, View(width, _CELLS_HIGH + 2, _AXIS, is_log=False, marker="braille", ends=ends))
        scale = y_scale(0.0, 1.0, _CELLS_HIGH) if scene is None else scene.y
        low, high = scale.ends
        self._axes.set(xlim=ends, ylim=(low, high))
        for tick in y_ticks(scale):
            self._line(ends, (tick.value, tick.value), _GRID, 1)
            self._write(tick.label, (0, tick.value), (-8, 0), (_PLOT, "data"), ha="right", va="center")
        for tick in x_ticks(x_scale(*ends, width, _AXIS), _AXIS):
            if tick.value <= ends[1]:
                self._write(tick.label, (tick.value, 0), (0, -8), ("data", _PLOT), ha="center", va="top")
        self._write("epoch", (1, 0), (0, -22), ha="right", va="top")
        if (best := self._state.best_epoch()) is not None:
            self._line((best.epoch, best.epoch), (low, high), _TEXT, 1, linestyle=(0, (2, 3)))
        for series in self._series:
            self._draw_curve(series, ends, (low, high))
        self._draw_legend()

    def _draw_curve(self, series: Series, ends: Extent, y_range: Extent) -> None:
        line, curve = series.raw_line(_AXIS), series.curve
        color, y = _color(series), np.clip(line.y, *y_range)
        has_points = len(y) == 1 or (curve.is_validation and len(y) <= _MOST_POINTS)
        self._line(line.x, y, color, 1.6, zorder=3, **({"marker": "o", "markersize": 4} if has_points else {}))
        for outside, marker in ((line.y > y_range[1], "^"), (line.y < y_range[0], "v")):
            self._line(line.x[outside], y[outside], color, 0, marker=marker, markersize=7, zorder=4)
        lost = curve.along(_AXIS)[series.lost(_AXIS, ends)]
        self._line(lost, np.full(len(lost), y_range[0]), _ALARM, 0, marker="x", markersize=7, zorder=5)
        star = series.best_line(_AXIS)
        self._line(star.x, star.y, color, 0, marker="*", markersize=17, zorder=6)

    def _draw_legend(self) -> None:
        """Write the newest and the best values in the console's words, as many as there is room for."""
        started = [series for series in self._series if series.count]
        entries = [Entry.of(series, _pen(series), series.latest) for series in started]
        words = header_line("", legends_of(entries, self._title), (), int(self._width / _LETTER))
        for series, text in zip(started, words.plain.split("  "), strict=False):
            side, align = (1, "right") if series.curve.is_validation else (0, "left")
            self._write(text, (side, 1), (0, 12), color=_color(series), ha=align, size=11.5)

    def _line(self, x: Any, y: Any, color: str, width: float, **look: Any) -> None:
        from matplotlib.lines import Line2D

        fixed: dict[str, Any] = {"markerfacecolor": color, "markeredgecolor": color, "antialiased": True}
        fixed |= {"markeredgewidth": 2.0 * (look.get("marker") == "x"), "solid_joinstyle": "round"}
        fixed |= {"marker": "None", "markersize": 1, "linestyle": "-", "zorder": 1}
        line = Line2D(x, y, linewidth=width, color=color, **(fixed | look))
        line.set(path_effects=[], sketch_params=None, clip_on=False)
        self._axes.add_line(line)

    def _write(
        self, text: str, at: tuple[float, float], away: tuple[float, float], of: Any = _PLOT, **look: Any
    ) -> None:
        """Write a text, some CSS pixels to the right and up from a point; `of` and `look` are options of `annotate`."""
        from matplotlib.font_manager import findfont, get_font

        look = {"size": 10.5, "color": _TEXT, "ha": "left", "va": "baseline", "weight": "normal"} | look
        fixed = {"family": "DejaVu Sans", "style": "normal", "usetex": False, "parse_math": False}
        units = {"xycoords": of, "textcoords": "offset points", "annotation_clip": False}
        # The font that comes with matplotlib has no glyph for some letters.
        known = get_font(findfont("DejaVu Sans")).get_charmap()
        text = "".join(letter if ord(letter) in known else "?" for letter in text)
        written = self._axes.annotate(text, at, away, **units, **fixed, **look)
        written.set(path_effects=[], sketch_params=None)


def _color(series: Series) -> str:
    return _VALIDATION if series.curve.is_validation else _TRAIN


def _pen(series: Series) -> Pen:
    return pen_for(0, "braille", "dark", is_validation=series.curve.is_validation)


_NEWEST = 10
_ALL = 1000  # cells: no column is dropped
_PLAIN = 120


def head(run: RunDirectory, view: HeaderView, note: str) -> dict[str, str]:
    """Return what is above the picture: what the console's header shows of the run, its end, and a note, if any."""
    state, doing = view.state, status(view).plain
    is_ours = state.started is not None and state.started.source != RunSource.NOTEBOOK
    facts = [facts_row(view, _ALL).plain] if is_ours else []
    outcome = outcome_of(run, view.snapshot)
    if outcome is not None:
        facts.append(outcome.headline)
        facts += [f"{label}: {text}" for label, text in outcome.facts if label != "best"]
    elif state.progress is not None:
        facts.append(re.sub(f"[{BAR}{BAR_LEFT}]", "", header_rows(view, _ALL)[-1].plain))  # the page has its own bar
    facts = [re.sub("  +", " · ", fact.strip()) for fact in facts]
    best = f"{BEST} best {best_text(state)}" if best_text(state) else ""
    overfits = " ".join((overfitting(state) or ("",))[: 1 if outcome is not None else 2])
    warnings = [text for text in (overfits, *state.notices[-1:], note) if text]
    lines = [*facts, *([best] if best else []), *warnings]
    html = f"<b>{escape(view.run_id)}</b> &nbsp; {escape(doing)}"
    if (total := state.steps_total) and state.progress is not None and outcome is None:
        html += f' &nbsp; <progress value="{min(state.progress.step, total)}" max="{total}"></progress>'
    html += "".join(f"<br>{escape(fact)}" for fact in facts)
    html += f"<br><b>{escape(best)}</b>" if best else ""
    html += "".join(f"<br>⚠ {escape(text)}" for text in warnings)
    return {
        "text/html": f'<div style="line-height:1.5">{html}</div>',
        "text/plain": "\n".join([f"{view.run_id}  {doing}", *(f"  {line}" for line in lines)]),
    }


def tables(state: RunState) -> dict[str, str]:
    """Return what is below the picture: the newest epochs, below the best one if it is older, and the replicas."""
    found: list[tuple[Sequence[Column], list[list[str]], int | None]] = []
    if state.epochs:
        best, newest = state.best_epoch(), list(state.epochs[-_NEWEST:])
        shown = newest if best is None or best in newest else [best, *newest]
        names = metrics_in_order(state, dict.fromkeys(name for epoch in shown for name in epoch.logs))
        columns = [one for one in columns_for(names, _ALL) if any(one.value(epoch) is not None for epoch in shown)]
        rows = [
            [f"{BEST if epoch is best else ' '} {epoch.epoch}", *(column.written(epoch, none="") for column in columns)]
            for epoch in shown
        ]
        at = next((number for number, epoch in enumerate(shown) if epoch is best), None)
        found.append(([Column("epoch", 100, right=True), *columns], rows, at))
    replicas = table_of(state, _ALL, 0)
    if rows := [[line.cells.get(column.title, "") for column in replicas.columns] for line in replicas.lines]:
        found.append((replicas.columns, rows, None))
    return {
        "text/html": "".join(as_html(*part) for part in found),
        "text/plain": "\n\n".join("\n".join(table(columns, rows, _PLAIN)) for columns, rows, _ in found),
    }
