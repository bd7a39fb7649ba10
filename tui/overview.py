"""A run at a glance, for the lists: read from its journal without decoding a million records of progress."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from engine.config import load_config
from engine.errors import ConsoleError
from engine.events import RunFinished
from engine.journal import journal_lines, parse_line
from engine.liveness import WATCH_S, Life, Liveness, watch_once
from engine.sanitize import printable
from engine.state import RunState, best_epoch, fold
from engine.watch import stall_of
from tui.silence import STOP_PENDING, silent_text, stall_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.config import RunConfig
    from engine.liveness import HeartbeatWatch
    from engine.rundir import RunDirectory
    from engine.timing import Stall

_FREQUENT = re.compile(
    rb'"type":"(Progress|InputMeasured|HostSampled","process":\d+|MemorySampled","replicas":\[\{"index":\d+)'
)
"""Records that come by the second: the newest of each kind and of each host says what a glance needs."""


class Status(StrEnum):
    """What has become of a run."""

    UNSTARTED = "not started"
    RUNNING = "running"
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
        return self in {Status.RUNNING, Status.STOPPING, Status.SILENT}


_NO_LIFE = Life(Liveness.DEAD)


@dataclass(frozen=True, slots=True)
class Overview:
    """A run at a glance.

    Args:
        run: The run.
        state: Folded from its journal; of progress, memory, input and each host only the newest record.
        status: What has become of it.
        last_beat_at: Unix time of its last sign of life; 0 when there was none.
        life: What its heartbeat and its process say.
        trouble: Why it cannot be read; empty when it can.
    """

    run: RunDirectory
    state: RunState
    status: Status
    last_beat_at: float = 0.0
    life: Life = _NO_LIFE

    @property
    def is_settled(self) -> bool:
        """Whether a second look at the heartbeat cannot change the status."""
        return self.state.end is not None or bool(self.trouble) or self.life.is_settled

    @property
    def stall(self) -> Stall | None:
        """That training makes no progress although the process responds."""
        return stall_of(self.state, self.life) if self.status is Status.RUNNING else None

    @property
    def stop_waits(self) -> bool:
        """Whether the run was asked to stop and has not responded since."""
        return self.status is Status.SILENT and (self.life.stop_waits or self.state.stop is not None)

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

    trouble: str = ""

    @property
    def label(self) -> str:
        """The preset it was made from, or the name a notebook gave."""
        return self.state.started.label if self.state.started is not None else ""

    @property
    def best(self) -> tuple[str, float] | None:
        """The metric that says which epoch is best, and its best value."""
        monitor = self.state.monitor
        best = best_epoch(self.state.epochs, monitor) if monitor else None
        return (monitor, best.logs[monitor]) if best is not None else None

    @property
    def epochs_done(self) -> int:
        """Epochs that ended."""
        return len(self.state.epochs)

    def seconds(self, now: float | None = None) -> float | None:
        """Return how long it took, or takes until now; None before its first event.

        Args:
            now: Unix time in seconds; the present by default.
        """
        if self.state.started is None:
            return None
        until = self.state.last_at
        if self.status.is_live:
            until = now or time.time()
        elif self.status is Status.CRASHED:
            until = max(until, self.last_beat_at)
        return max(0.0, until - self.state.started_at)

    @property
    def started(self) -> datetime | None:
        """Local time of its first event."""
        return local_time(self.state.started_at) if self.state.started is not None else None

    def config(self) -> RunConfig | None:
        """Read its configuration; None where it has none, as a notebook's run, or none that can be read."""
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
            "epochs": self.state.fit.epochs if self.state.fit is not None else None,
            "monitor": best[0] if best is not None else None,
            "best": best[1] if best is not None else None,
            "seconds": self.seconds(),
            "started": self.started.isoformat(timespec="seconds") if self.started is not None else None,
            "path": printable(str(self.run.path)),
            **({"trouble": self.trouble} if self.trouble else {}),
        }


def local_time(at: float) -> datetime:
    """Return a Unix time as local time."""
    return datetime.fromtimestamp(at, UTC).astimezone()


def glance_at(run: RunDirectory, watch: HeartbeatWatch) -> Overview:
    """Read a run at a glance; a run that cannot be read gives an overview that says why."""
    try:
        return read_overview(run, watch)
    except ConsoleError as error:
        return Overview(run, RunState(), Status.UNREADABLE, trouble=error.what)


def read_overview(run: RunDirectory, watch: HeartbeatWatch | None = None) -> Overview:
    """Read a run at a glance; damaged lines are left out.

    Args:
        run: The run.
        watch: What was seen of its heartbeat so far. Without it, this waits to be sure if the heartbeat looks old.

    Raises:
        ConsoleError: Its journal is there and cannot be read.
    """
    if watch is None:
        (overview,) = read_overviews([run])
        if overview.trouble:
            raise ConsoleError(overview.trouble)
        return overview
    life = watch.look()
    state = fold(RunState(), _records(run))
    last_beat_at = _last_beat(run)
    return Overview(run, state, _status(state, life.liveness, last_beat_at), last_beat_at, life)


def read_overviews(runs: Sequence[RunDirectory], wait: Callable[[float], None] = time.sleep) -> list[Overview]:
    """Read runs at a glance, those whose heartbeat looks old a second time: see `engine.liveness`.

    Args:
        runs: The runs.
        wait: Called with the seconds before the second look, once for all.

    Returns:
        One per run; a run that cannot be read has `trouble`.
    """
    watches = [watch_once(run) for run in runs]
    overviews = [glance_at(watch.run, watch) for watch in watches]
    if all(overview.is_settled for overview in overviews):
        return overviews
    wait(WATCH_S)
    return [
        overview if overview.is_settled else glance_at(watch.run, watch)
        for overview, watch in zip(overviews, watches, strict=True)
    ]


def _last_beat(run: RunDirectory) -> float:
    try:
        return run.heartbeat.stat().st_mtime
    except OSError:
        return 0.0


def _records(run: RunDirectory) -> list[dict[str, Any]]:
    """Read the journal; of what comes by the second only the newest of a kind is parsed."""
    records: list[dict[str, Any]] = []
    newest: dict[bytes, bytes] = {}
    try:
        for line in journal_lines(run.journal):
            if (kind := _FREQUENT.search(line)) is not None:
                newest[kind[1]] = line
            elif (record := parse_line(line)) is not None:
                records.append(record)
    except FileNotFoundError:
        return []
    except OSError as error:
        what = f"The journal of {run.run_id} cannot be read: {error.strerror}."
        raise ConsoleError(what) from error
    records += [record for line in newest.values() if (record := parse_line(line)) is not None]
    return sorted(records, key=lambda record: float(record["t"]))


def _status(state: RunState, liveness: Liveness, last_beat_at: float) -> Status:
    if isinstance(state.end, RunFinished):
        return Status.STOPPED if state.end.outcome == "stopped" else Status.FINISHED
    if state.end is not None:
        return Status.FAILED
    if state.started is None and not last_beat_at:
        return Status.UNSTARTED
    if liveness is Liveness.SILENT:
        return Status.SILENT
    if liveness is not Liveness.ALIVE:
        return Status.CRASHED
    return Status.STOPPING if state.stop is not None else Status.RUNNING
