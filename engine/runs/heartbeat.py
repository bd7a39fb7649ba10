"""The beat of a training process: its heartbeat, and the requests it hears.

Whatever trains owns one `Heartbeat`: the host's main thread turns it itself, a notebook or the console runs it in
a `HeartbeatThread`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING

from ..machine.process_identity import identify
from ..sanitize import printable
from ..storage.files import is_disk_full, read_bytes, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .journal import JournalWriter
    from .run_directory import RunDirectory

BEAT_S = 1.0
TICK_S = 0.1
_DIGITS = 9
_HEARTBEAT_ROOM = 16 << 10  # its draft, and a block for the folder
_LARGEST_REQUEST = 64 << 10


def request_stop(run: RunDirectory, reason: str) -> None:
    """Ask a run to stop after its current execution and save what it has.

    Args:
        run: The run.
        reason: Who asks and how, such as ``asked from the console``.

    Raises:
        OSError: The request cannot be written.
    """
    run.control.mkdir(mode=0o700, exist_ok=True)
    try:
        write_whole(run.stop_request, json.dumps({"reason": reason, "at": time.time()}))
    except OSError as error:
        if not is_disk_full(error):
            raise
        run.stop_request.touch(mode=0o600)  # an empty file needs no room, and is a request as well


def write_heartbeat(run: RunDirectory, pid: int) -> None:
    """Name the process that trains a run.

    Raises:
        OSError: It cannot be written.
    """
    write_whole(run.heartbeat, _beat(pid, None))


def _beat(pid: int, waiting: int | None) -> bytes:
    """Return the content of a heartbeat.

    It has the same length for any number of waiting events: while the disk is full it is written over in place, which
    takes no space, and a reader that looks at that moment still finds valid JSON.
    """
    digits = "-" * _DIGITS if waiting is None else f"{waiting:0{_DIGITS}}"
    return json.dumps(identify(pid) | {"waiting": digits}).encode()


class Heartbeat:
    """Heartbeat, durable journal and control requests, one `tick` at a time.

    Args:
        run: The run.
        journal: Its journal; flushed at every tick.
        on_stop: Called with the reason of a stop request, once a request.
    """

    def __init__(self, run: RunDirectory, journal: JournalWriter, on_stop: Callable[[str], None]) -> None:
        self._run = run
        self._journal = journal
        self._on_stop = on_stop
        self._next_beat = 0.0
        run.control.mkdir(mode=0o700, exist_ok=True)
        self._waiting: int | None = None
        try:
            write_heartbeat(run, os.getpid())
        except OSError as error:
            if not is_disk_full(error):
                raise
            journal.make_room(_HEARTBEAT_ROOM)
            write_heartbeat(run, os.getpid())

    def tick(self) -> None:
        """Beat once a second, hear requests, and write what waits. Cheap; call it ten times a second."""
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            self._say_what_waits()
            # Our own clock's time, not a file server's: the journal's times are compared with it.
            at = time.time_ns()
            os.utime(self._run.heartbeat, ns=(at, at))
        request = self._run.stop_request
        if request.exists():
            self._on_stop(_reason(request))
            request.unlink(missing_ok=True)
        self._journal.flush()

    def _say_what_waits(self) -> None:
        """Write the number of events that wait for room on a full disk into the heartbeat, if it changed."""
        waiting = self._journal.waiting if self._journal.is_full else None
        if waiting == self._waiting:
            return
        self._waiting = waiting
        descriptor = os.open(self._run.heartbeat, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, _beat(os.getpid(), waiting), 0)
        finally:
            os.close(descriptor)


def _reason(request: Path) -> str:
    try:
        return printable(str(json.loads(read_bytes(request, _LARGEST_REQUEST))["reason"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "asked by a control file"


class HeartbeatThread(threading.Thread):
    """Turns a heart in the background until it is stopped."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        super().__init__(name="tpu-console-heart", daemon=True)
        self._heartbeat = heartbeat
        self._stopped = threading.Event()

    def run(self) -> None:
        """Tick until stopped; a folder that disappeared or a full disk ends nothing."""
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
