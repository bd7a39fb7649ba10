"""The panes of a run's hosts: the replicas with their figures, and the load of one host as sparklines."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len

from tpu_console.engine.runs.events import Replica, ReplicaMemory
from tpu_console.engine.runs.state import RunState

from ..charts.curve import Axis, Curve, Extent, FloatArray, Mode, Series, Window
from ..charts.scale import x_scale, x_ticks
from ..text.hosts import (
    LOST,
    WAITS,
    Gauge,
    Host,
    account_of,
    behind_text,
    fullest,
    gauges_of,
    hosts_of,
    kinds_text,
    lost_text,
    mean_duty,
    no_batch,
    no_duty,
    no_memory,
    slow_text,
    topology_text,
)
from ..text.numbers import NONE, bar_cells, count, memory, percent
from ..text.run_lines import mirror_text
from ..text.tables import BAR, BAR_LEFT, FAILED, LEVELS, NOW, WARNING, Column, clipped, fitting, widest
from .basics import LinesPane, Row

GROUPED_FROM = 32  # replicas, from which on several hosts get one row each
_SHORTEST_BAR, _LONGEST_BAR = 8, 24
_ALERTS = 2  # that are shown above the rows
_NEARLY_FULL = 0.95
_SIGN = 2  # cells before each row
_BATCH, _RATE, _DUTY, _MEMORY = _FIGURES = ("batch", "examples/s", "duty", "memory")
_COLUMNS = (  # with the most cells that a text may take; columns without any text are dropped
    Column("#", 100, right=True),
    Column("device", 62, width=14),
    Column("kind", 30, width=20),
    Column("coords", 60, width=16),
    Column("core", 55, right=True),
    Column("host", 75, width=20),
    Column(_BATCH, 40, right=True),
    Column(_RATE, 80, right=True),
    Column(_DUTY, 65, right=True),
    Column("peak", 20),
    Column(_MEMORY, 90),
)
_BAR_COLUMN = Column("", 35, width=_SHORTEST_BAR)  # room for the bar of the memory


def heat(share: float) -> str:
    """Return the look of a load from 0 to 1."""
    return "hot" if share > 0.9 else "warm" if share > 0.6 else "cool"


class HostPane(LinesPane[RunState]):
    """Shows the rows of one of a run's hosts."""

    chosen = 0

    def choose(self, process: int) -> None:
        """Show another host."""
        self.chosen = process
        self.rows_changed()


class ReplicaLine(Struct, frozen=True):
    """One row: a replica, or a host with all of its replicas."""

    host: Host
    cells: Mapping[str, str]  # the text of each column
    whys: Mapping[str, str]  # why a figure is missing, by its column; empty if it is not
    usage: ReplicaMemory | None  # what the bar shows
    is_host: bool = False


class ReplicaTable(NamedTuple):
    """The panel's content for one width."""

    lines: Sequence[ReplicaLine] = ()
    columns: Sequence[Column] = ()  # those for which there is room
    remarks: Sequence[str] = ()  # what stands below the rows


class ReplicaPanel(HostPane):
    """One row per replica, or per host if there are many, followed by what is missing and why."""

    is_as_high_as_rows = True

    _head: Sequence[Row] = ()

    def notify_style_update(self) -> None:
        """Lay out again: the pane may have been entered or left."""
        super().notify_style_update()
        if self.shown is not None:
            self.rows_changed()

    def head(self) -> Sequence[Row]:
        """Return the lost and slow hosts, and the column names."""
        return self._head

    def laid_out(self, shown: RunState) -> list[Row]:
        """Return the replicas or hosts, and, if there is room for more than a line per replica, the remarks."""
        width, self._head = self.room, ()
        if shown.accelerator is None:
            return [[("not connected yet", "faint")]]
        table = table_of(shown, width, self.chosen)
        hosts = {line.host.process: line.host for line in table.lines}.values()
        alerts = [(f"{FAILED} {lost_text(host.lost)}", "bad") for host in hosts if host.lost is not None]
        alerts += [(f"{WARNING} {slow_text(host)}", "warn") for host in hosts if host.behind]
        self._head = [[(clipped(text, width), look)] for text, look in alerts[:_ALERTS]]
        if self.styles.height and self.styles.height.is_auto:
            return [self._short(line) for line in table.lines]
        titles = "  ".join(column.cell(column.title) for column in table.columns)
        self._head = [*self._head, [(" " * _SIGN + titles, "head")]]
        unsaid = [text for index, (text, _) in enumerate(alerts) if index >= _ALERTS or cell_len(text) > width]
        remarks = [line for text in [*unsaid, *table.remarks] for line in textwrap.wrap(text, max(16, width))]
        return [self._whole(line, table.columns) for line in table.lines] + [[(line, "faint")] for line in remarks]

    def _sign(self, line: ReplicaLine) -> tuple[str, str]:
        if line.host.lost is not None:
            return f"{FAILED} ", "bad"
        if line.host.behind:
            return f"{WARNING} ", "warn"
        return (f"{NOW} ", "now") if line.is_host and line.host.process == self.chosen else ("  ", "")

    def _whole(self, line: ReplicaLine, columns: Sequence[Column]) -> Row:
        """Return all columns, and a bar of the memory in the room beside them."""
        sign, look = self._sign(line)
        row = [(sign, look), *((f"{column.cell(line.cells[column.title])}  ", look) for column in columns)]
        room = min(_LONGEST_BAR, self.room - sum(len(text) for text, _ in row))
        share = _used_share(line.usage)
        return row if share is None or room < _SHORTEST_BAR else row + _bar(share, room)

    def _short(self, line: ReplicaLine) -> Row:
        """Return the load of a replica, or else its memory, as a bar, and its figures with their units."""
        sign, look = self._sign(line)
        name = line.cells["device"] if line.is_host else f"replica {line.cells['#']}"
        forms = {_RATE: "{}/s", _DUTY: "duty {}", _MEMORY: "{}"}
        said = [form.format(line.cells[figure]) for figure, form in forms.items() if not line.whys[figure]]
        text = "  ".join(said) or line.cells["device"]
        duty = line.usage.duty_percent if line.usage is not None else None
        share = _used_share(line.usage) if duty is None else duty / 100
        if share is None or len(name) + _SHORTEST_BAR + len(text) + 2 > self.room - _SIGN:
            return [(sign, look), (f"{name} ", look), (text, look if share is None else heat(share))]
        return [(sign, look), (f"{name} ", look), *_bar(share, _SHORTEST_BAR), (f" {text}", look)]


