"""How a run is told to stop."""

from __future__ import annotations

import threading


class StopToken:
    """A request to stop, with its reason. The first reason counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None

    def request(self, reason: str) -> bool:
        """Ask to stop; tell whether this was the first request."""
        with self._lock:
            if self._reason is not None:
                return False
            self._reason = reason
            return True

    @property
    def reason(self) -> str | None:
        """Why to stop, or None to go on."""
        return self._reason
