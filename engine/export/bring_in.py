"""Imports the trainings of other tools as finished runs: the job of `tpu-console runs import`."""

import csv
import hashlib
import io
import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field

from ..errors import ConsoleError, one_line
from ..machine.install import install_line
from ..messages import Reporter
from ..runs.events import EpochEnded, FitStarted, Noticed, Progress, RunFinished, RunOutcome, RunSource, RunStarted
from ..runs.facts import conclude, summary_of
from ..runs.follower import StateReader
from ..runs.journal import FIRST_TIME, LAST_TIME, JournalWriter
from ..runs.metrics import metric_called
from ..runs.run_directory import RunDirectory, all_or_nothing, create_run, list_runs
from ..sanitize import MOST_COUNT, MOST_METRICS, printable
from ..storage.files import TooLargeError, inside, open_regular, read_json, read_text, write_whole
from ..storage.paths import user_path

_MOST_FILES = 10_000
_MOST_POINTS = 1_000_000
_LARGEST_LOG, _LARGEST_EVENTS = 64 << 20, 1 << 30  # bytes of a file
_MARK, _LARGEST_MARK = "imported.json", 1 << 16
# Columns that are not metrics, in the `history.csv` of a run too.
_NOT_METRICS = {"", "epoch", "seconds", "compile_s", "validation_s", "step_ms", "examples_per_s"}
_RATES = {"learning_rate", "lr"}
_PREFIX = "epoch_"  # what Keras's callback puts before the name of an epoch's metric
_PARTS = {"train": "", "validation": "val_", "val": "val_", "eval": "val_"}  # folders of parts, and their prefixes


class Point(NamedTuple):
    """Metrics at one moment."""

    step: int
    at: float  # Unix time
    logs: Mapping[str, float]


class Recorded(Struct):
    """What another tool recorded about a training."""

    name: str
    tool: str  # such as ``TensorBoard``
    files: Sequence[Path]
    epochs: list[Point] = field(default_factory=list)  # numbered from 0
    steps: list[Point] = field(default_factory=list)


def import_runs(reporter: Reporter, places: Sequence[str]) -> dict[str, Any]:
    """Import event files and CSV logs; folders are searched. Raises `ConsoleError` if there is nothing to import.

    Returns the runs, each with its source and whether it was imported before, and the errors of broken files.
    """
    found = [source for place in places for source in _sources(Path(place))]
    runs: list[dict[str, Any]] = []
    errors: list[str] = []
    for number, (files, read) in enumerate(found):
        reporter.progress("importing", number, len(found), "trainings")
        try:
            recorded = read()  # before the digest, which would read all of a file that is too large
            content = hashlib.sha256()
            for path in files:
                with open_regular(path, follows_links=True) as file:
                    while part := file.read(1 << 20):
                        content.update(part)
            digest = content.hexdigest()
            known = next((run for run in list_runs() if _digest_of(run) == digest), None)
            run = known or _make_run(recorded, digest)
            runs.append({"run": run.run_id, "source": user_path(files[0]), "is_known": known is not None})
        except ConsoleError as error:
            errors.append(str(error))
        except OSError as error:
            errors.append(f"{user_path(files[0])} cannot be read: {error.strerror}.")
    reporter.progress("importing", len(found), len(found), "trainings")
    return {"runs": runs, "errors": errors}


def _sources(place: Path) -> list[tuple[list[Path], Callable[[], Recorded]]]:
    """Return the trainings in a file or folder, each with its files and what reads them; parts of one are together."""
    try:
        place.stat()
    except OSError as error:
        raise ConsoleError(f"{user_path(place)} cannot be read: {error.strerror}.") from error
    files = [place]
    if place.is_dir():
        known = (path for path in place.rglob("*") if ".tfevents." in path.name or path.suffix == ".csv")
        files = sorted(path for path in known if path.is_file() and not path.is_symlink())
    if len(files) > _MOST_FILES:
        raise ConsoleError(f"{user_path(place)} holds more than {_MOST_FILES:,} files of trainings.")
    groups: dict[Path, list[Path]] = defaultdict(list)
    for path in files:
        if ".tfevents." in path.name:
            groups[path.parent.parent if path.parent.name in _PARTS else path.parent].append(path)
    found: list[tuple[list[Path], Callable[[], Recorded]]]
    found = [(parts, partial(read_events, folder, parts)) for folder, parts in groups.items()]
    logs = [path for path in files if path.suffix == ".csv" and (path == place or _is_log(path))]
    found += [([path], partial(read_csv_log, path)) for path in logs]
    if not found:
        remedy = "To import: TensorBoard's event files, and the CSV files of Keras's CSVLogger."
        raise ConsoleError(f"{user_path(place)} holds nothing to import.", remedy=remedy)
    return found