def _used_share(usage: ReplicaMemory | None) -> float | None:
    if usage is None or usage.used_bytes is None or not usage.limit_bytes:
        return None
    return usage.used_bytes / usage.limit_bytes


def _bar(share: float, cells: int) -> list[tuple[str, str]]:
    full = bar_cells(share, cells)
    return [(BAR * full, "bad" if share > _NEARLY_FULL else heat(share)), (BAR_LEFT * (cells - full), "faint")]


def table_of(state: RunState, width: int, chosen: int) -> ReplicaTable:
    """Lay out the replicas of a run; if there are too many, one row per host and the replicas of the chosen one."""
    ready, hosts = state.accelerator, hosts_of(state)
    if ready is None:
        return ReplicaTable()
    every = [_line(state, hosts[replica.process], replica) for replica in ready.replicas]
    lines, has_hosts = every, len(hosts) > 1
    is_grouped = len(every) >= GROUPED_FROM and has_hosts
    if is_grouped:
        lines = []
        for host in hosts.values():
            lines += [_line(state, host)] if host.replicas else []
            lines += [line for line in every if line.host is host] if host.process == chosen else []
    columns = []
    for column in _COLUMNS:
        texts = [line.cells[column.title] for line in lines]
        known = {*texts} - {"", NONE}
        if not known or (column.title == "core" and len(known) == 1) or (column.title == "host" and not has_hosts):
            continue
        longest = widest(texts)
        columns.append(replace(column, width=max(len(column.title), min(column.width or longest, longest))))
    columns = [one for one in fitting([*columns, _BAR_COLUMN], width - _SIGN) if one is not _BAR_COLUMN]
    shown = {column.title for column in columns}
    remarks = [topology_text(ready)]
    remarks += [kinds_text(ready)] if not {"kind", "host"} <= shown else []
    if is_grouped:
        remarks += ["host rows: total examples/s, mean duty cycle, fullest memory", "h: next host"]
    for figure in _FIGURES:
        remarks += [f"{figure}: {why}" for why in dict.fromkeys(line.whys[figure] for line in every) if why]
    return ReplicaTable(lines, columns, [remark for remark in remarks if remark])


def _line(state: RunState, host: Host, replica: Replica | None = None) -> ReplicaLine:
    """Make the row of a replica, or that of its host."""
    known = state.memory if host.lost is None else {}  # the last figures of a lost host are out of date
    replicas = host.replicas if replica is None else (replica,)
    usages = [known[one.index] for one in replicas if one.index in known]
    usage, duty = fullest(usages) or next(iter(usages), None), mean_duty(usages)
    if replica is None:
        rate, names = host.examples_per_s, {"#": "", "device": f"host {host.process}", "coords": "", "core": ""}
        names["kind"] = f"{len(replicas)} × {replicas[0].kind}"
    else:
        rate, device = host.examples_a_replica, replica.device.rpartition("device:")[2] or replica.device
        names = {"#": str(replica.index), "device": device, "kind": replica.kind, "coords": replica.coordinates}
        names["core"] = "" if replica.core is None else str(replica.core)
    batch = state.fit.replica_batch if state.fit is not None else None
    used = memory(usage.used_bytes, usage.limit_bytes) if usage is not None and usage.used_bytes is not None else ""
    lost = "" if host.lost is None else LOST
    word = "lost " if lost else "slow " if host.behind else ""  # first, so that it is never cut off
    names |= {"host": word + host.name, "peak": "" if usage is None else memory(usage.peak_bytes, None)}
    figures = {  # each with the reason if it is missing
        _BATCH: (count(batch) if batch else "", no_batch(state)),
        _RATE: (count(rate), host.why_not),
        _DUTY: (percent(duty), lost or no_duty(state, usage)),
        _MEMORY: (used, lost or no_memory(state, usage)),
    }
    cells = {**names, **{figure: text or NONE for figure, (text, _) in figures.items()}}
    whys = {figure: "" if text else reason for figure, (text, reason) in figures.items()}
    return ReplicaLine(host, cells, whys, usage, is_host=replica is None)


_NAME_WIDTH, _VALUE_WIDTH, _SCALE_WIDTH = 11, 16, 13
_SCALE_FROM = 70
_LEAST_SPARK = 8
_REMARK_ROWS = 3  # with so many rows more than figures, the axis and the remarks are shown too
_HIGHEST_SPARK = 5
_WRAPS_FROM = 12  # rows from which there is room for remarks of several lines
_NOTHING = np.empty(0)
_HELD_S, _HELD_GAPS = 5.0, 3.0


class SystemPane(HostPane):
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
