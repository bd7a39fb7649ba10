"""How a run is asked to stop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class StoppedError(Exception):
    """The run was asked to stop before training began; its text is the reason if the stop token has none."""


class StopToken:
    """A request to stop, with its reason. The first reason counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._listeners: list[Callable[[str], object]] = []

    def request(self, reason: str) -> bool:
        """Ask to stop; return whether this was the first request."""
        with self._lock:
            if self._reason is not None:
                return False
            self._reason = reason
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(reason)
        return True

    def listen(self, listener: Callable[[str], object]) -> None:
        """Call a function with the reason as soon as there is one; it must be quick."""
        with self._lock:
            self._listeners.append(listener)
            reason = self._reason
        if reason is not None:
            listener(reason)

    @property
    def reason(self) -> str | None:
        """Why to stop, or None to go on."""
        return self._reason
