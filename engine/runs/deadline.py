"""When a run has to stop training, so that it is saved within its time budget."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..config.values import LIMITS
from ..machine.place import find_place
from ..machine.process_identity import session_began
from ..machine.sources import this_machine
from .events import BudgetSet, EpochEnded, Event, Phase, PhaseStarted

if TYPE_CHECKING:
    from collections.abc import Callable


_LEAST_S, _LEAST_SHARE = 30.0, 0.05
_SAFETY = 3.0


def margin_s(budget_s: float, save_s: float, validation_s: float, step_s: float) -> float:
    """Return how many seconds before its end a run stops training.

    `save_s` and `validation_s` are of the slowest so far, 0 before the first; the scores per class take about as long
    as a validation. `step_s` is the longest time between two looks at the clock, such as an execution.
    """
    return max(min(_LEAST_S, _LEAST_SHARE * budget_s), _SAFETY * save_s) + validation_s + 2 * step_s


def counts_from(limit: str) -> float:
    """Return the Unix time from which a budget counts: the limit of a service from the start of its session."""
    is_session = limit in LIMITS and find_place(this_machine(), {}).is_notebook
    return (session_began() if is_session else None) or time.time()


class Deadline:
    """Measures how long a run takes to save and validate, from its events, and says when it has to stop.

    The budget counts from `began`; all times are Unix seconds. `event` is what the journal says about it.
    """

    def __init__(self, budget: str, seconds: float, began: float, clock: Callable[[], float] = time.time) -> None:
        self.event = BudgetSet(seconds, began + seconds, budget)
        self._clock = clock
        self._phase, self._since = "", 0.0
        self._longest: dict[str, float] = {}
        self._looked_at: float | None = None
        self._step_s = 0.0

    def hear(self, event: Event) -> None:
        """Take in an event, when it is written."""
        if isinstance(event, EpochEnded):
            self._keep(Phase.VALIDATING, event.validation_s)
        elif isinstance(event, PhaseStarted):
            now = self._clock()
            if self._phase == Phase.CHECKPOINTING:
                self.note_save(now - self._since)
            self._phase, self._since = event.phase, now
            self._looked_at = None  # whatever comes between two phases, such as compiling, is no step

    def note_save(self, seconds: float) -> None:
        """Take in how long it took to save the best model or a checkpoint."""
        self._keep(Phase.CHECKPOINTING, seconds)

    def note_mirror(self, seconds: float) -> None:
        """Take in how long it took to copy a checkpoint to the mirror."""
        self._keep("mirror", seconds)

    def _keep(self, phase: str, seconds: float) -> None:
        self._longest[phase] = max(self._longest.get(phase, 0.0), seconds)

    @property
    def save_s(self) -> float:
        """Seconds of the slowest save so far, its copy to the mirror included; 0 before the first."""
        return self._longest.get(Phase.CHECKPOINTING, 0.0) + self._longest.get("mirror", 0.0)

    def is_reached(self) -> bool:
        """Return whether the run has to stop now; called between two executions."""
        now = self._clock()
        if self._looked_at is not None:
            self._step_s = max(self._step_s, now - self._looked_at)
        self._looked_at = now if self._phase == Phase.TRAINING else None
        validation_s = self._longest.get(Phase.VALIDATING, 0.0)
        return now >= self.event.ends_at - margin_s(self.event.seconds, self.save_s, validation_s, self._step_s)
