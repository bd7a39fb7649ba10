"""Reads runs: an overview for lists, and everything in the journal for a single run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.annotations import NO_ANNOTATIONS, Annotations, read_annotations
from tpu_console.engine.runs.events import RunOutcome
from tpu_console.engine.runs.facts import Facts, conclude_killed, facts_of, summarized_facts
from tpu_console.engine.runs.follower import StateReader, stall_of
from tpu_console.engine.runs.heartbeat import HeartbeatWatch, Life, Liveness
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.sanitize import printable
from tpu_console.engine.storage.files import folder_size

from ..text.names import Status, short_name
from ..text.numbers import local_time
from ..text.steering import STOP_PENDING, silent_text, stall_text
from .run_settings import changes_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.runs.events import RunStarted
    from tpu_console.engine.runs.timing import Stall

    from ..text.profile import Traced

_NO_LIFE = Life(Liveness.DEAD)


@dataclass(frozen=True, slots=True)
class Overview:
    """The overview of a run."""

    run: RunDirectory
    facts: Facts  # a short form of its journal
    status: Status
    life: Life = _NO_LIFE  # what its heartbeat and its process say; not looked up when the run has ended
    # How long training has made no progress although the process responds; None if it does not stall.
    stall: Stall | None = None
    problem: str = ""  # why its journal cannot be read; empty when it can
    annotations: Annotations = NO_ANNOTATIONS  # what a person wrote on it
    changes: str = ""  # the settings that differ from its preset, such as ``epochs=7 seed=1``
    size_bytes: int = 0  # size of its folder
    # Folded from its whole journal; empty if its summary was enough, or if the journal cannot be read.
    state: RunState = field(default_factory=RunState, compare=False, repr=False)

    @property
    def is_broken(self) -> bool:
        """Whether it finished with a model that is of no use, because its loss is NaN."""
        return self.status is Status.FINISHED and self.facts.is_nan

    @property
    def stop_waits(self) -> bool:
        """Whether the run was asked to stop and has not responded since."""
        return self.status is Status.SILENT and (self.life.stop_waits or self.facts.is_stopping)

    @property
    def status_text(self) -> str:
        """The status with how long it has lasted, such as ``not responding for 25 s``."""
        if self.status is Status.SILENT:
            return silent_text(self.life.silent_s)
        if self.is_broken:
            return "loss NaN"
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
    def best(self) -> tuple[str, float] | None:
        """The metric that decides which epoch is best, and its best value."""
        return (self.facts.monitor, self.facts.best) if self.facts.best is not None else None

    def seconds(self) -> float | None:
        """Return how long it took, or has taken until its newest heartbeat; None before its first event."""
        if not self.facts.has_started:
            return None
        until = self.facts.last_at
        if self.status.is_live and self.life.since <= until:  # else its process is new and has written nothing yet
            until = max(until, self.life.beat_at)
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
            "preset": self.facts.label,
            "state": self.status.value,
            "silent_s": self.life.silent_s if self.status is Status.SILENT else None,
            "no_step_s": self.stall.seconds if self.stall is not None else None,
            "stop_waits": self.stop_waits,
            "epochs_done": self.facts.epochs_done,
            "epochs": self.facts.epochs,
            "monitor": best[0] if best is not None else None,
            "best": best[1] if best is not None else None,
            "dataset": self.facts.dataset,
            "model": self.facts.model,
            "changes": self.changes,
            "accelerator": self.facts.accelerator,
            "replicas": self.facts.replicas,
            "global_batch": self.facts.global_batch,
            "examples_per_s": self.facts.examples_per_s,
            "size_bytes": self.size_bytes,
            "title": self.annotations.title,
            "tags": list(self.annotations.tags),
            "note": self.annotations.note,
            "archived": self.annotations.archived,
            "seconds": self.seconds(),
            "started": self.started.isoformat(timespec="seconds") if self.started is not None else None,
            "path": printable(str(self.run.path)),
            **({"problem": self.problem} if self.problem else {}),
        }


class RunReader:
    """Reads a run again and again, in any thread: what is new of its journal, and whether it is alive."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._watch = HeartbeatWatch(run)
        self._states = StateReader(run)
        self._lock = threading.Lock()

    def overview(self) -> Overview:
        """Read the summary of a run that has ended, or else its journal."""
        facts = summarized_facts(self.run)
        if facts is None:
            return self.details()
        return replace(self._begun(facts), status=_status_of_end(facts))

    def details(self) -> Overview:
        """Read everything in the run's journal; if it cannot be read, the overview says so."""
        with self._lock:
            try:
                state = self._states.catch_up()
            except OSError as error:
                problem = f"The journal of {self.run.run_id} cannot be read: {error.strerror or error}."
                return replace(self._begun(Facts()), status=Status.UNREADABLE, problem=problem)
            facts = facts_of(state)
            if facts.outcome:
                return replace(self._begun(facts), status=_status_of_end(facts), state=state)
            life = self._watch.look()
        if life.liveness is Liveness.DEAD:
            conclude_killed(self.run, state)
        status = _status(facts, life)
        return replace(
            self._begun(facts),
            status=status,
            life=life,
            stall=stall_of(state, life) if status is Status.RUNNING else None,
            state=state,
        )

    def _begun(self, facts: Facts) -> Overview:
        """Return an overview without a status."""
        return Overview(
            self.run,
            facts,
            Status.UNSTARTED,
            annotations=read_annotations(self.run.path),
            changes=changes_of(facts.config),
            size_bytes=folder_size(self.run.path),
        )


def read_overviews(runs: Sequence[RunDirectory]) -> list[Overview]:
    """Read the overviews of runs; a run that cannot be read has a `problem`."""
    return [RunReader(run).overview() for run in runs]


def read_details(run: RunDirectory) -> Overview:
    """Read a run with everything in its journal; skips damaged lines.

    Raises:
        ConsoleError: Its journal is there and cannot be read.
    """
    seen = RunReader(run).details()
    if seen.problem:
        raise ConsoleError(seen.problem)
    return seen


def read_traced(run: RunDirectory) -> Traced | None:
    """Return the newest trace of a run; None if no steps of it were traced."""
    newest = next((one for one in reversed(read_details(run).state.profiled) if not one.problem), None)
    return (f"in {run.run_id}", newest) if newest is not None else None


def read_traced_before(run: RunDirectory, started: RunStarted | None) -> Traced | None:
    """Return the trace of the run that a run's configuration names to compare with; None if it has none."""
    profile = started.config.get("profile") if started is not None else None
    name = profile.get("before") if isinstance(profile, dict) else None
    other = next((one for one in list_runs(run.path.parent) if one.run_id == name), None) if name else None
    try:
        return read_traced(other) if other is not None else None
    except ConsoleError:
        return None  # of a run that cannot be read


def _status_of_end(facts: Facts) -> Status:
    return {RunOutcome.STOPPED.value: Status.STOPPED, "failed": Status.FAILED}.get(facts.outcome, Status.FINISHED)


def _status(facts: Facts, life: Life) -> Status:
    """Return the status of a run that has no end."""
    if not facts.has_started and not life.beat_at:
        return Status.UNSTARTED
    if life.liveness is Liveness.SILENT:
        return Status.SILENT
    if life.liveness is not Liveness.ALIVE:
        return Status.CRASHED
    if facts.is_stopping:
        return Status.STOPPING
    return Status.PAUSED if facts.is_paused else Status.RUNNING
