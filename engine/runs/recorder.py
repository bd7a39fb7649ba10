"""`Recorder`: how training code writes a run; and the `Deadline` at which training stops, to be saved in time."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from ..config.values import LIMITS
from ..machine.devices import find_place
from ..machine.sources import this_machine
from .control import Control, Request, StoppedError
from .events import BudgetSet, EpochEnded, Event, Noticed, Phase, PhaseStarted, RunFailed, RunFinished
from .follower import StateReader
from .heartbeat import session_began
from .journal import JournalWriter
from .run_directory import RunDirectory
from .state import RunState

_LEAST_S, _LEAST_SHARE, _SAFETY = 30.0, 0.05, 3.0


def margin_s(budget_s: float, save_s: float, validation_s: float, step_s: float) -> float:
    """Return how many seconds before its budget ends a run stops; scoring the classes takes about one validation."""
    return max(min(_LEAST_S, _LEAST_SHARE * budget_s), _SAFETY * save_s) + validation_s + 2 * step_s


def counts_from(limit: str) -> float:
    """Return the Unix time from which a budget counts: the limit of a service from the start of its session."""
    is_session = limit in LIMITS and find_place(this_machine(), {}).is_notebook
    return (session_began() if is_session else None) or time.time()


class Deadline:
    """Measures from its events how long a run takes to save and validate, and says when it has to stop."""

    def __init__(self, budget: str, seconds: float, began: float, clock: Callable[[], float] = time.time) -> None:
        self.event = BudgetSet(seconds, began + seconds, budget)
        self._clock = clock
        self._phase, self._since = "", 0.0
        self._longest: dict[str, float] = defaultdict(float)  # seconds
        self._looked_at: float | None = None

    def on_event(self, event: Event) -> None:
        """Learn from an event, when it is written, how long saving and validating take."""
        if isinstance(event, EpochEnded):
            self.note("validation", event.validation_s)
        elif isinstance(event, PhaseStarted):
            now = self._clock()
            if self._phase == Phase.CHECKPOINTING:
                self.note("save", now - self._since)
            self._phase, self._since = event.phase, now
            self._looked_at = None  # a step does not include what happens between two phases, such as compiling

    def note(self, what: str, seconds: float) -> None:
        """Note how long a ``save``, a copy of it to the ``mirror``, a ``validation`` or a ``step`` took."""
        self._longest[what] = max(self._longest[what], seconds)

    @property
    def save_s(self) -> float:
        """Seconds of the slowest save so far, its copy to the mirror included; 0 before the first."""
        return self._longest["save"] + self._longest["mirror"]

    def is_reached(self) -> bool:
        """Return whether the run has to stop now; called between two executions."""
        now = self._clock()
        if self._looked_at is not None:
            self.note("step", now - self._looked_at)
        self._looked_at = now if self._phase == Phase.TRAINING else None
        longest = self._longest["validation"], self._longest["step"]
        return now >= self.event.ends_at - margin_s(self.event.seconds, self.save_s, *longest)


class Peers(Protocol):
    """The hosts that train a run together: see `accelerators.hosts.Team`."""

    names: Mapping[int, str]
    is_leader: bool

    def attach(self, model: Any) -> None:
        """Count the steps of a compiled model, before `fit` is called."""

    @property
    def executions(self) -> int:
        """Executions since `fit` began."""

    def ask_for_trace(self, request: Request) -> None:
        """Ask all hosts to trace the same steps."""

    def trace_now(self) -> tuple[Request | None, str]:
        """Return the request to trace the steps from here on, if any, and why it is refused."""

    def finish(self) -> None:
        """Wait until host 0 has saved the run, and disconnect."""

    def fail(self, error: BaseException, failed: RunFailed) -> None:
        """Report to the others why this host failed, and end this process."""


class Mirroring(Protocol):
    """What copies a run to its mirror: see `mirror.copier.Mirror`."""

    def close(self, end: RunFinished | RunFailed) -> None:
        """Wait until everything but the last event is copied, or say what is not."""

    def finish(self) -> None:
        """Copy the last event, which is in the journal now, and stop."""


class Recorder(Struct):
    """Writes the events of a run and knows its phase; safe to use from any thread."""

    run: RunDirectory
    journal: JournalWriter
    control: Control = field(default_factory=Control)  # what the run was asked
    # Events that only listeners get: of several hosts, one writes the progress of training.
    leaves_out: tuple[type[Event], ...] = ()
    team: Peers | None = None  # the hosts of the run, once they have joined; None for a single host
    deadline: Deadline | None = None  # when the run has to stop; None without a time budget
    mirror: Mirroring | None = None  # what copies the run to its mirror; None without one
    phase: Phase | None = None  # the current phase; None before the first
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
            if phase is self.phase and not detail:
                return
            self.phase = phase
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
        self.listen(deadline.on_event)
        self.emit(deadline.event)

    def should_stop(self) -> bool:
        """Return whether the run was asked to stop; writes the request to the journal once."""
        for news in self.control.news():
            self.emit(news)
        return self.control.reason is not None

    def state(self) -> RunState:
        """Return the run's state, from its journal so far."""
        self.journal.flush()
        return StateReader(self.run).catch_up()

    @property
    def is_leader(self) -> bool:
        """Whether this host writes the run's files: the first of several, or the only one."""
        return self.team is None or self.team.is_leader
