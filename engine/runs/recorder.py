"""What training code writes a run through: its directory, journal, stop token and current phase."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .events import Noticed, PhaseStarted, StopRequested
from .stop_token import StopToken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .events import Event, Phase, RunFailed
    from .journal import JournalWriter
    from .run_directory import RunDirectory


class Team(Protocol):
    """What training needs to know of the hosts that train a run together: see `accelerators.hosts.team.Team`."""

    names: Mapping[int, str]
    is_leader: bool

    def attach(self, model: Any) -> None:
        """Count the steps of a compiled model, before `fit` is called."""

    def finish(self) -> None:
        """Wait until host 0 has saved the run, and disconnect."""

    def fail(self, error: BaseException, failed: RunFailed) -> None:
        """Tell the others why this host cannot go on, and end this process."""


@dataclass(slots=True)
class Recorder:
    """The writing end of a run directory; safe to use from any thread.

    Args:
        run: The run.
        journal: Its journal.
        stop_token: How the run is told to stop.
        leaves_out: Events that are told to listeners only: of several hosts one writes the course of training.
        team: The hosts of the run, once they are joined; None where there is one.
    """

    run: RunDirectory
    journal: JournalWriter
    stop_token: StopToken = field(default_factory=StopToken)
    leaves_out: tuple[type[Event], ...] = ()
    team: Team | None = None
    _phase: Phase | None = None
    _stop_told: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _listeners: tuple[Callable[[Event], object], ...] = ()

    def emit(self, event: Event) -> None:
        """Write one event."""
        if not isinstance(event, self.leaves_out):
            self.journal.write(event)
        for listener in self._listeners:
            listener(event)

    def listen(self, listener: Callable[[Event], object]) -> None:
        """Have every further event told to a function too, in the thread that writes it; it must be quick."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def enter(self, phase: Phase, detail: str = "") -> None:
        """Begin a phase; entering the current one again with nothing new to say writes nothing."""
        with self._lock:
            if phase is self._phase and not detail:
                return
            self._phase = phase
        self.emit(PhaseStarted(phase, detail))

    def notice(self, message: str) -> None:
        """Tell a person something that does not stop the run."""
        self.emit(Noticed(message))

    def should_stop(self) -> bool:
        """Tell whether the run was asked to stop, and write down that it heard, once."""
        reason = self.stop_token.reason
        if reason is None:
            return False
        with self._lock:
            told, self._stop_told = self._stop_told, True
        if not told:
            self.emit(StopRequested(reason))
        return True
