"""Imports the trainings of other tools as runs: the job of `tpu-console runs import`."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError, one_line
from ..machine.install import install_line
from ..storage.files import TooLargeError, read_text
from ..storage.paths import user_path
from .other_runs import (
    MOST_POINTS,
    Point,
    Recorded,
    check_size,
    digest_of,
    imported_before,
    is_step,
    make_run,
    number_of,
    unreadable,
)

if TYPE_CHECKING:
    from _csv import Reader
    from collections.abc import Callable, Iterator, Sequence

    from ..messages import Reporter


_MOST_FILES = 10_000


def import_runs(reporter: Reporter, places: Sequence[str]) -> dict[str, Any]:
    """Import event files and CSV logs; folders are searched.

    Returns:
        The runs, each with its source and whether it was imported before, and the errors of broken files.

    Raises:
        ConsoleError: There is nothing to import.
    """
    found = [source for place in places for source in _sources(Path(place))]
    runs: list[dict[str, Any]] = []
    errors: list[str] = []
    for number, (files, read) in enumerate(found):
        reporter.progress("importing", number, len(found), "trainings")
        try:
            recorded = read()  # before the digest, which would read all of a file that is too large
            digest = digest_of(files)
            known = imported_before(digest)
            run = known or make_run(recorded, digest)
            runs.append({"run": run.run_id, "source": user_path(files[0]), "is_known": known is not None})
        except ConsoleError as error:
            errors.append(str(error))
        except OSError as error:
            errors.append(f"{user_path(files[0])} cannot be read: {error.strerror}.")
    reporter.progress("importing", len(found), len(found), "trainings")
    return {"runs": runs, "errors": errors}


def _sources(place: Path) -> list[tuple[list[Path], Callable[[], Recorded]]]:
    """Return the trainings in a file or folder, each with its files and the function that reads them."""
    try:
        place.stat()
    except OSError as error:
        raise ConsoleError(f"{user_path(place)} cannot be read: {error.strerror}.") from error
    files = [place]
    if place.is_dir():
        files = []
        for path in place.rglob("*"):
            if path.is_file() and not path.is_symlink() and (is_event_file(path) or path.suffix == ".csv"):
                files.append(path)
            if len(files) > _MOST_FILES:
                raise ConsoleError(f"{user_path(place)} holds more than {_MOST_FILES:,} files of trainings.")
    found: list[tuple[list[Path], Callable[[], Recorded]]] = []
    groups = trainings([path for path in files if is_event_file(path)])
    found += [(parts, partial(read_events, folder, parts)) for folder, parts in groups.items()]
    logs = [path for path in sorted(files) if path.suffix == ".csv" and (path == place or _is_log(path))]
    found += [([path], partial(read_csv_log, path)) for path in logs]
    if not found:
        raise ConsoleError(
            f"{user_path(place)} holds nothing to import.",
            remedy="To import: TensorBoard's event files, and the CSV files of Keras's CSVLogger.",
        )
    return found


def _is_log(path: Path) -> bool:
    """Return whether a CSV file in a folder looks like that of `CSVLogger`."""
    try:
        with path.open("rb") as file:
            header = file.readline(4096)
    except OSError:
        return False
    return bool(re.match(rb"(\xef\xbb\xbf)?epoch[,;\t]", header))


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


_PREFIX = "epoch_"
"""What Keras's callback puts before the name of an epoch's metric."""

_PARTS = {"train": "", "validation": "val_", "val": "val_", "eval": "val_"}
"""Folders with parts of one training, and the prefixes of their metrics."""


def is_event_file(path: Path) -> bool:
    """Return whether a file's name is that of an event file."""
    return ".tfevents." in path.name


def trainings(files: Sequence[Path]) -> dict[Path, list[Path]]:
    """Group event files by the training that wrote them: those in ``train`` and ``validation`` belong together."""
    found: dict[Path, list[Path]] = defaultdict(list)
    for path in sorted(files):
        folder = path.parent
        found[folder.parent if folder.name in _PARTS else folder].append(path)
    return found


def read_events(folder: Path, files: Sequence[Path]) -> Recorded:
    """Read the scalars of a training; raise `ConsoleError` if a file cannot be read."""
    recorded = Recorded(folder.name or "tensorboard", "TensorBoard", tuple(files))
    epochs: dict[int, dict[str, float]] = defaultdict(dict)
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    times: dict[int, float] = {}
    count = 0
    for path in files:
        check_size(path)
        prefix = _PARTS.get(path.parent.name, "")
        for tag, step, at, value in _scalars(path):
            count += 1
            if count > MOST_POINTS:
                raise unreadable(path, f"it has more than {MOST_POINTS:,} values")
            if tag.startswith(_PREFIX):
                epochs[step][prefix + tag.removeprefix(_PREFIX)] = value
            elif "_vs_iterations" not in tag:
                steps[step][prefix + tag] = value
            times[step] = max(at, times.get(step, 0.0))
    recorded.epochs = [Point(step, times[step], epochs[step]) for step in sorted(epochs)]
    recorded.steps = [Point(step, times[step], steps[step]) for step in sorted(steps)]
    return recorded


def _scalars(path: Path) -> Iterator[tuple[str, int, float, float]]:
    """Yield tag, step, time and value of each scalar; a file that was cut off ends where it is damaged."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util import tensor_util
    except ImportError as error:
        raise ConsoleError(
            "TensorBoard is not installed; it reads event files.",
            remedy=f"To install it: {install_line('tensorboard')}",
        ) from error
    number = 0
    try:
        for event in EventFileLoader(str(path)).Load():
            number += 1
            for value in event.summary.value:
                found = _number(value, tensor_util)
                if found is not None and is_step(event.step):
                    yield value.tag, int(event.step), float(event.wall_time), found
    except Exception as error:  # the reader raises many kinds of errors for a damaged file
        raise unreadable(path, f"it is damaged after {number:,} events: {one_line(error, 120)}") from error
    if not number:
        raise unreadable(path, "it holds no event; it is damaged or not an event file")


def _number(value: Any, tensor_util: Any) -> float | None:
    """Return the number of a summary; None for an image, a text and so on."""
    plugin = value.metadata.plugin_data.plugin_name
    if plugin not in {"", "scalars"} or not value.HasField("tensor"):
        return None
    array = tensor_util.make_ndarray(value.tensor)
    return number_of(array.item()) if array.size == 1 and array.dtype.kind in "fiu" else None
