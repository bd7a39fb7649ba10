"""The table of epochs: times, speed, learning rate and every metric, the best epoch marked."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..text.marks import BEST, NOW
from ..text.numbers import count, duration, learning_rate, metric, milliseconds
from ..text.tables import Column, fitting
from .rows_pane import Row, RowsPane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpu_console.engine.runs.events import EpochEnded, Progress
    from tpu_console.engine.runs.state import RunState
    from tpu_console.engine.runs.timing import Pace


@dataclass(frozen=True, slots=True)
class EpochColumn(Column):
    """One column of the table."""

    value: Callable[[EpochEnded], str] = field(kw_only=True)  # returns the text for an ended epoch
    heading: tuple[str, ...] = field(kw_only=True)  # the lines of its name


_GAP = 1
_METRIC = 9
"""Importance of the metrics, which are never dropped: the pane scrolls if even they do not fit."""


def metric_order(name: str) -> tuple[bool, bool]:
    """Sort training before validation and the loss first in each; keep Keras's order otherwise."""
    return name.startswith("val_"), not name.endswith("loss")


def columns_for(metrics: list[str], width: int) -> list[EpochColumn]:
    """Return the columns for a pane: long names are broken over two lines, then the least important ones dropped."""
    room = width - _EPOCH_WIDTH - _GAP
    whole = _columns(metrics, is_broken=False)
    if len(fitting(whole, room, _GAP)) == len(whole):
        return whole
    broken = _columns(metrics, is_broken=True)
    shown = fitting(broken, room, _GAP)
    return [column for column in broken if column.importance == _METRIC or column in shown]


def _columns(metrics: list[str], *, is_broken: bool) -> list[EpochColumn]:
    def column(name: str, broken: str, importance: int, least: int, value: Callable[[EpochEnded], str]) -> EpochColumn:
        heading = tuple((broken if is_broken else name).split("\n"))
        width = max(least, *(len(line) for line in heading))
        return EpochColumn(name, importance, right=True, width=width, value=value, heading=heading)

    def metric_of(name: str) -> Callable[[EpochEnded], str]:
        return lambda ended: metric(ended.logs.get(name))

    return [
        *(column(name, _broken(name), _METRIC, 6, metric_of(name)) for name in metrics),
        column("time", "time", 6, 6, lambda ended: duration(ended.seconds)),
        column("ms/step", "ms\n/step", 5, 5, lambda ended: milliseconds(ended.step_ms)),
        column("examples/s", "examples\n/s", 4, 7, lambda ended: count(ended.examples_per_s)),
        column("lr", "lr", 3, 7, lambda ended: learning_rate(ended.learning_rate)),
        column("compile", "compile", 2, 6, lambda ended: duration(ended.compile_s) if ended.compile_s else ""),
    ]


_EPOCH_WIDTH = 7


def _broken(name: str) -> str:
    """Break a metric's name after the underscore that makes the longer half shortest."""
    breaks = [at + 1 for at, character in enumerate(name) if character == "_" and at + 1 < len(name)]
    if not breaks:
        return name
    at = min(breaks, key=lambda place: max(place, len(name) - place))
    return f"{name[:at]}\n{name[at:]}"


