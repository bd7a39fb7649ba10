"""What a run that has ended keeps besides its journal: its result in ``summary.json``, epochs in ``history.csv``."""

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from statistics import median, median_high
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from ..sanitize import Count, Measure, printable
from ..storage.files import lock_file, read_json, write_whole
from ..storage.keyed_store import typed
from .class_report import ClassReport
from .events import EpochEnded, Phase, RunFinished, RunOutcome
from .follower import StateReader
from .journal import spelled_out
from .run_directory import RunDirectory, require_writable
from .state import RunState

LATEST = 2e11  # the largest Unix time that is accepted, in the year 8307: no clock could show a later one
_LARGEST_SUMMARY = 4 << 20
_LONGEST_WORD = 80
_COLUMNS = ("epoch", "seconds", "compile_s", "validation_s", "step_ms", "examples_per_s", "learning_rate")


class Facts(Struct, frozen=True):
    """What a journal says about a run, in short: what lists show."""

    label: str = ""  # the preset's name, or the name a notebook gave
    has_started: bool = False  # whether the journal has a first event
    started_at: Measure = 0.0  # Unix time of the first event
    last_at: Measure = 0.0  # Unix time of the newest event
    away_s: Measure = 0.0  # seconds of them in which nothing trained, before the run was resumed
    epochs: Count | None = None  # epochs to train; None before training began
    epochs_done: Count = 0  # epochs that ended
    monitor: str = ""  # the metric that decides which epoch is best; empty when no epoch has it
    best: Measure | None = None  # its best value; None when no epoch has it
    lower_is_better: bool = False  # whether smaller values of it are better
    is_nan: bool = False  # whether the loss of the newest epoch is NaN or infinite
    is_stopping: bool = False  # whether somebody asked the run to stop
    is_paused: bool = False  # whether it is paused
    outcome: str = ""  # ``completed``, ``early``, ``stopped`` or ``failed``; empty when the journal has no end
    dataset: str = ""  # what it trained on; empty if unknown, as for a notebook
    model: str = ""  # the model; empty before it was built
    config: dict[str, Any] = field(default_factory=dict)  # its configuration, as in `RunStarted`
    accelerator: str = ""  # ``cpu``, ``gpu``, ``tpu`` or ``sim:N``; empty before it connected
    replicas: Count | None = None  # number of replicas; None before it connected
    global_batch: Count | None = None  # examples per step over all replicas; None if unknown
    examples_per_s: Measure | None = None  # median of all epochs; None if unknown


def facts_of(state: RunState) -> Facts:
    """Return the facts of a state that was folded from a whole journal."""
    best, end, fit, accelerator = state.best_epoch(), state.end, state.fit, state.accelerator
    config = state.started.config if state.started is not None else {}
    speeds = [epoch.examples_per_s for epoch in state.epochs if epoch.examples_per_s is not None]
    speed = float(median(speeds)) if speeds else math.nan
    return Facts(
        label=state.started.label if state.started is not None else "",
        has_started=state.started is not None,
        started_at=_moment(state.started_at),
        last_at=_moment(state.last_at),
        away_s=_moment(state.away_s),
        epochs=fit.epochs if fit is not None else None,
        epochs_done=len(state.epochs),
        monitor=state.monitor if best is not None else "",
        best=best.logs[state.monitor] if best is not None else None,
        lower_is_better=state.metric(state.monitor).lower_is_better,
        is_nan=state.is_nan,
        is_stopping=state.stop is not None,
        is_paused=state.phase == Phase.PAUSED,
        outcome="" if end is None else end.outcome if isinstance(end, RunFinished) else "failed",
        dataset=_word(config.get("dataset")),
        model=_word(config.get("model")) or _word(state.model and state.model.name),
        config=dict(config),
        accelerator=_word(accelerator and accelerator.accelerator),
        replicas=len(accelerator.replicas) if accelerator is not None else None,
        global_batch=fit.global_batch if fit is not None else None,
        examples_per_s=speed if math.isfinite(speed) else None,
    )


def conclude(run: RunDirectory) -> None:
    """Write the summary of a run that has ended; if that is not possible, lists read its journal."""
    with suppress(OSError):
        state, size = StateReader(run).catch_up(), run.journal.stat().st_size
        if (end := state.end) is not None:
            result = end.summary if isinstance(end, RunFinished) else {"error": end.what}
            _write_summary(run, facts_of(state), size, result)


