"""Follows a run from its directory: its state, whether it is alive, and its log."""

import os

from msgspec import Struct, field

from ..sanitize import printable
from ..storage.files import open_regular
from .heartbeat import HeartbeatWatch, Life, Liveness
from .journal import JournalReader
from .run_directory import RunDirectory, is_removed
from .state import RunState, fold
from .timing import Stall, stall

_PARTS = 2  # parts of a journal between two looks at the heartbeat: a megabyte
_LONGEST_LOG = 2000
_LARGEST_PART = 1 << 20
_LONGEST_LINE = 8 << 10


class Snapshot(Struct, frozen=True):
    """A run at one moment."""

    state: RunState = field(default_factory=RunState)
    liveness: Liveness = Liveness.STARTING
    log: tuple[str, ...] = ()  # the last lines of ``console.log``
    newer_version: int = 0  # the journal's version if it is newer than ours, else 0
    silent_s: int = 0  # whole seconds without a heartbeat if the run does not respond, else 0
    stop_waits: bool = False  # whether the run has not read a request to stop yet
    stall: Stall | None = None  # set if training makes no progress although the process responds
    waiting: int | None = None  # events that wait in memory because the disk is full; None if it is not full
    is_removed: bool = False  # whether the run's folder is gone
    is_resuming: bool = False  # whether its process was gone, and a new one has written nothing yet
    is_reading: bool = False  # whether there may be more of the journal to read
    damaged: int = 0  # records that could not be read or understood
    trouble: str = ""  # why the journal cannot be read; empty when it can

    @property
    def is_silent(self) -> bool:
        """Whether the run has not ended and does not respond."""
        return self.state.end is None and self.liveness is Liveness.SILENT

    @property
    def is_over(self) -> bool:
        """Whether the run ended or its process is gone, so that nothing more will come."""
        return self.state.end is not None or self.liveness is Liveness.DEAD

    @property
    def crashed(self) -> bool:
        """Whether the process is gone without a last event."""
        return self.state.end is None and self.liveness is Liveness.DEAD


class StateReader:
    """Folds what a run's journal has gained, part by part; the journal need not exist yet."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.journal = JournalReader(run.journal)
        self.state = RunState()

    def advance(self) -> bool:
        """Read the next part of the journal into `state`; return whether there may be more. Raises as `read` does."""
        for _ in range(_PARTS):
            records = self.journal.read()
            if not records:
                return False
            self.state = fold(self.state, records)
        return True

    def catch_up(self) -> RunState:
        """Read the whole journal."""
        while self.advance():
            pass
        return self.state


class RunFollower:
    """Reads what a run has appended, part by part; its files need not exist yet."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._heartbeat = HeartbeatWatch(run)
        self.states = StateReader(run)
        self._log = LogTail(run)
        self.snapshot = Snapshot()
        self._left_at: RunState | None = None  # the state in which the process was gone

    def advance(self) -> bool:
        """Read the next part of the journal into `snapshot`; return whether there may be more."""
        # Liveness first: then the journal has everything that a dead process wrote.
        life = self._heartbeat.look()
        has_more = self.states.advance()
        if life.liveness is Liveness.DEAD:
            self._left_at = self.states.state
        state, journal = self.states.state, self.states.journal
        self.snapshot = Snapshot(
            state=state,
            liveness=life.liveness,
            log=self._log.read(),
            newer_version=journal.newer,
            silent_s=life.silent_s,
            stop_waits=life.stop_waits,
            stall=stall_of(state, life),
            waiting=life.waiting,
            is_removed=life.liveness is Liveness.DEAD and is_removed(self.run),
            is_resuming=life.liveness is Liveness.ALIVE and state is self._left_at,
            is_reading=has_more,
            damaged=journal.skipped + state.skipped,
        )
        return has_more

    def catch_up(self) -> Snapshot:
        """Read the whole journal."""
        self.states.catch_up()
        while self.advance():
            pass
        return self.snapshot


def stall_of(state: RunState, life: Life) -> Stall | None:
    """Return how long training has made no progress; None if it does, or if its process does not respond."""
    return stall(state, life.beat_at) if life.liveness is Liveness.ALIVE and life.waiting is None else None


class LogTail:
    """The last lines of a run's ``console.log``."""

    def __init__(self, run: RunDirectory) -> None:
        self._path = run.log
        self._offset = 0
        self._lines: tuple[str, ...] = ()
        self._partial = b""

    def read(self) -> tuple[str, ...]:
        """Return the last lines, newest last; safe to show."""
        try:
            with open_regular(self._path) as file:
                size = file.seek(0, os.SEEK_END)
                if size < self._offset:  # somebody emptied it
                    self._offset, self._partial = 0, b""
                start = max(self._offset, size - _LARGEST_PART)
                file.seek(start)
                new = file.read(_LARGEST_PART)
        except OSError:
            new = b""
        if not new:
            return self._lines
        self._offset = start + len(new)
        # Split before decoding: the part read may end in the middle of a character.
        *lines, partial = (self._partial + new).split(b"\n")
        self._partial = partial[-_LONGEST_LINE:]
        # A carriage return redraws the line, as in progress bars: keep only its last content.
        last = (line.rstrip(b"\r").rpartition(b"\r")[2][:_LONGEST_LINE] for line in lines[-_LONGEST_LOG:])
        clean = tuple(printable(line.decode("utf-8", errors="replace").replace("\t", "    ")) for line in last)
        self._lines = (*self._lines, *clean)[-_LONGEST_LOG:]
        return self._lines