class EpochTable(RowsPane):
    """One row per epoch; the last row is the current epoch."""

    follows_newest = True

    def __init__(self) -> None:
        super().__init__("3 epochs", "epochs")
        self._state: RunState | None = None
        self._epochs: Sequence[EpochEnded] = ()
        self._metrics: list[str] = []
        self._best: EpochEnded | None = None
        self._best_at = 0
        self._pace: Pace | None = None
        self._columns: list[EpochColumn] = []

    def show(self, state: RunState, pace: Pace) -> None:
        """Show the epochs of a state."""
        before = (self._epochs, self._metrics, self._current is None)
        self._pace, self._state = pace, state
        if state.epochs is not self._epochs:
            known = len(self._epochs) if len(state.epochs) >= len(self._epochs) else 0
            names = dict.fromkeys(self._metrics if known else [])
            for ended in state.epochs[known:]:
                names.update(dict.fromkeys(ended.logs))
            self._metrics = sorted(names, key=metric_order)
            self._epochs = state.epochs
            self._best = state.best_epoch()
            self._best_at = next((at for at, ended in enumerate(state.epochs) if ended is self._best), 0)
        if not self._metrics and state.progress is not None:
            self._metrics = sorted(state.progress.logs, key=metric_order)
        if before[0] is self._epochs and before[1:] == (self._metrics, self._current is None):
            self.last_row_changed()
        else:
            self.rows_changed()

    def rows_changed(self) -> None:
        """Lay out the columns for the pane's width."""
        self._columns = columns_for(self._metrics, self.room)
        super().rows_changed()

    def widest(self) -> int:
        """Cells of a row."""
        return _EPOCH_WIDTH + sum(column.width + _GAP for column in self._columns)

    @property
    def _whole(self) -> list[EpochColumn]:
        """The columns up to the one that the pane's edge would cut through: half a number reads like another one."""
        edge = self.scroll_offset.x + self.room
        ends = itertools.accumulate((column.width + _GAP for column in self._columns), initial=_EPOCH_WIDTH)
        return [
            column for column, end in zip(self._columns, itertools.islice(ends, 1, None), strict=True) if end <= edge
        ]

    def head(self) -> list[Row]:
        """The names of the columns, bottom-aligned, and the best epoch if it is not among the newest ones that fit."""
        if not self._metrics:
            return []
        headings = [
            (["epoch"], _EPOCH_WIDTH),
            *((list(column.heading), column.width + _GAP) for column in self._whole),
            *([(["…"], 2)] if self._whole[-1:] != self._columns[-1:] else []),
        ]
        height = max(len(lines) for lines, _ in headings)
        padded = [([""] * (height - len(lines)) + lines, width) for lines, width in headings]
        rows: list[Row] = [
            [("".join(f"{lines[y]:>{width}}" for lines, width in padded), "head")] for y in range(height)
        ]
        below = max(0, self.size.height - height - 1)
        if self._best is not None and self._best_at < self.row_count() - below:
            rows.append(self._ended_row(self._best))
        return rows

    @property
    def _current(self) -> Progress | None:
        """The progress of the current epoch; None between epochs and after the end."""
        if self._state is None or self._state.end is not None:
            return None
        progress = self._state.progress
        ended = self._epochs[-1].epoch if self._epochs else 0
        return progress if progress is not None and progress.epoch > ended else None

    def row_count(self) -> int:
        """Return the number of ended epochs plus the current one, or 1 for a remark if there are none."""
        return max(1, len(self._epochs) + (self._current is not None))

    def row(self, index: int) -> Row:
        """One epoch."""
        if not self._metrics:
            return self._remark()
        if index >= len(self._epochs):
            return self._running_row(self._current) if self._current is not None else []
        return self._ended_row(self._epochs[index])

    def _remark(self) -> Row:
        """What to say when there are no epochs; nothing if the run has not been read yet."""
        if self._state is None:
            return []
        is_over = self._state.end is not None
        return [("no epoch was completed" if is_over else "one row per epoch, once training begins", "faint")]

    def _ended_row(self, ended: EpochEnded) -> Row:
        is_best = ended is self._best
        mark = BEST if is_best else " "
        look = "best" if is_best else ""
        row = [(f"{mark}{ended.epoch:>{_EPOCH_WIDTH - 1}}", look)]
        for column in self._whole:
            text = column.value(ended)
            row.append((f"{text:>{column.width + _GAP}}", "bad" if text == "NaN" else look))
        return row

    def _running_row(self, progress: Progress) -> Row:
        known = {name: metric(progress.logs.get(name)) for name in self._metrics}
        if self._pace is not None:
            known["ms/step"] = milliseconds(self._pace.step_ms)
            known["examples/s"] = count(self._pace.examples_per_s)
        started = self._epochs[-1].elapsed_s if self._epochs else 0.0
        known["time"] = duration(max(0.0, progress.elapsed_s - started))
        row = [(f"{NOW}{progress.epoch:>{_EPOCH_WIDTH - 1}}", "now")]
        for column in self._whole:
            text = known.get(column.title, "")
            row.append((f"{text:>{column.width + _GAP}}", "now"))
        return row