def _is_log(path: Path) -> bool:
    with suppress(OSError), open_regular(path, follows_links=True) as file:
        return bool(re.match(rb"(\xef\xbb\xbf)?epoch[,;\t]", file.readline(4096)))
    return False


def read_csv_log(path: Path) -> Recorded:
    """Read a CSV log, dating epochs by the file's time; raise `ConsoleError` with file and line if it is not one."""
    try:
        text = read_text(path, _LARGEST_LOG, follows_links=True).lstrip("\ufeff")
    except UnicodeDecodeError as error:
        raise _unreadable(path, "it is not UTF-8 text") from error
    except TooLargeError as error:
        raise _unreadable(path, f"it is larger than {_LARGEST_LOG >> 20} MiB, too large for a log of epochs") from error
    separator = max(",;\t", key=text.partition("\n")[0].count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    recorded, at, last = Recorded(path.stem, "CSVLogger", (path,)), path.stat().st_mtime, -1
    try:
        header = [name.strip() for name in next(rows, [])]
        if "epoch" not in header:
            raise _unreadable(path, "the header has no column 'epoch', which Keras's CSVLogger writes", 1)
        for row in filter(None, rows):
            if len(row) != len(header):
                raise _unreadable(path, f"it has {len(row)} values instead of {len(header)}", rows.line_num)
            values: dict[str, float] = {}
            for name, value in zip(header, row, strict=True):
                with suppress(ValueError):
                    values[name] = float(value)
            epoch = values.get("epoch", math.nan)
            if not _is_step(epoch) or epoch <= last:
                raise _unreadable(path, "the epoch is not a whole number above that of the line before", rows.line_num)
            last = int(epoch)
            logs = {name: value for name, value in values.items() if name not in _NOT_METRICS}
            recorded.epochs.append(Point(last, at, logs))
    except csv.Error as error:
        raise _unreadable(path, str(error), rows.line_num) from error
    return recorded


def read_events(folder: Path, files: Sequence[Path]) -> Recorded:
    """Read the scalars of a training; raise `ConsoleError` if a file cannot be read."""
    epochs: dict[int, dict[str, float]] = defaultdict(dict)
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    times: dict[int, float] = {}
    count = 0
    for path in files:
        with open_regular(path, follows_links=True) as file:
            if file.seek(0, 2) > _LARGEST_EVENTS:
                raise _unreadable(path, f"it is larger than {_LARGEST_EVENTS >> 30} GiB")
        prefix = _PARTS.get(path.parent.name, "")
        for tag, step, at, value in _scalars(path):
            count += 1
            if count > _MOST_POINTS:
                raise _unreadable(path, f"it has more than {_MOST_POINTS:,} values")
            if tag.startswith(_PREFIX):
                epochs[step][prefix + tag.removeprefix(_PREFIX)] = value
            elif "_vs_iterations" not in tag:
                steps[step][prefix + tag] = value
            times[step] = max(at, times.get(step, 0.0))
    points = ([Point(step, times[step], logs[step]) for step in sorted(logs)] for logs in (epochs, steps))
    return Recorded(folder.name or "tensorboard", "TensorBoard", files, *points)


def _scalars(path: Path) -> Iterator[tuple[str, int, float, float]]:
    """Yield tag, step, time and value of each scalar, but of no image, text and so on."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util import tensor_util
    except ImportError as error:
        remedy = f"To install it: {install_line('tensorboard')}"
        raise ConsoleError("TensorBoard is not installed; it reads event files.", remedy=remedy) from error
    number = 0
    try:
        for number, event in enumerate(EventFileLoader(str(path)).Load(), 1):  # noqa: B007  for the error
            for value in event.summary.value:
                plugin = value.metadata.plugin_data.plugin_name
                if plugin not in {"", "scalars"} or not value.HasField("tensor"):
                    continue
                array = tensor_util.make_ndarray(value.tensor)
                if array.size == 1 and array.dtype.kind in "fiu" and _is_step(event.step):
                    yield value.tag, int(event.step), float(event.wall_time), float(array.item())
    except Exception as error:  # the reader raises many kinds of errors for a damaged file
        raise _unreadable(path, f"it is damaged after {number:,} events: {one_line(error, 120)}") from error
    if not number:
        raise _unreadable(path, "it holds no event; it is damaged or not an event file")


def _unreadable(path: Path, why: str, line: int = 0) -> ConsoleError:
    where = f", line {line:,}" if line else ""
    return ConsoleError(f"{user_path(path)}{where}: {why}.")


def _digest_of(run: RunDirectory) -> str:
    """Return the digest of what a run was imported from; empty if it was not imported."""
    try:
        return str(read_json(inside(run.path, _MARK), _LARGEST_MARK)["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _make_run(recorded: Recorded, digest: str) -> RunDirectory:
    """Write what was recorded as a finished run, whose events have the times of what was recorded."""
    epochs = [point for point in recorded.epochs if point.logs]
    steps = [point for point in recorded.steps if point.logs]
    if not epochs and not steps:
        raise _unreadable(recorded.files[0], "it holds no metrics")
    times = [point.at for point in (*epochs, *steps) if FIRST_TIME < point.at < LAST_TIME] or [time.time()]
    began = now = min(times)
    run = create_run(printable(recorded.name) or "imported", now=datetime.fromtimestamp(began).astimezone())
    with all_or_nothing(run):
        journal = JournalWriter(run.journal, lambda: now)
        journal.write(RunStarted(printable(recorded.name), RunSource.IMPORTED, 0, ""))
        journal.write(Noticed(printable(f"Imported from {recorded.tool}: {user_path(recorded.files[0])}")))
        names = {name for point in (*epochs, *steps) for name in point.logs}
        monitor = next((name for name in ("val_accuracy", "val_loss", "accuracy", "loss") if name in names), "")
        monitor = monitor or next((name for name in sorted(names) if metric_called(name).lower_is_better), min(names))
        journal.write(FitStarted(max(1, len(epochs)), None, None, None, 1, monitor=monitor))
        for point in steps:
            now = _later(now, point)
            journal.write(Progress(1, point.step, point.step, now - began, _bounded(point.logs)))
        if not epochs:  # the newest values, so that the run has a result
            epochs = [Point(0, now, {name: value for point in steps for name, value in point.logs.items()})]
        ended, last_step = began, steps[-1].step if steps else 0
        for number, point in enumerate(epochs, 1):
            now = _later(now, point)
            logs = {name: value for name, value in point.logs.items() if name not in _RATES}
            if not last_step:  # the curves of training consist of these
                train = {name: value for name, value in logs.items() if not name.startswith("val_")}
                journal.write(Progress(number, 1, number, now - began, _bounded(train)))
            rate = next((point.logs[name] for name in _RATES if name in point.logs), None)
            step, spent = max(number, last_step), (now - began, now - ended, 0.0, 0.0)  # none compiling or validating
            journal.write(EpochEnded(number, step, 1, *spent, None, None, rate, _bounded(logs)))
            ended = now
        journal.flush()
        outcome, reason = RunOutcome.COMPLETED, f"imported from {recorded.tool}"
        journal.write(RunFinished(outcome, reason, summary_of(StateReader(run).catch_up(), outcome, reason)))
        journal.close()
        conclude(run)
        source = {"digest": digest, "tool": recorded.tool, "files": [str(path) for path in recorded.files]}
        write_whole(inside(run.path, _MARK), json.dumps(source))
    return run


def _later(now: float, point: Point) -> float:
    """Return the time of a point, or `now` if that is later or the point's makes no sense."""
    return max(now, point.at) if FIRST_TIME < point.at < LAST_TIME else now


def _bounded(logs: Mapping[str, float]) -> dict[str, float]:
    return {printable(name)[:200]: float(value) for name, value in list(logs.items())[:MOST_METRICS]}


def _is_step(value: float) -> bool:
    return math.isfinite(value) and 0 <= value < MOST_COUNT and value == int(value)
