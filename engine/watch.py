"""Follows a run from its directory: the newest state, whether something still trains, and the log.

It knows no Textual: a screen, the plain lines and a notebook use the same follower.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.journal import JournalReader
from engine.rundir import Liveness, RunDirectory
from engine.state import RunState, fold

_LONGEST_LOG = 2000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a run at one moment.

    Args:
        state: Folded from the journal.
        liveness: Whether something trains.
        log: The last lines of ``console.log``.
        newer_version: The journal's version when it is newer than ours, else 0.
        waiting: Events that wait in memory because the disk is full; None if it is not.
    """

    state: RunState = field(default_factory=RunState)
    liveness: Liveness = Liveness.STARTING
    log: tuple[str, ...] = ()
    newer_version: int = 0
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
    """

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
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
        liveness = self.run.liveness()
        records = self.reader.read()
        self._state = fold(self._state, records)
        self.snapshot = Snapshot(
            state=self._state,
            liveness=liveness,
            log=self._log.read(),
            newer_version=self.reader.newer,
            waiting=self.run.waiting_for_disk(),
        )
        return bool(records)

    def catch_up(self) -> Snapshot:
        """Read everything there is."""
        while self.advance():
            pass
        return self.snapshot


class LogTail:
    """The last lines of a run's ``console.log``."""

    def __init__(self, run: RunDirectory) -> None:
        self._path = run.log
        self._offset = 0
        self._lines: tuple[str, ...] = ()
        self._partial = b""

    def read(self) -> tuple[str, ...]:
        """Return the last lines, newest last; without control characters, so that they draw as text."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                start = max(self._offset, size - (1 << 20))
                file.seek(start)
                new = file.read()
        except OSError:
            return self._lines
        if not new:
            return self._lines
        self._offset = start + len(new)
        # Split before decoding: a look may end in the middle of a character.
        *lines, self._partial = (self._partial + new).split(b"\n")
        # A carriage return redraws the line, as progress bars do: only what stood there last is kept.
        last = (line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines)
        clean = tuple(_printable(line.decode("utf-8", errors="replace")) for line in last)
        self._lines = (*self._lines, *clean)[-_LONGEST_LOG:]
        return self._lines


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else " " for c in line.replace("\t", "    "))
