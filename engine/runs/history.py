"""Writes ``history.csv``: what each epoch of a run took and reached."""

from __future__ import annotations

import csv
import errno
import io
import math
import os
from typing import TYPE_CHECKING

from ..errors import ConsoleError
from ..storage.disk_space import disk_full
from ..storage.files import is_disk_full, write_whole
from ..storage.paths import user_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .events import EpochEnded
    from .run_directory import RunDirectory

_COLUMNS = ("epoch", "seconds", "compile_s", "validation_s", "step_ms", "examples_per_s", "learning_rate")


def history_csv(epochs: Sequence[EpochEnded]) -> str:
    """Return the epochs as CSV, one row per epoch, one column per metric; what was not measured is empty."""
    rows = [{name: getattr(epoch, name) for name in _COLUMNS} | epoch.logs for epoch in epochs]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys([*_COLUMNS, *(name for row in rows for name in row)])))
    writer.writeheader()
    writer.writerows({name: "" if _is_missing(value) else value for name, value in row.items()} for row in rows)
    return text.getvalue().replace("\r\n", "\n")


def _is_missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def write_history(run: RunDirectory, epochs: Sequence[EpochEnded]) -> None:
    """Write ``history.csv``; raise `ConsoleError` if it cannot be written."""
    try:
        write_whole(run.history, history_csv(epochs))
    except OSError as error:
        remedy = "Every epoch is also in events.jsonl."
        if is_disk_full(error):
            raise disk_full(run.path, "history.csv", remedy=remedy) from error
        raise ConsoleError(
            f"{user_path(run.path)} cannot be written: {os.strerror(error.errno or errno.EIO)}.", remedy=remedy
        ) from error
