"""Reads the file of Keras's `CSVLogger`: a column ``epoch``, and one per metric."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from ..storage.files import TooLargeError, read_text
from .other_runs import MOST_POINTS, Point, Recorded, is_step, number_of, unreadable

if TYPE_CHECKING:
    from _csv import Reader
    from pathlib import Path

_LARGEST = 64 << 20
_NOT_METRICS = {"", "epoch", "seconds", "compile_s", "validation_s", "step_ms", "examples_per_s"}
"""Columns that are not metrics, in the `history.csv` of a run too."""


def read_csv_log(path: Path) -> Recorded:
    """Read a CSV log; raise `ConsoleError` with file and line if it is not one."""
    try:
        text = read_text(path, _LARGEST, follows_links=True).lstrip("\ufeff")
    except UnicodeDecodeError as error:
        raise unreadable(path, "it is not UTF-8 text") from error
    except TooLargeError as error:
        raise unreadable(path, f"it is larger than {_LARGEST >> 20} MiB, too large for a log of epochs") from error
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        return _recorded(path, rows)
    except csv.Error as error:
        what = f"a cell has more than {csv.field_size_limit():,} characters"
        raise unreadable(path, what, rows.line_num) from error


def _recorded(path: Path, rows: Reader) -> Recorded:
    header = [name.strip() for name in next(rows, [])]
    if "epoch" not in header:
        raise unreadable(path, "the header has no column 'epoch', which Keras's CSVLogger writes", 1)
    recorded = Recorded(path.stem, "CSVLogger", (path,))
    at, last = path.stat().st_mtime, -1
    for row in rows:
        if not row:
            continue
        line = rows.line_num
        if len(row) != len(header):
            raise unreadable(path, f"it has {len(row)} values instead of {len(header)}", line)
        values = {name: number_of(value) for name, value in zip(header, row, strict=True)}
        epoch = values["epoch"]
        if epoch is None or not is_step(epoch):
            raise unreadable(path, "the epoch is not a whole number", line)
        if epoch <= last:
            raise unreadable(path, f"epoch {epoch:.0f} follows epoch {last}: one file is one training", line)
        last = int(epoch)
        logs = {name: value for name, value in values.items() if name not in _NOT_METRICS and value is not None}
        recorded.epochs.append(Point(last, at, logs))
        if len(recorded.epochs) > MOST_POINTS:
            raise unreadable(path, f"it has more than {MOST_POINTS:,} epochs", line)
    recorded.notes.append("The file has no times: all epochs are dated when it was last written.")
    return recorded
