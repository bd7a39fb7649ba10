"""Follows a run from its directory: the newest state, whether something still trains, and the log.

It knows no Textual: a screen, the plain lines and a notebook use the same follower.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..sanitize import printable
from ..storage.files import open_regular
from .journal import JournalReader
from .liveness import HeartbeatWatch, Liveness
from .state import RunState, fold
from .timing import Stall, stall

if TYPE_CHECKING:
    from collections.abc import Callable

    from .liveness import Life
    from .run_directory import RunDirectory

_LONGEST_LOG = 2000
_LARGEST_PART = 1 << 20
_LONGEST_LINE = 8 << 10


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a run at one moment.

    Args:
        state: Folded from the journal.
        liveness: Whether something trains.
        log: The last lines of ``console.log``.
        newer_version: The journal's version when it is newer than ours, else 0.
        silent_s: Whole seconds without a heartbeat if the run does not respond, else 0.
        stop_waits: Whether the run has not read a request to stop yet.
        stall: That training makes no progress although the process responds; None if it does.
        waiting: Events that wait in memory because the disk is full; None if it is not.
    """

    state: RunState = field(default_factory=RunState)
    liveness: Liveness = Liveness.STARTING
    log: tuple[str, ...] = ()
    newer_version: int = 0
    silent_s: int = 0
    stop_waits: bool = False
    stall: Stall | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the run has not ended and does not respond."""
        return self.state.end is None and self.liveness is Liveness.SILENT

    waiting: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come: the run ended, or what trained it is gone."""
        return self.state.end is not None or self.liveness is Liveness.DEAD

    @property
    def crashed(self) -> bool:
        """Whether what trained is gone without a last event."""
        return self.state.end is None and self.liveness is Liveness.DEAD


class RunFollower:
    """Reads what a run appended since the last look.

    Args:
        run: The run; its files need not exist yet.
        clock: Seconds on a clock that never goes back.
        now: Unix time in seconds.
    """

    def __init__(
        self, run: RunDirectory, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        self.run = run
        self._heartbeat = HeartbeatWatch(run, clock, now)
        self.reader = JournalReader(run.journal)
        self._state = RunState()
        self._log = LogTail(run)
        self.snapshot = Snapshot()

    def advance(self) -> bool:
        """Read one more part of the journal into `snapshot`; tell whether there is more to read at once.

        Raises:
            OSError: The journal is there and cannot be read.
        """
        # Liveness first: whatever wrote until its death is then in the journal that is read after it.
        life = self._heartbeat.look()
        records = self.reader.read()
        self._state = fold(self._state, records)
        self.snapshot = Snapshot(
            state=self._state,
            liveness=life.liveness,
            log=self._log.read(),
            newer_version=self.reader.newer,
            silent_s=life.silent_s,
            stop_waits=life.stop_waits,
            stall=stall_of(self._state, life),
            waiting=life.waiting,
        )
        return bool(records)

    def catch_up(self) -> Snapshot:
        """Read everything there is."""
        while self.advance():
            pass
        return self.snapshot


def stall_of(state: RunState, life: Life) -> Stall | None:
    """Return that training makes no progress, if its process responds and says of nothing that it waits for it."""
    if life.liveness is not Liveness.ALIVE or life.waiting is not None:
        return None
    return stall(state, life.beat_at)


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
                size = file.seek(0, 2)
                start = max(self._offset, size - _LARGEST_PART)
                file.seek(start)
                new = file.read(_LARGEST_PART)
        except OSError:
            return self._lines
        if not new:
            return self._lines
        self._offset = start + len(new)
        # Split before decoding: a look may end in the middle of a character.
        *lines, partial = (self._partial + new).split(b"\n")
        self._partial = partial[-_LONGEST_LINE:]
        # A carriage return redraws the line, as progress bars do: only what stood there last is kept.
        last = (line.rstrip(b"\r").rpartition(b"\r")[2][:_LONGEST_LINE] for line in lines[-_LONGEST_LOG:])
        clean = tuple(printable(line.decode("utf-8", errors="replace").replace("\t", "    ")) for line in last)
        self._lines = (*self._lines, *clean)[-_LONGEST_LOG:]
        return self._lines
