"""`Recorder`: how training code writes a run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .control import Control, Request, StoppedError
from .events import Event, Noticed, Phase, PhaseStarted, RunFailed, RunFinished

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .deadline import Deadline
    from .journal import JournalWriter
    from .run_directory import RunDirectory


class Team(Protocol):
    """The hosts that train a run together: see `accelerators.hosts.team.Team`."""

    names: Mapping[int, str]
    is_leader: bool

    def attach(self, model: Any) -> None:
        """Count the steps of a compiled model, before `fit` is called."""

    @property
    def executions(self) -> int:
        """Executions since `fit` began."""

    def ask_for_trace(self, request: Request) -> None:
        """Ask all hosts to trace the same steps."""

    def trace_now(self) -> Request | None:
        """Return the request to trace the steps from here on; None without one."""

    def finish(self) -> None:
        """Wait until host 0 has saved the run, and disconnect."""

    def fail(self, error: BaseException, failed: RunFailed) -> None:
        """Report to the others why this host failed, and end this process."""


class Mirroring(Protocol):
    """What copies a run to its mirror: see `mirror.background.Mirror`."""

    def close(self, end: RunFinished | RunFailed) -> None:
        """Wait until everything but the last event is copied, or say what is not."""

    def finish(self) -> None:
        """Copy the last event, which is in the journal now, and stop."""


@dataclass(slots=True)
class Recorder:
    """Writes the events of a run and knows its phase; safe to use from any thread."""

    run: RunDirectory
    journal: JournalWriter
    control: Control = field(default_factory=Control)  # what the run was asked
    # Events that only listeners get: of several hosts, one writes the progress of training.
    leaves_out: tuple[type[Event], ...] = ()
    team: Team | None = None  # the hosts of the run, once they have joined; None for a single host
    deadline: Deadline | None = None  # when the run has to stop; None without a time budget
    mirror: Mirroring | None = None  # what copies the run to its mirror; None without one
    _phase: Phase | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _listeners: tuple[Callable[[Event], object], ...] = ()

    def emit(self, event: Event) -> None:
        """Write one event."""
        if not isinstance(event, self.leaves_out):
            self.journal.write(event)
        for listener in self._listeners:
            listener(event)

    def listen(self, listener: Callable[[Event], object]) -> None:
        """Call a function with every further event, in the thread that writes it; it must be quick."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def enter(self, phase: Phase, detail: str = "") -> None:
        """Begin a phase; does nothing if it is the current one and there is no detail."""
        with self._lock:
            if phase is self._phase and not detail:
                return
            self._phase = phase
        self.emit(PhaseStarted(phase, detail))

    def begin(self, phase: Phase, detail: str = "") -> None:
        """Enter a phase; raise `StoppedError` instead if the run was asked to stop."""
        if self.should_stop():
            raise StoppedError
        self.enter(phase, detail)

    def notice(self, message: str) -> None:
        """Write a message for the user."""
        self.emit(Noticed(message))

    def keep_to(self, deadline: Deadline) -> None:
        """Stop in time for a deadline."""
        self.deadline = deadline
        self.listen(deadline.hear)
        self.emit(deadline.event)

    def should_stop(self) -> bool:
        """Return whether the run was asked to stop; writes the request to the journal once."""
        for news in self.control.news():
            self.emit(news)
        return self.control.reason is not None

    @property
    def is_leader(self) -> bool:
        """Whether this host writes the run's files: the first of several, or the only one."""
        return self.team is None or self.team.is_leader

    @property
    def phase(self) -> Phase | None:
        """The current phase; None before the first."""
        return self._phase
