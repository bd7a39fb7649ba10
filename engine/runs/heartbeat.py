"""The heartbeat of a run: who writes it, which process it names, and whether the run is alive by it.

Whether a run is alive follows from the file's modification time and the process it names. A heartbeat's age at the
first look is that by the clocks; machines that share a disk should agree on the time within a minute. From then on only
this machine's monotonic clock counts: a heartbeat that changes is fresh, whatever its time.

A process ID is reused, it means another process in another container, and on Linux the creation time from `psutil`
changes with the clock. So a heartbeat also has the boot ID, the PID namespace and the start time in clock ticks since
boot. Systems without ``/proc`` use host name, process ID and creation time.
"""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..storage.files import inside, open_private, open_regular, read_bytes, read_text, write_whole
from .control import STOP, Control, is_waiting, take_requests
from .journal import JournalWriter
from .run_directory import RunDirectory, is_removed, list_runs

REMOVED = "its folder was removed or renamed"  # why a run stops whose folder is gone
BEAT_S, TICK_S = 1.0, 0.1


def write_heartbeat(run: RunDirectory, pid: int) -> None:
    """Write which process trains a run; raise `OSError` if it cannot be written."""
    # Not synced: after a power failure, the process that it names is gone.
    write_whole(run.heartbeat, _beat(pid, time.time(), None), is_synced=False)


def _beat(pid: int, since: float, waiting: int | None) -> bytes:
    """Return the content of a heartbeat, always of the same length: on a full disk it is overwritten in place."""
    digits = "---------" if waiting is None else f"{waiting:09}"
    return json.dumps(identify(pid) | {"since": int(since), "waiting": digits}).encode()


