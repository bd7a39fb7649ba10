"""Reads from a journal what a list shows about a run, without folding the whole state.

A separate module because it imports NumPy and pydantic, which a list does not need if all its runs are cached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tpu_console.engine.runs.curves import Curves
from tpu_console.engine.runs.events import (
    EpochEnded,
    Event,
    FitStarted,
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

from .run_facts import LATEST, Facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# A list shows nothing from other events. Decoding them took half of the time.
_NEEDED = {
    kind.__name__
    for kind in (RunStarted, RunResumed, FitStarted, EpochEnded, StopRequested, Steered, RunFinished, RunFailed)
}


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
    )


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
                self._state = replace(self._state, stop=None, end=None, away_s=away_s)
                self._phase = None
                self._epochs = epochs_until(self._epochs, event)
            case FitStarted():
                self._state = replace(self._state, fit=event)
            case EpochEnded():
                self._epochs.append(event)
            case StopRequested():
                self._state = replace(self._state, stop=event)
            case Steered():
                self._state = reduce(self._state, event, at)
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
