"""What a run is asked while it trains: to stop, to wait, to save, or to train longer or at another rate.

A console writes each request into its own file in the run's folder `control`: ``<time>-<number>.json``, or
``stop.json`` for a stop, which is the same whoever asks. The heartbeat passes them, in the order of their names, to the
`Control` of the process that trains; so do signals, alerts and the time budget. Each is answered in the journal.
"""

import json
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..sanitize import printable
from ..storage.files import is_disk_full, open_private, read_json, require_real, write_whole
from ..storage.keyed_store import typed
from .events import RunFailed, RunFinished, Steering, StopAfter, StopRequested
from .run_directory import RunDirectory

LARGEST_REQUEST = 64 << 10
STOP = "stop"  # the number of every request to stop
_MOST = 1000
_NAME = re.compile(rf"(\d{{20}}-[0-9a-f]{{8}}|{STOP})\.json")


class Request(Struct, frozen=True):
    """A request to a run."""

    action: str  # a `Steering`
    by: str  # who asks, and how, such as ``requested with tpu-console pause``
    value: str = ""  # the new value, such as ``+5`` epochs or a rate of ``1e-4``; empty if the action has none
    number: str = ""  # its number, which the answer repeats; empty before it is written


def ask(run: RunDirectory, action: Steering, by: str, value: str = "") -> str:
    """Write a request for a run, as in `Request`; return its number. Raise `OSError` if it cannot be written."""
    require_real(run.path)
    run.control.mkdir(mode=0o700, exist_ok=True)
    number = STOP if action is Steering.STOP else f"{time.time_ns():020}-{secrets.token_hex(4)}"
    file = run.control / f"{number}.json"
    try:
        write_whole(file, json.dumps({"action": action, "by": by, "value": value}))
    except OSError as error:
        if number != STOP or not is_disk_full(error):
            raise
        open(file, "wb", opener=open_private).close()  # an empty file needs no space, and is a request to stop, too
    return number


def is_waiting(run: RunDirectory, number: str) -> bool:
    """Return whether the run has not read a request yet."""
    with suppress(OSError):  # its folder is a link
        return (run.control / f"{number}.json").exists()
    return False


def take_requests(run: RunDirectory) -> list[Request]:
    """Remove the requests of a run and return those that can be understood, a stop first, then the oldest."""
    requests = []
    with suppress(OSError):
        files = [file for file in run.control.iterdir() if _NAME.fullmatch(file.name)]
        for file in sorted(files, key=lambda file: (file.stem != STOP, file.name))[:_MOST]:
            request = _read(file)
            try:
                file.unlink()  # before it is carried out, so that it never is twice
            except OSError:
                if not file.exists() or file.stem != STOP:  # a stop may be carried out again
                    continue
            if request is not None:
                requests.append(request)
    return requests


def _read(path: Path) -> Request | None:
    found: Any = None
    with suppress(OSError, ValueError):
        found = read_json(path, LARGEST_REQUEST)
    request = typed(Request, found)
    if request is None or request.action not in {*Steering}:
        return Request(Steering.STOP, "asked by a control file", number=STOP) if path.stem == STOP else None
    return Request(request.action, printable(request.by)[:200], printable(request.value)[:100], path.stem)


class StoppedError(Exception):
    """The run was asked to stop before training began; its text is the reason if `Control` has none."""


class Control:
    """What a run was asked, in the process that trains it. Any thread and signal handler may ask.

    The first reason to stop counts, but a stop after the epoch can be made sooner. Several hosts stop when they have
    agreed to.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant, because a signal handler may ask while its thread is asking
        self._waiting: deque[Request] = deque()
        self._news: deque[StopRequested] = deque()
        self._agree: Callable[[str], object] | None = None
        self.asked: str | None = None  # why to stop; None to go on
        self.reason: str | None = None  # the same, as soon as training has to stop for it
        self.after_epoch = ""  # why to stop when the current epoch ends; empty if nobody asked for that
        self.end_now = ""  # who asked to end the process without saving; empty if nobody did
        self.ending: RunFinished | RunFailed | None = None  # how the run ended, while only its mirror is waited for

    def ask(self, request: Request) -> None:
        """Note a request, for the thread that trains if it has to carry it out."""
        if request.action == Steering.END_NOW:
            self.end_now = request.by
        elif request.action == Steering.STOP:
            self.stop(request.by)
        elif request.action == Steering.STOP_AFTER_EPOCH and self._agree is None:
            with self._lock:
                if self.asked is None and not self.after_epoch:
                    self.after_epoch = request.by
                    self._news.append(StopRequested(request.by, StopAfter.EPOCH))
        else:
            self._waiting.append(request)

    def stop(self, reason: str) -> None:
        """Ask to stop after the current execution."""
        with self._lock:
            if self.asked is not None:
                return
            self.asked, agree = reason, self._agree
            if agree is None:
                self.agreed(reason)
        if agree is not None:
            agree(reason)

    def agreed(self, reason: str) -> None:
        """Stop after the current execution: all hosts do."""
        with self._lock:
            if self.reason is None:
                self.reason = reason
                self._news.append(StopRequested(reason))

    def agree_by(self, agree: Callable[[str], object]) -> None:
        """Call a function with the reason to stop, after which `agreed` is called on all hosts; it must be quick."""
        with self._lock:
            self._agree, self.reason = agree, None
            if self.after_epoch:  # on this host only
                self._waiting.append(Request(Steering.STOP_AFTER_EPOCH, self.after_epoch))
                self.after_epoch = ""
        if self.asked is not None:
            agree(self.asked)

    @property
    def is_shared(self) -> bool:
        """Whether several hosts have to agree on a stop, which may take as long as their longest step."""
        return self._agree is not None

    def end_epoch(self) -> None:
        """Stop now if that was asked for at the end of this epoch."""
        with self._lock:
            if self.asked is None and self.after_epoch:
                self.asked = self.reason = self.after_epoch

    def take(self) -> list[Request]:
        """Return the requests that the thread that trains has to carry out, in their order; each is returned once."""
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def news(self) -> list[StopRequested]:
        """Return the requests to stop that are not in the journal yet; each is returned once, to whoever writes it."""
        if not self._news:
            return []
        with self._lock:
            return [self._news.popleft() for _ in range(len(self._news))]
