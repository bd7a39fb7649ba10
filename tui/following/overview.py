"""Reads runs: an overview for lists, everything in the journal for a single run, and how its settings differ."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.events import RunOutcome, RunStarted
from tpu_console.engine.runs.facts import Facts, conclude_killed, facts_of, summarized_facts
from tpu_console.engine.runs.follower import StateReader, stall_of
from tpu_console.engine.runs.heartbeat import HeartbeatWatch, Life, Liveness
from tpu_console.engine.runs.run_directory import NO_ANNOTATIONS, Annotations, RunDirectory, list_runs, read_annotations
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.sanitize import printable
from tpu_console.engine.storage.files import folder_size

from ..text.names import Status, setting_in, setting_text, short_name
from ..text.numbers import local_time
from ..text.run_lines import STOP_PENDING, silent_text, stall_text
from ..text.tables import as_values

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.runs.timing import Stall
    from tpu_console.presets.catalog import Preset

    from ..text.profile import Traced

_NO_FACTS, _NO_LIFE, _NO_STATE = Facts(), Life(Liveness.DEAD), RunState()
_LONGEST_CHANGES = 200


class Overview(Struct, frozen=True):
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
    state: RunState = _NO_STATE

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
        return _config_of(self.run)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as ``--json`` writes them."""
        monitor, best = self.best or (None, None)
        return {
            "run": self.run.run_id,
            "preset": self.facts.label,
            "state": self.status.value,
            "silent_s": self.life.silent_s if self.status is Status.SILENT else None,
            "no_step_s": self.stall.seconds if self.stall is not None else None,
            "stop_waits": self.stop_waits,
            **as_values(self.facts, "epochs_done", "epochs"),
            "monitor": monitor,
            "best": best,
            **as_values(self.facts, "dataset", "model"),
            "changes": self.changes,
            **as_values(self.facts, "accelerator", "replicas", "global_batch", "examples_per_s"),
            "size_bytes": self.size_bytes,
            **as_values(self.annotations, "title", "tags", "note", "archived"),
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
        return self.details() if facts is None else self._overview(facts)

    def details(self) -> Overview:
        """Read everything in the run's journal; if it cannot be read, the overview says so."""
        with self._lock:
            try:
                state = self._states.catch_up()
            except OSError as error:
                return self._overview(
                    problem=f"The journal of {self.run.run_id} cannot be read: {error.strerror or error}."
                )
            facts = facts_of(state)
            if facts.outcome:
                return self._overview(facts, state=state)
            life = self._watch.look()
        if life.liveness is Liveness.DEAD:
            conclude_killed(self.run, state)
        return self._overview(facts, life, state)

    def _overview(
        self, facts: Facts = _NO_FACTS, life: Life = _NO_LIFE, state: RunState = _NO_STATE, problem: str = ""
    ) -> Overview:
        status = Status.UNREADABLE if problem else _status(facts, life)
        stall = stall_of(state, life) if status is Status.RUNNING else None
        written, size = read_annotations(self.run.path), folder_size(self.run.path)
        return Overview(self.run, facts, status, life, stall, problem, written, changes_of(facts.config), size, state)


def read_overviews(runs: Sequence[RunDirectory]) -> list[Overview]:
    """Read the overviews of runs; a run that cannot be read has a `problem`."""
    return [RunReader(run).overview() for run in runs]


def read_details(run: RunDirectory) -> Overview:
    """Read everything in a run's journal, damaged lines excepted; raise `ConsoleError` if it cannot be read."""
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
    name = setting_in(started, "profile", "before")
    other = next((one for one in list_runs(run.path.parent) if one.run_id == name), None) if name else None
    try:
        return read_traced(other) if other is not None else None
    except ConsoleError:
        return None  # of a run that cannot be read


def _status(facts: Facts, life: Life) -> Status:
    if facts.outcome:
        ends = {RunOutcome.STOPPED.value: Status.STOPPED, "failed": Status.FAILED}
        return ends.get(facts.outcome, Status.FINISHED)
    if not facts.has_started and not life.beat_at:
        return Status.UNSTARTED
    if life.liveness is Liveness.SILENT:
        return Status.SILENT
    if life.liveness is not Liveness.ALIVE:
        return Status.CRASHED
    if facts.is_stopping:
        return Status.STOPPING
    return Status.PAUSED if facts.is_paused else Status.RUNNING


def _config_of(run: RunDirectory) -> RunConfig | None:
    from tpu_console.engine.config.reading import load_config

    try:
        return load_config(run.config)
    except ConsoleError:
        return None


def preset_named(name: str) -> Preset | None:
    """Return the preset that a run's configuration names; None if there is none of this name."""
    from tpu_console.presets.catalog import find_preset

    try:
        return find_preset(name)
    except ConsoleError:
        return None


class Setting(NamedTuple):
    """One setting of a run."""

    key: str  # its key, such as ``optimizer.learning_rate``
    value: str  # its value as text
    preset: str | None = None  # the preset's value as text; None if that is the same or unknown

    @property
    def text(self) -> str:
        """The value, with the preset's if that differs."""
        return self.value if self.preset is None else f"{self.value} (preset: {self.preset})"


def settings_of(config: RunConfig, base: RunConfig | None) -> list[Setting]:
    """Return all settings as they may be shown, those that differ from the preset, if it is known, first."""
    from tpu_console.engine.config.run_config import flat_values, without_secrets  # slow to import, with pydantic

    base = config if base is None else base
    before = flat_values(base)
    shown, usual = flat_values(without_secrets(config)), flat_values(without_secrets(base))
    settings = [
        Setting(key, setting_text(shown[key]), None if before.get(key) == value else setting_text(usual.get(key)))
        for key, value in flat_values(config).items()
    ]
    return sorted(settings, key=lambda setting: setting.preset is None)


def read_settings(run: RunDirectory) -> list[Setting]:
    """Return the settings of a run, those that differ from its preset first; none if it has no configuration."""
    if (config := _config_of(run)) is None:
        return []
    preset = preset_named(config.name)
    return settings_of(config, preset.config if preset is not None else None)


def changes_of(config: Mapping[str, Any]) -> str:
    """Return the settings in which a journal's configuration differs from its preset; empty if that is unknown."""
    preset = _preset_settings(str(config.get("name"))) if config else {}
    if not preset:
        return ""
    from tpu_console.engine.config.reading import current_keys
    from tpu_console.engine.config.values import flattened

    settings = flattened(current_keys(config)).items()
    changed = {key: value for key, value in settings if key != "name" and preset.get(key) != value}
    last = {key: key.rpartition(".")[2] for key in changed}
    times = Counter(last.values())
    words = (f"{last[key] if times[last[key]] == 1 else key}={setting_text(value)}" for key, value in changed.items())
    return printable(" ".join(words))[:_LONGEST_CHANGES]


@cache
def _preset_settings(name: str) -> dict[str, Any]:
    """Return the settings of a preset by dotted key; none if there is no such preset."""
    from tpu_console.engine.config.run_config import journal_values
    from tpu_console.engine.config.values import flattened

    preset = preset_named(name)
    return flattened(journal_values(preset.config)) if preset is not None else {}
