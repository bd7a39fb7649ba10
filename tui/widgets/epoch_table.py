"""The table of epochs: times, speed, learning rate and every metric, the best epoch marked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tpu_console.engine.runs.state import best_epoch

from ..text.live_numbers import count, milliseconds, plain, rate, score, seconds_text
from .rows_pane import Row, RowsPane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpu_console.engine.runs.events import EpochEnded, Progress
    from tpu_console.engine.runs.state import RunState
    from tpu_console.engine.runs.timing import Pace


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table.

    Attributes:
        name: What stands above it.
        broken: The same over two lines, for where there is little room.
        value: Its text for an ended epoch.
        least: Cells that its values may need.
        is_narrow: Whether its name stands over two lines.
    """

    name: str
    broken: str
    value: Callable[[EpochEnded], str]
    least: int
    is_narrow: bool = False

    @property
    def heading(self) -> list[str]:
        """The lines of its name."""
        return (self.broken if self.is_narrow else self.name).split("\n")

    @property
    def width(self) -> int:
        """Cells, with the gap before it."""
        return 1 + max(self.least, *(len(line) for line in self.heading))


def _metric_column(name: str) -> Column:
    return Column(name, _broken(name), lambda ended: score(ended.logs.get(name)), 6)


def _metric_order(name: str) -> tuple[bool, bool]:
    """Training before validation, and the loss first in each; the rest as Keras orders it."""
    return name.startswith("val_"), not name.endswith("loss")


def columns_for(metrics: list[str], width: int) -> list[Column]:
    """Return the columns for a pane; names are broken over two lines where one line would not fit.

    Args:
        metrics: Names of the metrics.
        width: Cells of the pane.
    """
    fixed = [
        Column("time", "time", lambda ended: seconds_text(ended.seconds), 6),
        Column("ms/step", "ms\n/step", lambda ended: milliseconds(ended.step_ms), 5),
        Column("images/s", "images\n/s", lambda ended: count(ended.examples_per_s), 7),
        Column("lr", "lr", lambda ended: rate(ended.learning_rate), 6),
        Column("compile", "compile", lambda ended: seconds_text(ended.compile_s) if ended.compile_s else "", 6),
    ]
    columns = [*(_metric_column(name) for name in metrics), *fixed]
    if _EPOCH_WIDTH + sum(column.width for column in columns) <= width:
        return columns
    return [replace(column, is_narrow=True) for column in columns]


_EPOCH_WIDTH = 7


def _broken(name: str) -> str:
    """Break a metric's name after the underscore that makes the longer half shortest."""
    breaks = [at + 1 for at, character in enumerate(name) if character == "_" and at + 1 < len(name)]
    if not breaks:
        return name
    at = min(breaks, key=lambda place: max(place, len(name) - place))
    return f"{name[:at]}\n{name[at:]}"


class EpochTable(RowsPane):
    """One row an epoch, and the epoch that runs as the last row."""

    def __init__(self) -> None:
        super().__init__("3 epochs", "epochs")
        self._state: RunState | None = None
        self._epochs: Sequence[EpochEnded] = ()
        self._metrics: list[str] = []
        self._best: EpochEnded | None = None
        self._pace: Pace | None = None
        self._columns: list[Column] = []

    def show(self, state: RunState, pace: Pace) -> None:
        """Show the epochs of a state."""
        before = (self._epochs, self._metrics, self._current is None)
        self._pace, self._state = pace, state
        if state.epochs is not self._epochs:
            known = len(self._epochs) if len(state.epochs) >= len(self._epochs) else 0
            names = dict.fromkeys(self._metrics if known else [])
            for ended in state.epochs[known:]:
                names.update(dict.fromkeys(ended.logs))
            self._metrics = sorted(names, key=_metric_order)
            self._epochs = state.epochs
            self._best = best_epoch(state.epochs, state.monitor)
        if not self._metrics and state.progress is not None:
            self._metrics = sorted(state.progress.logs, key=_metric_order)
        if before[0] is self._epochs and before[1:] == (self._metrics, self._current is None):
            self.last_row_changed()
        else:
            self.rows_changed()

    def rows_changed(self) -> None:
        """Lay the columns out for the width there is."""
        self._columns = columns_for([plain(name, self.glyphs) for name in self._metrics], self.size.width)
        super().rows_changed()

    def widest(self) -> int:
        """Cells of a row."""
        return _EPOCH_WIDTH + sum(column.width for column in self._columns)

    def head(self) -> list[Row]:
        """The names of the columns, bottom-aligned."""
        if not self._metrics:
            return []
        headings = [(["epoch"], _EPOCH_WIDTH), *((column.heading, column.width) for column in self._columns)]
        height = max(len(lines) for lines, _ in headings)
        padded = [([""] * (height - len(lines)) + lines, width) for lines, width in headings]
        return [[("".join(f"{lines[y]:>{width}}" for lines, width in padded), "head")] for y in range(height)]

    @property
    def _current(self) -> Progress | None:
        """Where the epoch that runs stands; None between epochs and after the end."""
        if self._state is None or self._state.end is not None:
            return None
        progress = self._state.progress
        ended = self._epochs[-1].epoch if self._epochs else 0
        return progress if progress is not None and progress.epoch > ended else None

    def row_count(self) -> int:
        """Ended epochs and the one that runs, or one remark when there is none."""
        return max(1, len(self._epochs) + (self._current is not None))

    def row(self, index: int) -> Row:
        """One epoch."""
        if not self._metrics:
            return [("a row for each epoch, once training begins", "faint")]
        if index >= len(self._epochs):
            return self._running_row(self._current) if self._current is not None else []
        ended = self._epochs[index]
        is_best = ended is self._best
        mark = self.glyphs.star if is_best else " "
        look = "best" if is_best else ""
        row = [(f"{mark}{ended.epoch:>{_EPOCH_WIDTH - 1}}", look)]
        for column in self._columns:
            text = column.value(ended)
            row.append((f"{text:>{column.width}}", "bad" if text == "NaN" else look))
        return row

    def _running_row(self, progress: Progress) -> Row:
        known = {name: score(progress.logs.get(name)) for name in self._metrics}
        if self._pace is not None:
            known["ms/step"] = milliseconds(self._pace.step_ms)
            known["images/s"] = count(self._pace.examples_per_s)
        started = self._epochs[-1].elapsed_s if self._epochs else 0.0
        known["time"] = seconds_text(max(0.0, progress.elapsed_s - started))
        row = [(f"{self.glyphs.now}{progress.epoch:>{_EPOCH_WIDTH - 1}}", "now")]
        for column in self._columns:
            text = known.get(column.name, "")
            row.append((f"{text:>{column.width}}", "now"))
        return row
