"""Shows a host's load as sparklines on the loss chart's axis: waiting for input, processor, memory, disk."""

import textwrap
from collections.abc import Sequence

import numpy as np

from tpu_console.engine.runs.state import RunState

from ..charts.curve import Axis, Curve, Extent, FloatArray, Mode, Series, Window
from ..charts.scale import x_scale, x_ticks
from ..text.hosts import WAITS, Gauge, account_of, behind_text, gauges_of, hosts_of
from ..text.run_lines import mirror_text
from ..text.tables import FAILED, LEVELS, WARNING
from .basics import HostPane, Row, heat

_NAME_WIDTH, _VALUE_WIDTH, _SCALE_WIDTH = 11, 16, 13
_SCALE_FROM = 70
_LEAST_SPARK = 8
_REMARK_ROWS = 3  # with so many rows more than figures, the axis and the remarks are shown too
_HIGHEST_SPARK = 5
_WRAPS_FROM = 12  # rows from which there is room for remarks of several lines
_NOTHING = np.empty(0)
_HELD_S, _HELD_GAPS = 5.0, 3.0


class SystemPane(HostPane["RunState"]):
    """Sparklines of one host, what limits the run, and why figures are missing."""

    axis, window = Axis.STEP, Window()

    def __init__(self, pane_id: str) -> None:
        super().__init__(pane_id)
        self._series: dict[tuple[int, str], Series] = {}  # those of each host, which grow

    def along(self, axis: Axis, window: Window) -> None:
        """Draw over the same part of the same axis as the charts."""
        if (axis, window) != (self.axis, self.window):
            self.axis, self.window = axis, window
            self.rows_changed()

    def laid_out(self, shown: RunState) -> list[Row]:
        """Return the lines of all figures, with the axis and remarks if there is room."""
        width, height = max(16, self.room), self.size.height
        gauges = gauges_of(shown, self.chosen)
        ends = _ends(shown, gauges, self.axis, self.window)
        if height < len(gauges):
            row, taken = list[tuple[str, str]](), 0  # what was measured, as long as there is room
            for gauge in gauges:
                bars = self._gauge_rows(gauge, _LEAST_SPARK, 1, ends)[0][2:-1]
                pieces = [(f"{gauge.name} {gauge.value} ", ""), *bars]
                taken += sum(len(text) for text, _ in pieces) + 3
                row += [*pieces, ("   ", "")] if gauge.value and taken <= width + 3 else []
            return [row or [("system: nothing measured yet", "faint")]]
        title, remarks = self._title(shown), self._remarks(shown, gauges)
        below: list[Row] = [[(line, look)] for text, look in remarks for line in textwrap.wrap(text, width)]
        spark = width - _NAME_WIDTH - _VALUE_WIDTH - (_SCALE_WIDTH if width >= _SCALE_FROM else 0)
        if height < len(gauges) + _REMARK_ROWS:
            return [self._gauge_rows(gauge, spark, 1, ends)[0] for gauge in gauges]
        high = max(1, min(_HIGHEST_SPARK, (height - len(title) - len(below) - 1) // len(gauges)))
        rows = [row for gauge in gauges for row in self._gauge_rows(gauge, spark, high, ends)]
        if spark >= _LEAST_SPARK and ends is not None:
            name = f"{self.axis.value:<{_NAME_WIDTH + _VALUE_WIDTH}}"
            rows.append([(name + axis_row(self.axis, *ends, spark), "faint")])
        return [*title, *rows, *below]

    def _title(self, state: RunState) -> list[Row]:
        """Return the host's name, if there are several, and what is wrong with it."""
        hosts = hosts_of(state)
        host = hosts.get(self.chosen)
        if host is None or len(hosts) == 1:
            return []
        text, look = f"host {host.process} of {len(hosts)}: {host.name}", "head"
        if host.lost is not None:
            text, look = f"{FAILED} {text} is lost", "bad"
        elif host.behind:
            text, look = f"{WARNING} {text} is slow, {behind_text(host)}", "bad"
        return [[(text, look), ("  (h: next)", "faint")]]

    def _remarks(self, state: RunState, gauges: Sequence[Gauge]) -> list[tuple[str, str]]:
        """Return what limits the run, how far its mirror is, and the reason for every missing figure."""
        said = [(text, "now") for text in account_of(state)]
        if self.size.height < _WRAPS_FROM:  # a line each
            said = [(text if len(text) <= self.room else text.partition(" (")[0], look) for text, look in said]
        if state.mirror is not None:
            said.append((f"mirror: {mirror_text(state)}", "bad" if state.mirror.problem else "now"))
        reasons: dict[str, list[str]] = {}
        for gauge in gauges:
            if gauge.why_not:
                reasons.setdefault(gauge.why_not, []).append(gauge.name)
        return said + [(f"{', '.join(names)}: {reason}", "faint") for reason, names in reasons.items()]

    def _gauge_rows(self, gauge: Gauge, spark: int, height: int, ends: Extent | None) -> list[Row]:
        value, is_load = gauge.value or "n/a", gauge.written is None
        head = [(f"{gauge.name:<{_NAME_WIDTH}}", ""), (f"{value:<{_VALUE_WIDTH}}", "" if gauge.value else "faint")]
        series = self._updated(gauge)
        if spark < _LEAST_SPARK or ends is None or not np.isfinite(series.highest):
            return [head]
        top = 100.0 if is_load else max(series.highest, 0.0)
        scale = f" of {gauge.written(top) if gauge.written is not None else '100%'}"
        cells = cells_of(series, self.axis, *ends, spark, is_cut=self.window.mode is Mode.FIXED)
        rows: list[Row] = []
        for below, line in zip(reversed(range(height)), spark_rows(cells, top, height), strict=True):
            # The higher a bar, the warmer its color.
            bars = [(bar, heat((below + (LEVELS.find(bar) + 1) / len(LEVELS)) / height)) for bar in line]
            first = [(" " * (_NAME_WIDTH + _VALUE_WIDTH), "")] if rows else head
            last = scale if not rows and self.room >= _SCALE_FROM else ""
            rows.append([*first, *(bars if is_load else [(line, "now")]), (last, "faint")])
        return rows

    def _updated(self, gauge: Gauge) -> Series:
        """Append a figure's new samples."""
        key = (-1 if gauge.metric == WAITS else self.chosen, gauge.metric)
        curves, metric = gauge.curves, gauge.curves.metrics.get(gauge.metric)
        value = metric.values if metric is not None else _NOTHING
        place = (curves.step.values, curves.epoch.values, curves.elapsed_s.values) if len(value) else (_NOTHING,) * 3
        curve = Curve(gauge.name, *place, value, is_validation=False)
        self._series[key] = Series.grown(self._series.get(key), curve)
        return self._series[key]


def _ends(state: RunState, gauges: Sequence[Gauge], axis: Axis, window: Window) -> Extent | None:
    """Return both ends of the charts' axis; before the first loss, those of the figures, or None."""
    parts = [state.train, state.validation] if len(state.train) else [gauge.curves for gauge in gauges]
    columns = [axis.of(part.step, part.epoch, part.elapsed_s).values for part in parts if len(part)]
    if not columns:
        return None
    extent = float(min(column[0] for column in columns)), float(max(column[-1] for column in columns))
    left, right = window.resolved(extent)
    return left, right if right > left else left + 1.0


def cells_of(series: Series, axis: Axis, left: float, right: float, width: int, *, is_cut: bool = False) -> FloatArray:
    """Return the highest sample of each cell, shape ``(width,)``; NaN where there is none.

    Cells between two samples repeat the earlier one, unless the gap is unusually long. Samples left of `left` are not
    drawn. A sample past the right end is drawn in the last cell unless `is_cut`, so that the newest figures are visible
    even while the curves stand still.
    """
    line, seconds = series.raw_line(axis), series.raw_line(Axis.TIME).x
    inside = (line.x >= left) & (line.x <= (right if is_cut else np.inf))
    x, y, seconds = line.x[inside], line.y[inside], seconds[inside]
    cells = np.full(width, np.nan)
    if not len(x):
        return cells
    scale = x_scale(left, right, width, axis)
    column = scale.dots(np.minimum(x, right), 1)
    gaps = np.diff(seconds)
    held = max(_HELD_S, _HELD_GAPS * float(np.median(gaps))) if len(gaps) else 0.0
    for at in np.flatnonzero((np.diff(column) > 1) & (gaps <= held)):
        cells[column[at] + 1 : column[at + 1]] = y[at]
    np.fmax.at(cells, column, y)
    return cells


def spark_rows(cells: FloatArray, top: float, height: int) -> list[str]:
    """Return a sparkline's rows from the top down, in which a bar of the value `top` fills all rows, and NaN none."""
    steps, drawn = len(LEVELS), " " + LEVELS
    share = np.clip(np.nan_to_num(cells) / (top or 1.0), 0.0, 1.0)
    filled = np.where(np.isnan(cells), 0, np.maximum(1, np.rint(share * steps * height))).astype(np.int64)
    rows = [np.clip(filled - steps * row, 0, steps).tolist() for row in reversed(range(height))]
    return ["".join(drawn[level] for level in row) for row in rows]


def axis_row(axis: Axis, left: float, right: float, width: int) -> str:
    """Return the labels along the bottom, each starting in its cell, in at most `width` cells."""
    row = ""
    for tick in x_ticks(x_scale(left, right, width, axis), axis):
        if tick.cell + len(tick.label) <= width:
            row = row.ljust(tick.cell) + tick.label
    return row
