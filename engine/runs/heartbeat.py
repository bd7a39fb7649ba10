"""The heartbeat of a run: shows that it is alive, and reads requests.

Whatever trains owns one `Heartbeat`. The main thread of a training process calls it; a notebook and the console run
it in a `HeartbeatThread`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING

from ..machine.process_identity import identify
from ..storage.files import open_private, write_whole
from .control import Control, take_requests
from .run_directory import RunDirectory, is_removed

if TYPE_CHECKING:
    from collections.abc import Callable

    from .journal import JournalWriter

REMOVED = "its folder was removed or renamed"
"""Why a run stops whose folder is gone."""

BEAT_S = 1.0
TICK_S = 0.1
_DIGITS = 9


def write_heartbeat(run: RunDirectory, pid: int) -> None:
    """Write which process trains a run; raise `OSError` if it cannot be written."""
    # Not synced: after a power failure, the process that it names is gone.
    write_whole(run.heartbeat, _beat(pid, time.time(), None), is_synced=False)


def _beat(pid: int, since: float, waiting: int | None) -> bytes:
    """Return the content of a heartbeat; the process has had the run since a Unix time.

    Its length does not depend on the number of waiting events: on a full disk it is overwritten in place, which needs
    no space, and a reader always finds valid JSON.
    """
    digits = "-" * _DIGITS if waiting is None else f"{waiting:0{_DIGITS}}"
    return json.dumps(identify(pid) | {"since": int(since), "waiting": digits}).encode()


class Heartbeat:
    """Writes the heartbeat, flushes the journal and reads requests, once per `tick`.

    It announces a stop in the journal as soon as it is requested, even while nothing else can be written, such as
    during a compilation. `on_removed` is called when the run's folder is gone; by default the run is asked to stop.
    """

    def __init__(
        self,
        run: RunDirectory,
        journal: JournalWriter,
        control: Control,
        on_removed: Callable[[str], object] | None = None,
    ) -> None:
        self._run = run
        self._journal = journal
        self._control = control
        self._on_removed = on_removed or control.stop
        self._next_beat = 0.0
        run.control.mkdir(mode=0o700, exist_ok=True)
        self._waiting: int | None = None
        self._since = time.time()
        write_heartbeat(run, os.getpid())

    def tick(self) -> None:
        """Beat once per second, read requests, and write waiting events. Cheap: call it ten times per second."""
        now = time.monotonic()
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
            self._write_waiting()
        if not self._journal.has_ended:
            for request in take_requests(self._run):
                self._control.ask(request)
            for news in self._control.news():
                self._journal.write(news)
        self._journal.flush()

    def _write_waiting(self) -> None:
        """Write into the heartbeat how many events wait for space on a full disk, if the number changed."""
        waiting = self._journal.waiting if self._journal.is_full else None
        if waiting == self._waiting:
            return
        self._waiting = waiting
        descriptor = open_private(self._run.heartbeat, os.O_WRONLY)
        try:
            os.pwrite(descriptor, _beat(os.getpid(), self._since, waiting), 0)
        finally:
            os.close(descriptor)


class HeartbeatThread(threading.Thread):
    """Calls a heartbeat in the background until it is stopped."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        super().__init__(name="tpu-console-heartbeat", daemon=True)
        self._heartbeat = heartbeat
        self._stopped = threading.Event()

    def run(self) -> None:
        """Tick until stopped, whatever happens to the folder or the disk."""
        while not self._stopped.wait(TICK_S):
            try:
                self._heartbeat.tick()
            except OSError:
                continue

    def stop(self, timeout: float = 2.0) -> None:
        """Stop and wait at most `timeout` seconds."""
        self._stopped.set()
        if self is not threading.current_thread():
            self.join(timeout)
