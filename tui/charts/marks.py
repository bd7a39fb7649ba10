"""Events and stretches of a run that charts mark on their horizontal axis."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tpu_console.engine.monitoring.alerts import lasting_alerts
from tpu_console.engine.runs.events import Steering

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tpu_console.engine.runs.state import RunState

    from .curve import Axis
    from .window import Extent


class MarkKind(enum.Enum):
    """What is marked; later ones are drawn over earlier ones."""

    VALIDATION = "validation"
    COMPILE = "compile"
    LEARNING_RATE = "learning rate"
    PAUSE = "pause"
    RESUME = "resume"
    ALERT = "alert"
    NAN = "NaN"


STRETCHES = frozenset({MarkKind.VALIDATION, MarkKind.COMPILE})
"""Kinds that are marked only where they last long enough to be seen."""


@dataclass(frozen=True, slots=True)
class Place:
    """A moment of a run on all horizontal axes."""

    step: float  # steps done
    epoch: float  # epochs done, with the fraction of the current one
    elapsed_s: float  # seconds since training began

    def along(self, axis: Axis) -> float:
        """Return the position on an axis."""
        return axis.of(self.step, self.epoch, self.elapsed_s)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment or a stretch of a run."""

    kind: MarkKind  # what happened
    begin: Place  # when it began
    end: Place  # when it ended; the same as `begin` for a moment
    label: str = ""  # what to write about it, such as `lr 1e-4`


class MarkTable:
    """Finds the visible ones of many marks."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self.marks = marks
        self._is_moment = np.array([mark.kind not in STRETCHES for mark in marks], dtype=np.bool_)
        self._ends: dict[Axis, npt.NDArray[np.float64]] = {}

    def visible(self, axis: Axis, window: Extent, least: float) -> list[Mark]:
        """Return the marks inside a window: moments, and stretches of at least some length."""
        if axis not in self._ends:
            ends = [(mark.begin.along(axis), mark.end.along(axis)) for mark in self.marks]
            self._ends[axis] = np.array(ends, dtype=np.float64).reshape(-1, 2)
        begin, end = self._ends[axis].T
        seen = (end >= window[0]) & (begin <= window[1]) & (self._is_moment | (end - begin >= least))
        return [self.marks[at] for at in np.flatnonzero(seen).tolist()]


def marks_of(state: RunState) -> list[Mark]:
    """Return what is known of a run beside its curves: alerts, pauses, compilation, validation and learning rates."""
    return [*_moments(state), *_of_epochs(state)]


def sources_of(state: RunState) -> tuple[object, ...]:
    """Return the parts of a state that decide its marks; compared by identity, because they may be large."""
    return state.epochs, state.resumed, state.steered, state.alerts


def _moments(state: RunState) -> Iterator[Mark]:
    for resumed in state.resumed:
        yield _moment(MarkKind.RESUME, _at_step(state, resumed.step), "rolled back" if resumed.why else "resumed")
    for steered in state.steered:
        place = replace(_at_step(state, steered.step), elapsed_s=steered.elapsed_s)
        if steered.action == Steering.PAUSE and not steered.refused:
            yield _moment(MarkKind.PAUSE, place, "paused")
        elif steered.action == Steering.LEARNING_RATE and steered.after and not steered.refused:
            yield _moment(MarkKind.LEARNING_RATE, place, f"lr {steered.after:.3g}")
    for alert in lasting_alerts(state):
        yield _moment(MarkKind.ALERT, _at_step(state, alert.step), alert.kind.replace("_", " "))


def _moment(kind: MarkKind, place: Place, label: str) -> Mark:
    return Mark(kind, place, place, label)


def _at_step(state: RunState, step: int) -> Place:
    """Return the place of a step, by the next point of the training curves."""
    train = state.train
    if not len(train):
        return Place(step, 0.0, 0.0)
    at = min(int(np.searchsorted(train.step.values, step)), len(train) - 1)
    return Place(step, float(train.epoch.values[at]), float(train.elapsed_s.values[at]))


def _of_epochs(state: RunState) -> Iterator[Mark]:
    steered = {event.epoch for event in state.steered if event.action == Steering.LEARNING_RATE}
    before: list[float | None] = [None, None]
    for event in state.epochs:
        start = Place(event.step - event.epoch_steps, event.epoch - 1.0, event.elapsed_s - event.seconds)
        end = Place(event.step, event.epoch, event.elapsed_s)
        if event.compile_s > 0.0:
            yield Mark(MarkKind.COMPILE, start, replace(start, elapsed_s=start.elapsed_s + event.compile_s), "compile")
        if event.validation_s > 0.0:
            begin = replace(end, elapsed_s=event.elapsed_s - event.validation_s)
            yield Mark(MarkKind.VALIDATION, begin, end, "validation")
        rate = event.learning_rate
        # A schedule changes the rate in every epoch: only a change after a constant rate is an event.
        is_constant = before[0] == before[1] is not None
        if rate is not None and is_constant and rate != before[1] and event.epoch not in steered:
            yield _moment(MarkKind.LEARNING_RATE, start, f"lr {rate:.3g}")
        before = [before[1], rate]
