"""A run's overview, for lists, and everything in its journal, for a single run."""

from __future__ import annotations

import errno
import os
import stat
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.annotations import NO_ANNOTATIONS, Annotations, read_annotations
from tpu_console.engine.runs.liveness import WATCH_S, Life, Liveness, watch_once
from tpu_console.engine.sanitize import printable
from tpu_console.engine.storage.files import NotAFileError, folder_size

from ..text.names import short_name
from ..text.numbers import local_time
from ..text.silence import STOP_PENDING, silent_text, stall_text
from .run_facts import Facts
from .run_index import RunIndex

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.runs.liveness import HeartbeatWatch
    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.runs.state import RunState
    from tpu_console.engine.runs.timing import Stall

    from .run_index import Stamp

_NO_LIFE = Life(Liveness.DEAD)
_LONG = 1 << 20  # bytes of a journal, from which its state is kept: see `engine.runs.state_cache`


class Status(StrEnum):
    """The status of a run."""

    UNSTARTED = "not started"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    SILENT = "not responding"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    CRASHED = "crashed"
    UNREADABLE = "unreadable"

    @property
    def is_live(self) -> bool:
        """Whether something trains."""
        return self in {Status.RUNNING, Status.PAUSED, Status.STOPPING, Status.SILENT}


@dataclass(frozen=True, slots=True)
class Overview:
    """The overview of a run."""

    run: RunDirectory
    facts: Facts  # a short form of its journal
    status: Status
    last_beat_at: float = 0.0  # Unix time of its last heartbeat; 0 if there was none or the run has ended
    life: Life = _NO_LIFE  # what its heartbeat and its process say; not looked up when the run has ended
    # How long training has made no progress although the process responds; None if it does not stall.
    stall: Stall | None = None
    problem: str = ""  # why its journal cannot be read; empty when it can
    annotations: Annotations = NO_ANNOTATIONS  # what a person wrote on it

    @property
    def is_settled(self) -> bool:
        """Whether a second look at the heartbeat cannot change the status."""
        return bool(self.facts.outcome or self.problem) or self.life.is_settled

    @property
    def stop_waits(self) -> bool:
        """Whether the run was asked to stop and has not responded since."""
        return self.status is Status.SILENT and (self.life.stop_waits or self.facts.is_stopping)

    @property
    def status_text(self) -> str:
        """The status with how long it has lasted, such as ``not responding for 25 s``."""
        if self.status is Status.SILENT:
            return silent_text(self.life.silent_s)
        return f"{self.status}, {stall_text(self.stall)}" if self.stall is not None else self.status.value

    @property
    def remark(self) -> str:
        """The status in full, if there is more to it than a word; else empty."""
        if self.stop_waits:
            return f"{self.status_text}; {STOP_PENDING}"
        return self.status_text if self.status is Status.SILENT or self.stall is not None else ""

    @property
    def name(self) -> str:
        """Its title, or else its name without the date."""
        return self.annotations.title or short_name(self.run.run_id)

    @property
    def label(self) -> str:
        """The preset it was made from, or the name a notebook gave."""
        return self.facts.label

    @property
    def best(self) -> tuple[str, float] | None:
        """The metric that decides which epoch is best, and its best value."""
        return (self.facts.monitor, self.facts.best) if self.facts.best is not None else None

    @property
    def epochs_done(self) -> int:
        """Epochs that ended."""
        return self.facts.epochs_done

    @property
    def epochs(self) -> int | None:
        """Epochs to train; None before training began."""
        return self.facts.epochs

    def seconds(self, now: float | None = None) -> float | None:
        """Return how long it took, or takes until now; None before its first event."""
        if not self.facts.has_started:
            return None
        until = self.facts.last_at
        if self.status.is_live:
            until = now or time.time()
        elif self.status is Status.CRASHED:
            until = max(until, self.last_beat_at)
        return max(0.0, until - self.facts.started_at - self.facts.away_s)

    @property
    def started(self) -> datetime | None:
        """Local time of its first event."""
        return local_time(self.facts.started_at) if self.facts.has_started else None

    def config(self) -> RunConfig | None:
        """Read its configuration; None if it has none, such as a notebook's run, or if it cannot be read."""
        from tpu_console.engine.config.reading import load_config

        try:
            return load_config(self.run.config)
        except ConsoleError:
            return None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as ``--json`` writes them."""
        best = self.best
        return {
            "run": self.run.run_id,
            "preset": self.label,
            "state": self.status.value,
            "silent_s": self.life.silent_s if self.status is Status.SILENT else None,
            "no_step_s": self.stall.seconds if self.stall is not None else None,
            "stop_waits": self.stop_waits,
            "epochs_done": self.epochs_done,
            "epochs": self.epochs,
            "monitor": best[0] if best is not None else None,
            "best": best[1] if best is not None else None,
            "dataset": self.facts.dataset,
            "model": self.facts.model,
            "changes": self.facts.changes,
            "accelerator": self.facts.accelerator,
            "replicas": self.facts.replicas,
            "global_batch": self.facts.global_batch,
            "examples_per_s": self.facts.examples_per_s,
            "size_bytes": self.facts.size_bytes,
            "title": self.annotations.title,
            "tags": list(self.annotations.tags),
            "note": self.annotations.note,
            "archived": self.annotations.archived,
            "seconds": self.seconds(),
            "started": self.started.isoformat(timespec="seconds") if self.started is not None else None,
            "path": printable(str(self.run.path)),
            **({"problem": self.problem} if self.problem else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Details(Overview):
    """A run with everything in its journal."""

    state: RunState  # folded from its journal


# By a `RunOutcome`, whose module takes a third of the time of a short list.
_STATUS_OF = {"stopped": Status.STOPPED, "failed": Status.FAILED}
"""The status for an outcome; every other outcome is a run that finished."""


class OverviewReader:
    """Reads the overviews of a list; reads only journals that changed since the last time.

    Facts from journals are kept in the cache folder (`tui.following.run_index`). Whether a run is alive is checked
    every time. The runs are those that will be read, the newest first.
    """

    def __init__(self, runs: Sequence[RunDirectory]) -> None:
        self._runs = runs
        self._index = RunIndex.load(runs)

    def read(self, watch: HeartbeatWatch) -> Overview:
        """Read one run; if its journal cannot be read, the overview says so."""
        run = watch.run
        annotations = read_annotations(run.path)
        try:
            stamp = _stamp(run)
            known = self._index.find(run, stamp)
            facts = known or replace(_facts(watch, stamp), size_bytes=folder_size(run.path))
            overview = _overview(watch, facts, annotations)
        except ConsoleError as error:
            return Overview(run, Facts(), Status.UNREADABLE, problem=error.what, annotations=annotations)
        if known is None and stamp is not None and not overview.status.is_live:
            self._index.put(run, stamp, overview.facts)
        return overview

    def read_all(self) -> list[Overview]:
        """Read all runs, those whose heartbeat looks old a second time: see `engine.runs.liveness`."""
        watches = [watch_once(run) for run in self._runs]
        overviews = [self.read(watch) for watch in watches]
        if all(overview.is_settled for overview in overviews):
            return overviews
        time.sleep(WATCH_S)
        return [
            overview if overview.is_settled else self.read(watch)
            for overview, watch in zip(overviews, watches, strict=True)
        ]

    def save(self) -> None:
        """Keep what was read, for the next list."""
        self._index.save()


def read_overviews(runs: Sequence[RunDirectory], *, is_kept: bool = True) -> list[Overview]:
    """Read the overviews of all runs of a folder; a run that cannot be read has a `problem`.

    `is_kept` makes the next list of this folder fast. Takes three seconds if a heartbeat looks old.
    """
    reader = OverviewReader(runs)
    overviews = reader.read_all()
    if is_kept:
        reader.save()
    return overviews


def read_details(run: RunDirectory) -> Details:
    """Read a run with everything in its journal; skips damaged lines.

    Raises:
        ConsoleError: Its journal is there and cannot be read.
    """
    state = _state(run)
    watch = watch_once(run)
    seen = overview_of(watch, state)
    if not seen.is_settled:
        time.sleep(WATCH_S)
        seen = overview_of(watch, state)
    facts = replace(seen.facts, size_bytes=folder_size(run.path))
    return Details(
        run, facts, seen.status, seen.last_beat_at, seen.life, seen.stall, annotations=seen.annotations, state=state
    )


def overview_of(watch: HeartbeatWatch, state: RunState) -> Overview:
    """Return the overview of a run whose state is known."""
    from .facts_reading import facts_of

    return _overview(watch, facts_of(state), read_annotations(watch.run.path), state)


def unreadable(run: RunDirectory, error: OSError) -> Overview:
    """Return the overview of a run whose journal cannot be read."""
    return Overview(run, Facts(), Status.UNREADABLE, problem=_unreadable(run, error).what)


def _state(run: RunDirectory) -> RunState:
    from tpu_console.engine.runs.follower import StateReader

    _stamp(run)
    try:
        return StateReader(run).catch_up()
    except OSError as error:
        raise _unreadable(run, error) from error


def _stamp(run: RunDirectory) -> Stamp | None:
    """Return a stamp that changes whenever the journal does; None if there is no journal yet.

    Raises:
        ConsoleError: It cannot be looked at, or is not a regular file.
    """
    try:
        facts = os.stat(f"{run.path}/events.jsonl")  # noqa: PTH116  ten thousand times
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(run, error) from error
    if not stat.S_ISREG(facts.st_mode):
        raise _unreadable(run, NotAFileError(errno.EINVAL, "it is not a regular file"))
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


def _facts(watch: HeartbeatWatch, stamp: Stamp | None) -> Facts:
    from .facts_reading import facts_of, read_facts

    run = watch.run
    is_long = stamp is not None and stamp[0] >= _LONG
    if is_long or watch.look().liveness is Liveness.ALIVE:
        return facts_of(_state(run))  # of a journal that was read before, only what is new
    try:
        return read_facts(run.journal)
    except OSError as error:
        raise _unreadable(run, error) from error


def _unreadable(run: RunDirectory, error: OSError) -> ConsoleError:
    return ConsoleError(f"The journal of {run.run_id} cannot be read: {error.strerror or error}.")


def _overview(watch: HeartbeatWatch, facts: Facts, annotations: Annotations, state: RunState | None = None) -> Overview:
    """Return the overview of a run; if it has no end, check whether it is alive and makes progress.

    The state is read if it is needed and not known.
    """
    run = watch.run
    if facts.outcome:
        return Overview(run, facts, _STATUS_OF.get(facts.outcome, Status.FINISHED), annotations=annotations)
    life = watch.look()
    last_beat_at = _last_beat(run)
    status = _status(facts, life.liveness, last_beat_at)
    stall = _stall(state if state is not None else _state(run), life) if status is Status.RUNNING else None
    return Overview(run, facts, status, last_beat_at, life, stall, annotations=annotations)


def _stall(state: RunState, life: Life) -> Stall | None:
    from tpu_console.engine.runs.follower import stall_of

    return stall_of(state, life)


def _last_beat(run: RunDirectory) -> float:
    try:
        return run.heartbeat.stat().st_mtime
    except OSError:
        return 0.0


def _status(facts: Facts, liveness: Liveness, last_beat_at: float) -> Status:
    """Return the status of a run that has no end."""
    if not facts.has_started and not last_beat_at:
        return Status.UNSTARTED
    if liveness is Liveness.SILENT:
        return Status.SILENT
    if liveness is not Liveness.ALIVE:
        return Status.CRASHED
    if facts.is_stopping:
        return Status.STOPPING
    return Status.PAUSED if facts.is_paused else Status.RUNNING
