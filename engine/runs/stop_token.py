"""How a run is asked to stop, and how other requests reach the thread that trains."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from .events import StopAfter, StopRequested
from .requests import Action

if TYPE_CHECKING:
    from collections.abc import Callable

    from .events import RunFailed, RunFinished
    from .requests import Request


class StoppedError(Exception):
    """The run was asked to stop before training began; its text is the reason if the stop token has none."""


class Inbox:
    """Requests on their way from the thread that reads them to the thread that trains.

    Attributes:
        waiting: The requests that have arrived and are not taken yet.
        end_now: Who asked to end the process without saving; empty if nobody did.
    """

    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()
        self.end_now = ""

    def put(self, request: Request) -> None:
        """Pass on a request."""
        if request.action == Action.END_NOW:
            self.end_now = request.by
        else:
            self.waiting.append(request)

    def take(self) -> list[Request]:
        """Return the requests that arrived since the last call, in their order."""
        return [self.waiting.popleft() for _ in range(len(self.waiting))]


class StopToken:
    """A request to stop, with its reason. The first reason counts, but a stop after the epoch can be made sooner.

    Attributes:
        inbox: The other requests.
        after_epoch: Why to stop when the current epoch ends; empty if nobody asked for that.
        ending: How the run ended, while only its mirror is waited for.
    """

    def __init__(self, inbox: Inbox | None = None) -> None:
        # Reentrant, because a signal handler may ask while its thread is asking.
        self._lock = threading.RLock()
        self._reason: str | None = None
        self._listeners: list[Callable[[str], object]] = []
        self._news: deque[StopRequested] = deque()
        self.inbox = inbox or Inbox()
        self.after_epoch = ""
        self.ending: RunFinished | RunFailed | None = None

    def request(self, reason: str) -> bool:
        """Ask to stop after the current execution; return whether this was the first such request."""
        with self._lock:
            if self._reason is not None:
                return False
            self._reason = reason
            listeners = tuple(self._listeners)
            if not listeners:  # else they announce it, once they have agreed
                self._news.append(StopRequested(reason))
        for listener in listeners:
            listener(reason)
        return True

    def request_after_epoch(self, reason: str) -> bool:
        """Ask to stop when the current epoch ends; return False if that is impossible, because several hosts train."""
        with self._lock:
            if self._listeners:
                return False
            if self._reason is None and not self.after_epoch:
                self.after_epoch = reason
                self._news.append(StopRequested(reason, StopAfter.EPOCH))
            return True

    def end_epoch(self) -> None:
        """Stop now if that was asked for at the end of this epoch."""
        with self._lock:
            if self._reason is None and self.after_epoch:
                self._reason = self.after_epoch

    def listen(self, listener: Callable[[str], object]) -> None:
        """Call a function with the reason as soon as there is one; it must be quick."""
        with self._lock:
            self._listeners.append(listener)
            reason = self._reason
        if reason is not None:
            listener(reason)

    def news(self) -> list[StopRequested]:
        """Return the requests that are not in the journal yet; each is returned once, to whoever writes it."""
        with self._lock:
            return [self._news.popleft() for _ in range(len(self._news))]

    @property
    def reason(self) -> str | None:
        """Why to stop, or None to go on."""
        return self._reason
