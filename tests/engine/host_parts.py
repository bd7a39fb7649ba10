"""Parts of the tests of several hosts."""

from __future__ import annotations

import socket
from contextlib import closing

from engine.hosts.membership import Membership

VERSIONS = {"jax": "0.10.2", "keras": "3.15.1"}
LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Return a port that nothing listens at."""
    with closing(socket.create_server((LOOPBACK, 0))) as server:
        return int(server.getsockname()[1])


def place(index: int = 0, count: int = 2, port: int = 1, wait_s: float = 20.0) -> Membership:
    """Return a host's place among others on this machine."""
    return Membership(count, index, LOOPBACK, port, wait_s, "asked for")


def connected_sockets() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection."""
    with socket.create_server((LOOPBACK, 0)) as server:
        client = socket.create_connection(server.getsockname())
        return server.accept()[0], client
