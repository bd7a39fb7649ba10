"""Turns what another tool recorded into a finished run."""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError
from ..runs.events import EpochEnded, FitStarted, Noticed, Progress, RunFinished, RunOutcome, RunSource, RunStarted
from ..runs.facts import conclude
from ..runs.journal import FIRST_TIME, LAST_TIME, JournalWriter
from ..runs.metrics import metric_called
from ..runs.plausible import MOST_COUNT, MOST_METRICS
from ..runs.run_directory import all_or_nothing, create_run, list_runs
from ..runs.state import best_epoch
from ..sanitize import printable
from ..storage.files import inside, open_regular, read_json, write_whole
from ..storage.paths import user_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ..runs.run_directory import RunDirectory

LARGEST_FILE = 1 << 30  # bytes
MOST_POINTS = 1_000_000
_MARK = "imported.json"
_LARGEST_MARK = 1 << 16
_SPEEDS = {"learning_rate", "lr"}


@dataclass(frozen=True, slots=True)
class Point:
    """Metrics at one moment."""

    step: int
    at: float  # Unix time
    logs: Mapping[str, float]


@dataclass(slots=True)
class Recorded:
    """What another tool recorded about a training."""

    name: str
    tool: str  # such as ``TensorBoard``
    files: tuple[Path, ...]
    epochs: list[Point] = field(default_factory=list)  # numbered from 0
    steps: list[Point] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was not read, in sentences


def unreadable(path: Path, why: str, line: int = 0) -> ConsoleError:
    """Return the error that says why a file cannot be imported."""
    where = f", line {line:,}" if line else ""
    return ConsoleError(f"{user_path(path)}{where}: {why}.")


def check_size(path: Path) -> None:
    """Raise `ConsoleError` if a file is too large for the log of a training."""
    with open_regular(path, follows_links=True) as file:
        if file.seek(0, 2) > LARGEST_FILE:
            raise unreadable(path, f"it is larger than {LARGEST_FILE >> 30} GiB, too large for the log of a training")


def digest_of(files: Sequence[Path]) -> str:
    """Return a digest of the content of some files."""
    digest = hashlib.sha256()
    for path in files:
        with open_regular(path, follows_links=True) as file:
            while part := file.read(1 << 20):
                digest.update(part)
    return digest.hexdigest()


def imported_before(digest: str) -> RunDirectory | None:
    """Return the run that was imported from the same content; None if there is none."""
    for run in list_runs():
        mark = inside(run.path, _MARK)
        try:
            if mark.exists() and read_json(mark, _LARGEST_MARK)["digest"] == digest:
                return run
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def make_run(recorded: Recorded, digest: str) -> RunDirectory:
    """Write what was recorded as a finished run."""
    epochs = [point for point in recorded.epochs if point.logs]
    steps = [point for point in recorded.steps if point.logs]
    if not epochs and not steps:
        raise unreadable(recorded.files[0], "it holds no metrics")
    times = [point.at for point in (*epochs, *steps) if FIRST_TIME < point.at < LAST_TIME] or [time.time()]
    began = datetime.fromtimestamp(min(times)).astimezone()
    run = create_run(printable(recorded.name) or "imported", now=began)
    with all_or_nothing(run):
        _Writer(run, recorded, min(times)).write(epochs, steps)
        conclude(run)
        source = {"digest": digest, "tool": recorded.tool, "files": [str(path) for path in recorded.files]}
        write_whole(inside(run.path, _MARK), json.dumps(source))
    return run


class _Writer:
    """Writes the events of a run at the times of what was recorded."""

    def __init__(self, run: RunDirectory, recorded: Recorded, began: float) -> None:
        self._recorded = recorded
        self._now = self._began = began
        self._journal = JournalWriter(run.journal, lambda: self._now)

    def write(self, epochs: list[Point], steps: list[Point]) -> None:
        recorded = self._recorded
        place = ", ".join(user_path(path) for path in recorded.files[:3]) + (", …" if recorded.files[3:] else "")
        self._journal.write(RunStarted(printable(recorded.name), RunSource.IMPORTED, 0, ""))
        self._journal.write(Noticed(printable(f"Imported from {recorded.tool}: {place}")))
        for note in recorded.notes:
            self._journal.write(Noticed(printable(note)))
        names = {name for point in (*epochs, *steps) for name in point.logs}
        monitor = next((name for name in ("val_accuracy", "val_loss", "accuracy", "loss") if name in names), "")
        monitor = monitor or next((name for name in sorted(names) if metric_called(name).lower_is_better), min(names))
        self._journal.write(FitStarted(max(1, len(epochs)), None, None, None, 1, monitor=monitor))
        for point in steps:
            self._at(point)
            self._journal.write(Progress(1, point.step, point.step, self._now - self._began, _bounded(point.logs)))
        if not epochs:  # the newest values, so that the run has a result
            newest: dict[str, float] = {}
            for point in steps:
                newest |= point.logs
            epochs = [Point(0, steps[-1].at, newest)]
        self._epochs(epochs, steps[-1].step if steps else 0)
        self._finish(monitor, epochs)
        self._journal.close()

    def _epochs(self, epochs: list[Point], last_step: int) -> None:
        ended = self._began
        for number, point in enumerate(epochs, 1):
            self._at(point)
            logs = {name: value for name, value in point.logs.items() if name not in _SPEEDS}
            if not last_step:  # the curves of training consist of these
                train = {name: value for name, value in logs.items() if not name.startswith("val_")}
                self._journal.write(Progress(number, 1, number, self._now - self._began, _bounded(train)))
            rate = next((point.logs[name] for name in _SPEEDS if name in point.logs), None)
            self._journal.write(
                EpochEnded(
                    epoch=number,
                    step=max(number, last_step),
                    epoch_steps=1,
                    elapsed_s=self._now - self._began,
                    seconds=max(0.0, self._now - ended),
                    compile_s=0.0,
                    validation_s=0.0,
                    step_ms=None,
                    examples_per_s=None,
                    learning_rate=rate,
                    logs=_bounded(logs),
                )
            )
            ended = self._now

    def _finish(self, monitor: str, epochs: list[Point]) -> None:
        ended = [
            EpochEnded(n, n, 1, 0.0, 0.0, 0.0, 0.0, None, None, None, _bounded(p.logs)) for n, p in enumerate(epochs, 1)
        ]
        best = best_epoch(ended, monitor, lowest=metric_called(monitor).lower_is_better)
        summary = {
            "run": printable(self._recorded.name),
            "outcome": RunOutcome.COMPLETED,
            "reason": f"imported from {self._recorded.tool}",
            "epochs": len(epochs),
            "seconds": self._now - self._began,
            "monitor": monitor,
            "best": {"epoch": best.epoch, **best.logs} if best else None,
            "final": ended[-1].logs,
        }
        self._journal.write(RunFinished(RunOutcome.COMPLETED, f"imported from {self._recorded.tool}", summary))

    def _at(self, point: Point) -> None:
        """Set the clock to the time of a point, but never back."""
        if FIRST_TIME < point.at < LAST_TIME:
            self._now = max(self._now, point.at)


def _bounded(logs: Mapping[str, float]) -> dict[str, float]:
    return {printable(name)[:200]: float(value) for name, value in list(logs.items())[:MOST_METRICS]}


def number_of(value: Any) -> float | None:
    """Return a number that was read from a file; None if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def is_step(value: float | None) -> bool:
    """Return whether a number can be that of a step or an epoch."""
    return value is not None and math.isfinite(value) and 0 <= value < MOST_COUNT and value == int(value)
