"""Parts of the tests of several hosts."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

from tpu_console.engine.accelerators.hosts.jax_service import Meeting, host_meeting, join_meeting
from tpu_console.engine.accelerators.hosts.membership import Membership

if TYPE_CHECKING:
    from tpu_console.engine.accelerators.hosts.jax_service import Board

VERSIONS = {"jax": "0.10.2", "keras": "3.15.1"}
LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Return a port that nothing listens at, and whose next one is free as well."""
    while True:
        with closing(socket.create_server((LOOPBACK, 0))) as server:
            port = int(server.getsockname()[1])
            try:
                socket.create_server((LOOPBACK, port + 1)).close()
            except OSError:
                continue
            return port


def place(index: int = 0, count: int = 2, port: int = 1, wait_s: float = 20.0) -> Membership:
    """Return a host's place among others on this machine."""
    return Membership(count, index, LOOPBACK, port, wait_s, "asked for")


class Hall:
    """A real meeting of JAX's service, all hosts in this process; host 0 must leave last, or JAX aborts it."""

    def __init__(self) -> None:
        self.port = free_port()
        self._meetings: list[Meeting] = []

    def board(self, index: int) -> Board:
        """Return a host's board; host 0 comes first."""
        membership = place(index, port=self.port)
        self._meetings.append(join_meeting(membership) if self._meetings else host_meeting(membership))
        return self._meetings[-1].board

    def close(self) -> None:
        """End the meeting."""
        for meeting in reversed(self._meetings):
            meeting.close()
