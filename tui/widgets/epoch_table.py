"""The table of epochs: times, speed, learning rate and every metric, the best epoch marked."""

import itertools
from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from tpu_console.engine.runs.events import EpochEnded, Progress
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.runs.timing import Pace

from ..text.numbers import count, duration, metric, milliseconds
from ..text.run_lines import METRIC, epoch_columns, metrics_in_order
from ..text.tables import BEST, NOW, Column, fitting
from .basics import Row, RowsPane

_GAP = 1
_EPOCH_WIDTH = 7


def columns_for(metrics: list[str], width: int, longest: Mapping[str, int] = MappingProxyType({})) -> list[Column]:
    """Return the columns for a pane: long names are broken over two lines, then the least important ones dropped.

    The metrics come first and always stay. `longest` has the cells of a column's longest value, by its key.
    """
    room = width - _EPOCH_WIDTH - _GAP
    columns = [column for column in epoch_columns(metrics) if 1 < column.importance <= METRIC]
    columns = [replace(column, width=max(column.width, longest.get(column.key, 0))) for column in columns]
    columns.sort(key=lambda column: -column.importance)
    whole, broken = ([_headed(column, title(column.title)) for column in columns] for title in (str, _broken))
    if len(fitting(whole, room, _GAP)) == len(whole):
        return whole
    shown = fitting(broken, room, _GAP)
    return [column for column in broken if column.importance == METRIC or column in shown]


def _headed(column: Column, title: str) -> Column:
    """Return a column as wide as the lines of its heading."""
    return replace(column, title=title, width=max(column.width, *map(len, title.split("\n"))))


def _broken(name: str) -> str:
    """Break a name before its slash, or after the underscore that makes the longer half shortest."""
    breaks = [name.index("/")] if "/" in name else [at for at in range(1, len(name)) if name[at - 1] == "_"]
    at = min(breaks, key=lambda place: max(place, len(name) - place), default=0)
    return f"{name[:at]}\n{name[at:]}" if at else name


class EpochTable(RowsPane):
    """One row per epoch; the last row is the current epoch."""

    follows_newest = True

    def __init__(self, pane_id: str) -> None:
        super().__init__(pane_id)
        self._state, self._pace = RunState(), Pace()
        self._metrics: list[str] = []
        self._best: EpochEnded | None = None
        self._columns: list[Column] = []
        self._longest: dict[str, int] = {}  # cells of the longest value of each column, by its key

    def show(self, state: RunState, pace: Pace) -> None:
        """Show the epochs of a state."""
        known = len(self._state.epochs) if len(state.epochs) >= len(self._state.epochs) else 0
        new = state.epochs[known:]
        names = dict.fromkeys([*(self._metrics if known else ()), *(name for ended in new for name in ended.logs)])
        if not names and state.progress is not None:
            names = dict.fromkeys(state.progress.logs)
        self._metrics = metrics_in_order(state, names)
        for column in epoch_columns(self._metrics):
            longest = max((len(column.written(ended, none="")) for ended in new), default=0)
            self._longest[column.key] = max(longest, self._longest.get(column.key, 0))
        if state.epochs is not self._state.epochs:
            self._best = state.best_epoch()
        self._pace, self._state = pace, state
        self.rows_changed()

    def rows_changed(self) -> None:
        """Lay out the columns for the pane's width."""
        self._columns = columns_for(self._metrics, self.room, self._longest)
        super().rows_changed()

    def widest(self) -> int:
        return _EPOCH_WIDTH + sum(column.width + _GAP for column in self._columns)

    @property
    def _whole(self) -> list[Column]:
        """The columns up to the one that the pane's edge would cut through: half a number reads like another one."""
        edge = self.scroll_offset.x + self.room
        ends = itertools.accumulate((column.width + _GAP for column in self._columns), initial=_EPOCH_WIDTH)
        return [column for column, end in zip(self._columns, [*ends][1:], strict=True) if end <= edge]

    def head(self) -> list[Row]:
        """The names of the columns, bottom-aligned, and the best epoch if it is not among the newest ones that fit."""
        if not self._metrics:
            return []
        headings = [("epoch", _EPOCH_WIDTH), *((column.title, column.width + _GAP) for column in self._whole)]
        headings += [("…", 2)] if self._whole[-1:] != self._columns[-1:] else []
        height = 1 + max(title.count("\n") for title, _ in headings)
        padded = [("\n" * (height - 1 - title.count("\n")) + title).split("\n") for title, _ in headings]
        rows: list[Row] = [
            [("".join(f"{line:>{width}}" for line, (_, width) in zip(lines, headings, strict=True)), "head")]
            for lines in zip(*padded, strict=True)
        ]
        below = max(0, self.size.height - height - 1 - (self._current is not None))
        seen = self._state.epochs[max(0, len(self._state.epochs) - below) :]
        if self._best is not None and all(ended is not self._best for ended in seen):
            rows.append(self._ended_row(self._best))
        return rows

    @property
    def _current(self) -> Progress | None:
        """The progress of the current epoch; None between epochs and after the end."""
        progress, epochs = self._state.progress, self._state.epochs
        is_new = progress is not None and progress.epoch > (epochs[-1].epoch if epochs else 0)
        return progress if is_new and self._state.end is None else None

    def row_count(self) -> int:
        """Return the number of ended epochs plus the current one, or 1 for a remark if there are none."""
        return max(1, len(self._state.epochs) + (self._current is not None))

    def row(self, index: int) -> Row:
        if not self._metrics:
            is_over = self._state.end is not None
            return [("no epoch was completed" if is_over else "one row per epoch, once training begins", "faint")]
        if index < len(self._state.epochs):
            return self._ended_row(self._state.epochs[index])
        if (progress := self._current) is None:
            return []
        known = {name: metric(progress.logs.get(name)) for name in self._metrics}
        started = self._state.epochs[-1].elapsed_s if self._state.epochs else 0.0
        known |= {
            "step_ms": milliseconds(self._pace.step_ms),
            "examples_per_s": count(self._pace.examples_per_s),
            "seconds": duration(max(0.0, progress.elapsed_s - started)),
        }
        cells = (f"{known.get(column.key, '')[: column.width]:>{column.width + _GAP}}" for column in self._whole)
        return [(f"{NOW}{progress.epoch:>{_EPOCH_WIDTH - 1}}{''.join(cells)}", "now")]

    def _ended_row(self, ended: EpochEnded) -> Row:
        mark, look = (BEST, "best") if ended is self._best else (" ", "")
        row = [(f"{mark}{ended.epoch:>{_EPOCH_WIDTH - 1}}", look)]
        for column in self._whole:
            text = column.written(ended, none="")
            row.append((f"{text:>{column.width + _GAP}}", "bad" if text == "NaN" else look))
        return row