class Heartbeat:
    """Writes the heartbeat, flushes the journal and reads requests when `tick` is called, by whatever trains.

    It announces a stop in the journal as soon as it is requested, even while nothing else can be written, such as
    during a compilation. `on_removed` is called when the run's folder is gone; by default the run is asked to stop.
    """

    def __init__(
        self,
        run: RunDirectory,
        journal: JournalWriter,
        control: Control,
        on_removed: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._journal, self._control, self._clock = run, journal, control, clock
        self._on_removed = on_removed or control.stop
        self._next_beat = 0.0
        run.control.mkdir(mode=0o700, exist_ok=True)
        self._waiting: int | None = None
        self._since = time.time()
        write_heartbeat(run, os.getpid())

    def tick(self) -> None:
        """Beat once per second, read requests, and write waiting events. Cheap: call it ten times per second."""
        now = self._clock()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            # The time of this machine, not of a file server: the journal's times are compared with it.
            at = time.time_ns()
            try:
                os.utime(self._run.heartbeat, ns=(at, at), follow_symlinks=False)
            except FileNotFoundError:
                if is_removed(self._run):
                    self._on_removed(REMOVED)
                raise
            waiting = self._journal.waiting if self._journal.is_full else None
            if waiting != self._waiting:
                self._waiting = waiting
                with open(self._run.heartbeat, "r+b", buffering=0, opener=open_private) as file:
                    file.write(_beat(os.getpid(), self._since, waiting))
        if not self._journal.has_ended:
            for request in take_requests(self._run):
                self._control.ask(request)
            for news in self._control.news():
                self._journal.write(news)
        self._journal.flush()


class HeartbeatThread(threading.Thread):
    """Calls a heartbeat in the background until it is stopped, and a function after each tick."""

    def __init__(self, heartbeat: Heartbeat, look: Callable[[], object] = lambda: None) -> None:
        super().__init__(name="tpu-console-heartbeat", daemon=True)
        self._heartbeat, self._look = heartbeat, look
        self.stopped = threading.Event()

    def run(self) -> None:
        """Tick until stopped, whatever happens to the folder or the disk."""
        while not self.stopped.wait(TICK_S):
            with suppress(OSError):
                self._heartbeat.tick()
                self._look()

    def stop(self, timeout: float = 2.0) -> None:
        """Stop and wait at most `timeout` seconds."""
        self.stopped.set()
        self.join(timeout)


SILENT_S = 10.0  # without a heartbeat, until a run counts as not responding: on a busy machine, it may be late
# Without a heartbeat, until a run counts as dead if its process cannot be seen from here. A network file system that
# fails over may stop for half a minute or more, and a dead run is no longer followed and loses its cache.
LOST_S = 60.0
STARTING_S = 15.0  # in which a new folder may have no heartbeat yet; the first one is written within a second
LARGEST_HEARTBEAT = 64 << 10
_LATEST = 1 << 40  # a Unix time that is still a number of seconds


class Liveness(StrEnum):
    """Whether something trains in a run directory."""

    STARTING = "starting"
    ALIVE = "alive"
    SILENT = "not responding"
    DEAD = "dead"


class Life(Struct, frozen=True):
    """Whether a run is alive, and what its heartbeat says."""

    liveness: Liveness  # whether something trains
    silent_s: int = 0  # whole seconds without a heartbeat if the run does not respond, else 0
    stop_waits: bool = False  # whether the run has not read a request to stop yet
    # Number of events that wait in the run's memory because its disk is full; None if it is not full.
    waiting: int | None = None
    # Unix time of the newest heartbeat on the clock of the machine that wrote it; 0 if there is none.
    beat_at: float = 0.0
    since: float = 0.0  # Unix time from which on its process has had the run, on the same clock; 0 if unknown


class HeartbeatWatch:
    """Watches the heartbeat of one run, whose folder need not exist, over one or several looks."""

    def __init__(
        self, run: RunDirectory, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        self.run = run
        self._clock, self._now = clock, now
        self._beat: dict[str, Any] = {}
        self._beat_ns: int | None = None
        self._opened_at = self._fresh_at = self._clock()

    def look(self) -> Life:
        """Look at the heartbeat and for its process."""
        try:
            # Opening the file, not only reading its status, makes a network file system ask its server.
            with open_regular(self.run.heartbeat) as file:
                content = file.read(LARGEST_HEARTBEAT)
                beat_ns = os.fstat(file.fileno()).st_mtime_ns
            try:
                found = json.loads(content)
            except (ValueError, RecursionError):
                found = None
            beat = found if isinstance(found, dict) else {}
        except FileNotFoundError:
            try:
                age_s = self._now() - self.run.path.stat().st_mtime
            except OSError:
                return Life(Liveness.DEAD)
            is_new = max(age_s, self._clock() - self._opened_at) < STARTING_S
            return Life(Liveness.STARTING if is_new else Liveness.DEAD)
        except OSError:
            # A network file system that does not answer: what was seen before still counts.
            if self._beat_ns is None:
                return Life(Liveness.DEAD)
            beat_ns, beat = self._beat_ns, self._beat
        clock = self._clock()
        if self._beat_ns is None:
            self._fresh_at = clock - abs(self._now() - beat_ns / 1e9)
        elif beat_ns != self._beat_ns:
            self._fresh_at = clock
        self._beat_ns, self._beat = beat_ns, beat
        silent_s, sight = clock - self._fresh_at, look_for(beat)
        liveness = Liveness.SILENT if silent_s >= SILENT_S else Liveness.ALIVE
        if sight is Sight.GONE or (sight is Sight.UNSEEN and silent_s >= LOST_S):
            liveness = Liveness.DEAD
        waiting, since = re.fullmatch("[0-9]{1,18}", str(beat.get("waiting"))), beat.get("since")
        return Life(
            liveness,
            silent_s=int(silent_s) if liveness is Liveness.SILENT else 0,
            stop_waits=is_waiting(self.run, STOP),
            waiting=int(waiting[0]) if waiting else None,
            beat_at=beat_ns / 1e9,
            since=float(since) if type(since) is int and 0 < since < _LATEST else 0.0,
        )


def liveness_of(run: RunDirectory) -> Liveness:
    """Return whether something trains in a run's folder."""
    return HeartbeatWatch(run).look().liveness


def runs_with_old_caches() -> list[RunDirectory]:
    """Return the runs with decoded examples that no process uses any more."""
    caches = {run: inside(run.path, "cache") for run in list_runs()}
    runs = [run for run, cache in caches.items() if cache.is_dir() and not cache.is_symlink()]
    return [run for run in runs if liveness_of(run) is Liveness.DEAD]


_PROC, _LARGEST_PROC = Path("/proc"), 4096
_CREATED_WITHIN_S = 2.0  # largest difference between two readings of the same creation time, as both are rounded


class Sight(StrEnum):
    """The result of looking for a process."""

    RUNNING = "running"
    GONE = "gone"
    UNSEEN = "unseen"  # cannot be seen from here: another machine, another container, a reader without the right


def identify(pid: int) -> dict[str, Any]:
    """Return the part of a heartbeat that names a process of this PID namespace: this one or a child of it."""
    identity: dict[str, Any] = {"pid": pid, "host": os.uname().nodename} | _place()
    if (stat := _stat_of(pid)) is not None:
        identity["start_ticks"] = stat[1]
    if (created := _created(pid)) is not None:
        identity["created"] = created
    return identity


def session_began() -> float | None:
    """Return when this machine or container started, in Unix time; None if unknown."""
    return _created(1)


def look_for(identity: Mapping[str, Any]) -> Sight:
    """Look for the process of a heartbeat."""
    pid, host = identity.get("pid"), identity.get("host")
    if not isinstance(pid, int) or pid <= 0 or host != os.uname().nodename:
        return Sight.UNSEEN
    place = _place()
    if place != {key: identity[key] for key in ("boot_id", "pid_namespace") if key in identity}:
        return Sight.UNSEEN  # another boot or container
    if "start_ticks" not in identity:
        created, meant = _created(pid), identity.get("created")
        is_near = isinstance(meant, int | float) and created is not None and abs(created - meant) < _CREATED_WITHIN_S
        return Sight.RUNNING if is_near else Sight.GONE
    if not _sees_processes():
        return Sight.UNSEEN
    if (stat := _stat_of(pid)) is not None:
        state, started = stat
        return Sight.RUNNING if started == identity["start_ticks"] and state not in "ZX" else Sight.GONE
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return Sight.GONE
    except PermissionError:
        pass
    return Sight.UNSEEN  # it exists, but /proc hides the processes of other users (mount option hidepid)


def _created(pid: int) -> float | None:
    """Return when a process was created, in Unix time; None if it is gone or only a zombie is left."""
    if (_PROC / "self").exists() and not _sees_processes():
        return None
    import psutil  # here, as the list of runs rarely needs it

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (psutil.Error, ValueError, OverflowError):
        return None


def _place() -> dict[str, Any]:
    """Return the boot ID and the PID namespace; empty if unknown."""
    place: dict[str, Any] = {}
    with suppress(OSError):
        place["boot_id"] = read_text(_PROC / "sys/kernel/random/boot_id", _LARGEST_PROC).strip()
        place["pid_namespace"] = (_PROC / "self/ns/pid").stat().st_ino
    return place


def _sees_processes() -> bool:
    """Return whether ``/proc`` belongs to this PID namespace; in a new one it may still be the parent's."""
    try:
        return str((_PROC / "self").readlink()) == str(os.getpid())
    except OSError:
        return False


def _stat_of(pid: int) -> tuple[str, int] | None:
    """Return a process's state and its start in clock ticks since boot (see proc_pid_stat(5)), or None."""
    folder = "self" if pid == os.getpid() else str(pid)
    if folder != "self" and not _sees_processes():
        return None
    try:
        # The name in parentheses may itself hold spaces and parentheses.
        fields = read_bytes(_PROC / folder / "stat", _LARGEST_PROC).rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
