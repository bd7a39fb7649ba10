"""Reads from a journal what a list shows about a run, without folding the whole state.

A separate module because it imports NumPy and pydantic, which a list does not need if all its runs are cached.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

from tpu_console.engine.config.reading import current_keys
from tpu_console.engine.config.run_config import flattened
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.curves import Curves
from tpu_console.engine.runs.events import (
    AcceleratorReady,
    EpochEnded,
    Event,
    FitStarted,
    ModelBuilt,
    Phase,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    Steered,
    StopRequested,
)
from tpu_console.engine.runs.journal import JournalReader, decode
from tpu_console.engine.runs.series import Series
from tpu_console.engine.runs.state import RunState, best_epoch, epochs_until, reduce
from tpu_console.engine.sanitize import printable

from .run_facts import LATEST, Facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# A list shows nothing from other events. Decoding them took half of the time.
_NEEDED = {
    kind.__name__
    for kind in (
        *(RunStarted, RunResumed, AcceleratorReady, ModelBuilt, FitStarted, EpochEnded, StopRequested, Steered),
        *(RunFinished, RunFailed),
    )
}
_LONGEST_WORD, _LONGEST_CHANGES = 80, 200


def read_facts(journal: Path) -> Facts:
    """Read a journal and decode only the events that a list shows.

    Raises:
        OSError: The journal is there and cannot be read.
    """
    notes = _Notes()
    reader = JournalReader(journal)
    while records := reader.read():
        notes.add(records)
    return notes.facts()


def facts_of(state: RunState) -> Facts:
    """Return the facts of a state that was folded from a whole journal."""
    best = best_epoch(state.epochs, state.monitor)
    config = state.started.config if state.started is not None else {}
    speeds = [epoch.examples_per_s for epoch in state.epochs if epoch.examples_per_s is not None]
    speed = median(speeds) if speeds else None
    return Facts(
        label=state.started.label if state.started is not None else "",
        has_started=state.started is not None,
        started_at=_moment(state.started_at),
        last_at=_moment(state.last_at),
        away_s=_moment(state.away_s),
        epochs=state.fit.epochs if state.fit is not None else None,
        epochs_done=len(state.epochs),
        monitor=state.monitor if best is not None else "",
        best=best.logs[state.monitor] if best is not None else None,
        is_stopping=state.stop is not None,
        is_paused=state.phase == Phase.PAUSED,
        outcome=_outcome(state.end),
        dataset=_word(config.get("dataset")),
        model=_word(config.get("model")) or (_word(state.model.name) if state.model is not None else ""),
        changes=changes_of(config),
        accelerator=_word(state.accelerator.accelerator) if state.accelerator is not None else "",
        replicas=len(state.accelerator.replicas) if state.accelerator is not None else None,
        global_batch=state.fit.global_batch if state.fit is not None else None,
        examples_per_s=float(speed) if speed is not None and math.isfinite(speed) else None,
    )


def _word(value: object) -> str:
    """Return a text of a journal, cut off for a list."""
    return printable(value)[:_LONGEST_WORD] if isinstance(value, str) else ""


def changes_of(config: Mapping[str, Any]) -> str:
    """Return the settings in which a journal's configuration differs from its preset; empty if that is unknown."""
    preset = _preset_settings(str(config.get("name")))
    if not preset:
        return ""
    changed = {key: value for key, value in flattened(current_keys(config)).items() if _differs(key, value, preset)}
    last = Counter(key.rpartition(".")[2] for key in changed)
    named = ((key.rpartition(".")[2], key, value) for key, value in changed.items())
    words = [f"{short if last[short] == 1 else key}={value}" for short, key, value in named]
    return printable(" ".join(words))[:_LONGEST_CHANGES]


def _differs(key: str, value: object, preset: Mapping[str, Any]) -> bool:
    return key != "name" and preset.get(key) != value


@cache
def _preset_settings(name: str) -> dict[str, Any]:
    """Return the settings of a preset by dotted key; none if there is no such preset."""
    from tpu_console.engine.config.run_config import journal_values
    from tpu_console.presets.catalog import find_preset

    try:
        return flattened(journal_values(find_preset(name).config))
    except ConsoleError:
        return {}


def _moment(at: float) -> float:
    """Return a time that a clock can show, whatever a damaged journal says."""
    return min(max(0.0, float(at)), LATEST)


def _outcome(end: RunFinished | RunFailed | None) -> str:
    if end is None:
        return ""
    return end.outcome if isinstance(end, RunFinished) else "failed"


class _Notes:
    """Collects from records what the facts need, as `engine.runs.state.fold` would, but without curves."""

    def __init__(self) -> None:
        self._state = RunState()
        self._epochs: list[EpochEnded] = []
        self._newest = 0.0
        self._phase: object = None

    def add(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Note what some records say."""
        for record in records:
            if record.get("type") == "PhaseStarted":
                self._phase = record.get("phase")  # not decoded: there are several in each epoch
            elif record.get("type") in _NEEDED and (event := decode(record)) is not None:
                self._note(event, record["t"])
            self._newest = record["t"]
        newest = next((record["t"] for record in reversed(records) if decode(record) is not None), None)
        if newest is not None:
            self._state = replace(self._state, last_at=newest)

    def _note(self, event: Event, at: float) -> None:
        match event:
            case RunStarted():
                self._state = replace(self._state, started=event, started_at=at)
            case RunResumed():
                away_s = self._state.away_s + max(0.0, at - self._newest)
                started = self._state.started
                started = started and replace(started, config=event.config)
                self._state = replace(self._state, started=started, stop=None, end=None, away_s=away_s)
                self._phase = None
                self._epochs = epochs_until(self._epochs, event)
            case AcceleratorReady() | ModelBuilt() | FitStarted() | Steered():
                self._state = reduce(self._state, event, at)
            case EpochEnded():
                self._epochs.append(event)
            case StopRequested():
                self._state = replace(self._state, stop=event)
            case RunFinished() | RunFailed():
                self._state = replace(self._state, end=event)
                self._phase = None

    def facts(self) -> Facts:
        """Return the facts after all records."""
        has_loss = any("val_loss" in epoch.logs for epoch in self._epochs)
        # Which metric a run is judged by depends on what was validated, not on the values.
        validation = Curves(metrics={"loss": Series()} if has_loss else {})
        phase = Phase.PAUSED if self._phase == Phase.PAUSED else ""
        return facts_of(replace(self._state, phase=phase, epochs=tuple(self._epochs), validation=validation))
