"""The beat of a training process: its heartbeat, and the requests it hears.

Whatever trains owns one `Heart`: the host's main thread turns it itself, a notebook or the console runs it in
a `HeartThread`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING

from engine.files import write_whole
from engine.process_identity import identify

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.journal import JournalWriter
    from engine.rundir import RunDirectory

BEAT_S = 1.0
TICK_S = 0.1


def request_stop(run: RunDirectory, reason: str) -> None:
    """Ask a run to stop after its current execution and save what it has.

    Args:
        run: The run.
        reason: Who asks and how, such as ``asked from the console``.

    Raises:
        OSError: The request cannot be written.
    """
    run.control.mkdir(mode=0o700, exist_ok=True)
    write_whole(run.stop_request, json.dumps({"reason": reason, "at": time.time()}))


def write_heartbeat(run: RunDirectory, pid: int) -> None:
    """Name the process that trains a run.

    Raises:
        OSError: It cannot be written.
    """
    write_whole(run.heartbeat, json.dumps(identify(pid)))


class Heart:
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
        write_heartbeat(run, os.getpid())

    def tick(self) -> None:
        """Beat once a second, hear requests, and write what waits. Cheap; call it ten times a second."""
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            # Our own clock's time, not a file server's: the journal's times are compared with it.
            at = time.time_ns()
            os.utime(self._run.heartbeat, ns=(at, at))
        request = self._run.stop_request
        if request.exists():
            self._on_stop(_reason(request.read_bytes()))
            request.unlink(missing_ok=True)
        self._journal.flush()


def _reason(content: bytes) -> str:
    try:
        return str(json.loads(content)["reason"])
    except (ValueError, KeyError, TypeError):
        return "asked by a control file"


class HeartThread(threading.Thread):
    """Turns a heart in the background until it is stopped."""

    def __init__(self, heart: Heart) -> None:
        super().__init__(name="tpu-console-heart", daemon=True)
        self._heart = heart
        self._stopped = threading.Event()

    def run(self) -> None:
        """Tick until stopped; a folder that disappeared or a full disk ends nothing."""
        while not self._stopped.wait(TICK_S):
            try:
                self._heart.tick()
            except OSError:
                continue

    def stop(self, timeout: float = 2.0) -> None:
        """Stop and wait at most `timeout` seconds."""
        self._stopped.set()
        if self is not threading.current_thread():
            self.join(timeout)
