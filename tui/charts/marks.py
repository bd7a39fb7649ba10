"""Events and stretches of a run that charts mark on their horizontal axis."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .curve import Axis

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tpu_console.engine.runs.state import RunState

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
    """A moment of a run on all horizontal axes.

    Attributes:
        step: Steps done.
        epoch: Epochs done, with the fraction of the current one.
        elapsed_s: Seconds since training began.
    """

    step: float
    epoch: float
    elapsed_s: float

    def along(self, axis: Axis) -> float:
        """Return the position on an axis."""
        return {Axis.STEP: self.step, Axis.EPOCH: self.epoch, Axis.TIME: self.elapsed_s}[axis]


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment or a stretch of a run.

    Attributes:
        kind: What happened.
        begin: When it began.
        end: When it ended; the same as `begin` for a moment.
        label: What to write about it, such as `lr 1e-4`.
    """

    kind: MarkKind
    begin: Place
    end: Place
    label: str = ""


class MarkTable:
    """Finds the visible ones of many marks.

    Args:
        marks: The marks of a run.
    """

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
    """Return what a run's journal says about resuming, compilation, validation and the learning rate."""
    steps = state.fit.steps_per_epoch if state.fit is not None else None
    marks: list[Mark] = []
    for resumed in state.resumed:
        place = Place(resumed.step, resumed.epoch + (resumed.epoch_step / steps if steps else 0.0), resumed.elapsed_s)
        marks.append(Mark(MarkKind.RESUME, place, place, "resumed"))
    before: list[float | None] = [None, None]
    for event in state.epochs:
        end = Place(event.step, event.epoch, event.elapsed_s)
        if event.compile_s > 0.0:
            start = Place(event.step - event.epoch_steps, event.epoch - 1.0, event.elapsed_s - event.seconds)
            compiled = Place(start.step, start.epoch, start.elapsed_s + event.compile_s)
            marks.append(Mark(MarkKind.COMPILE, start, compiled, "compile"))
        if event.validation_s > 0.0:
            start = Place(event.step, event.epoch, event.elapsed_s - event.validation_s)
            marks.append(Mark(MarkKind.VALIDATION, start, end, "validation"))
        rate = event.learning_rate
        # A schedule changes the rate in every epoch: only a change after a constant rate is an event.
        if rate is not None and before[0] == before[1] is not None and rate != before[1]:
            start = Place(event.step - event.epoch_steps, event.epoch - 1.0, event.elapsed_s - event.seconds)
            marks.append(Mark(MarkKind.LEARNING_RATE, start, start, f"lr {rate:.3g}"))
        before = [before[1], rate]
    return marks
