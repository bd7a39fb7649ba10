"""A connection between two hosts of a run: one JSON object a line, both ways."""

from __future__ import annotations

import json
import select
import socket
import threading
from contextlib import suppress
from typing import Any

_READ_BYTES = 1 << 16
_LONGEST_LINE = 1 << 20


class LinkClosedError(OSError):
    """The other side is gone."""


class Link:
    """One connection; sending is safe from any thread, receiving is for one.

    Args:
        connection: A connected socket; it belongs to the link.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._lock = threading.Lock()

    def send(self, kind: str, **values: Any) -> None:
        """Send a message.

        Raises:
            OSError: The other side is gone.
        """
        line = json.dumps({"kind": kind, **values}).encode() + b"\n"
        with self._lock:
            self._connection.sendall(line)

    def receive(self, limit_s: float) -> dict[str, Any]:
        """Wait for a message.

        Raises:
            TimeoutError: None came within the limit.
            LinkClosedError: The other side is gone, or does not speak this.
        """
        while b"\n" not in self._rest:
            try:
                self._connection.settimeout(limit_s)
                data = self._connection.recv(_READ_BYTES)
            except TimeoutError:
                raise
            except OSError as error:
                raise LinkClosedError(str(error)) from error
            if not data or len(self._rest) > _LONGEST_LINE:
                raise LinkClosedError("the connection was closed")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError as error:
            raise LinkClosedError("it speaks something else") from error
        if not isinstance(message, dict) or "kind" not in message:
            raise LinkClosedError("it speaks something else")
        return message

    def is_closed(self) -> bool:
        """Tell whether the other side has hung up; looks and does not wait."""
        try:
            something = select.poll()
            something.register(self._connection, select.POLLIN)
            return bool(something.poll(0)) and self._connection.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
