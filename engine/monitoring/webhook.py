"""Sends alerts to a web address, in its own thread, so that training never waits for a network."""

from __future__ import annotations

import http.client
import json
import queue
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from ..runs.events import Alerted

_TRIES = 3
_TIMEOUT_S = 10.0
_MOST_WAITING = 100
_MINUTE_S = 60.0
_CLOSE_S = 5.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could lead to another scheme or host than the one that was configured."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Webhook:
    """Posts alerts as JSON: at most so many per minute, retries included, each tried three times.

    `on_failure` is called with a sentence for the first alert that could not be sent. `pause_s` is the time before the
    first retry, doubled before the next.
    """

    def __init__(
        self, url: str, run: str, on_failure: Callable[[str], object], *, per_minute: int = 10, pause_s: float = 2.0
    ) -> None:
        self._url, self._run, self._on_failure = url, run, on_failure
        self._per_minute, self._pause_s = per_minute, pause_s
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._waiting: queue.Queue[Alerted | None] = queue.Queue(_MOST_WAITING)
        self._sent_at: deque[float] = deque(maxlen=per_minute)
        self._has_failed = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tpu-console-webhook", daemon=True)
        self._thread.start()

    def send(self, alert: Alerted) -> None:
        """Send an alert soon; returns immediately. It is dropped if too many are waiting."""
        try:
            self._waiting.put_nowait(alert)
        except queue.Full:
            self._fail("too many alerts are waiting")

    def close(self, timeout: float = _CLOSE_S) -> None:
        """Wait at most `timeout` seconds until what is waiting is sent, and stop."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            self._over.set()
        self._thread.join(timeout)
        self._over.set()

    def _work(self) -> None:
        while not self._over.is_set() and (alert := self._waiting.get()) is not None:
            if reason := self._post(alert):
                self._fail(reason)

    def _post(self, alert: Alerted) -> str:
        """Post one alert; return why it failed, or an empty text."""
        content = {
            "text": f"{self._run}: {alert.text}",
            "run": self._run,
            "kind": str(alert.kind),
            "message": alert.text,
            "epoch": alert.epoch,
            "step": alert.step,
            "stops": alert.stops,
        }
        headers = {"Content-Type": "application/json", "User-Agent": "tpu-console"}
        reason, pause_s = "", self._pause_s
        for attempt in range(_TRIES):
            if attempt and self._over.wait(pause_s):
                break
            pause_s *= 2 if attempt else 1
            if len(self._sent_at) == self._per_minute:
                self._over.wait(max(0.0, self._sent_at[0] + _MINUTE_S - time.monotonic()))
            self._sent_at.append(time.monotonic())
            request = urllib.request.Request(self._url, json.dumps(content).encode(), headers)  # noqa: S310  checked
            try:
                with self._opener.open(request, timeout=_TIMEOUT_S):
                    return ""
            except urllib.error.HTTPError as error:
                reason = f"it answered {error.code}"
                error.close()
                if error.code < 500 and error.code != 429:
                    break  # a mistake in the address does not go away
            except (OSError, ValueError, http.client.HTTPException) as error:
                cause = getattr(error, "reason", error)
                reason = str(getattr(cause, "strerror", None) or cause)
        return reason

    def _fail(self, reason: str) -> None:
        if not self._has_failed and not self._over.is_set():
            self._has_failed = True
            # Only the host's name: the rest of such an address is often a secret.
            self._on_failure(f"An alert could not be sent to {urlsplit(self._url).hostname}: {reason}.")