def conclude_killed(run: RunDirectory, state: RunState, *, is_locked: bool = False) -> None:
    """Make the history and the summary current of a run whose process was killed, and could not do it itself.

    Only of this user's own run, never through a link, and not while another process holds the run's lock. If something
    is in the way, the files stay as they are: everything is in the journal, too.
    """
    if state.end is not None or not state.epochs:
        return
    with suppress(OSError):
        journal = run.journal.lstat()
        is_current = os.path.lexists(run.history) and run.history.lstat().st_mtime_ns >= journal.st_mtime_ns
        if is_current or {run.path.lstat().st_uid, journal.st_uid} != {os.getuid()}:
            return
        require_writable(run)
        if not is_locked:
            os.close(lock_file(run.journal))
        _write_summary(run, facts_of(state), journal.st_size, {"outcome": "killed", **result_of(state)})
        write_history(run, state.epochs)


def result_of(state: RunState) -> dict[str, Any]:
    """Return what a run reached; seconds without those in which nothing trained."""
    best = state.best_epoch()
    return {
        "epochs": len(state.epochs),
        "seconds": state.took_s,
        "monitor": state.monitor,
        "best": {"epoch": best.epoch, **best.logs} if best is not None else None,
        "final": state.epochs[-1].logs if state.epochs else None,
    }


def summary_of(
    state: RunState,
    outcome: RunOutcome,
    reason: str,
    classes: ClassReport | None = None,
    best_case: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what ``summary.json`` holds; times in seconds, ``best`` by the run's monitored metric.

    `best_case` compares its steps with those of its preflight.
    """
    timed = [epoch.step_ms for epoch in state.epochs if epoch.step_ms is not None]
    rates = [epoch.examples_per_s for epoch in state.epochs if epoch.examples_per_s is not None]
    return {
        "run": state.started.label if state.started else "",
        "outcome": outcome,
        "reason": reason,
        "accelerator": state.accelerator.accelerator if state.accelerator else "",
        "replicas": len(state.accelerator.replicas) if state.accelerator else 0,
        "versions": state.accelerator.versions if state.accelerator else {},
        "parameters": state.model.parameters if state.model else 0,
        "steps": state.epochs[-1].step if state.epochs else 0,
        **result_of(state),
        "phase_seconds": dict(state.phase_s),
        "median_step_ms": median_high(timed) if timed else None,
        "median_examples_per_s": median_high(rates) if rates else None,
        "best_case": best_case,
        "classes": classes and classes.as_dict(is_brief=True),
    }


def _write_summary(run: RunDirectory, facts: Facts, journal_bytes: int, result: Mapping[str, Any]) -> None:
    """Write the result of a run, and the facts of its journal as long as that has the same size."""
    summary = {"run": facts.label, "outcome": facts.outcome, **result}
    summary["facts"] = {"journal_bytes": journal_bytes, **asdict(facts)}
    write_whole(run.summary, json.dumps(spelled_out(summary), indent=2) + "\n")


def summarized_facts(run: RunDirectory) -> Facts | None:
    """Return the facts in a run's summary; None if there are none of the journal as it is, or if they are damaged."""
    try:
        values = read_json(run.summary, _LARGEST_SUMMARY)["facts"]
        if values.pop("journal_bytes") != run.journal.stat().st_size:
            return None
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None
    facts: Facts | None = typed(Facts, values)
    if facts is None or not facts.outcome:
        return None
    return facts if max(facts.started_at, facts.last_at, facts.away_s) <= LATEST else None


def _word(value: object) -> str:
    """Return a text of a journal, cut off for a list."""
    return printable(value)[:_LONGEST_WORD] if isinstance(value, str) else ""


def _moment(at: float) -> float:
    """Return a time that a clock can show, whatever a damaged journal says."""
    return min(max(0.0, float(at)), LATEST)


def write_history(run: RunDirectory, epochs: Sequence[EpochEnded]) -> None:
    """Write ``history.csv``: one row per epoch, one column per metric; what was not measured is empty."""
    rows = [{name: getattr(epoch, name) for name in _COLUMNS} | epoch.logs for epoch in epochs]
    text, columns = io.StringIO(), dict.fromkeys(chain(_COLUMNS, *rows))
    writer = csv.DictWriter(text, [*columns], lineterminator="\n")
    writer.writeheader()
    # A NaN differs from itself.
    writer.writerows({name: value if value == value else "" for name, value in row.items()} for row in rows)
    write_whole(run.history, text.getvalue())
