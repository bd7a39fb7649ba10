"""The connection of two hosts."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

import pytest

from engine.hosts.link import Link, LinkClosedError
from tests.engine.host_parts import connected_sockets
from tests.helpers import LIMIT_S

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator


@pytest.fixture
def pair() -> Iterator[tuple[Link, Link]]:
    links = tuple(Link(end) for end in connected_sockets())
    yield links[0], links[1]
    for link in links:
        link.close()


def test_messages_arrive_whole_and_in_order(pair: tuple[Link, Link]) -> None:
    here, there = pair
    for number in range(3):
        here.send("number", value=number, text="x" * 100_000)
    assert [there.receive(5.0)["value"] for _ in range(3)] == [0, 1, 2]
    assert not there.is_closed()


def test_the_end_of_a_link_is_told_from_silence(pair: tuple[Link, Link]) -> None:
    here, there = pair
    with pytest.raises(TimeoutError):
        there.receive(0.05)
    here.close()
    assert there.is_closed()
    with pytest.raises(LinkClosedError):
        there.receive(5.0)


def test_a_line_without_end_is_not_read_for_ever() -> None:
    end, raw = connected_sockets()
    link = Link(end)
    flood = threading.Thread(target=_flood, args=(raw,))
    flood.start()
    with pytest.raises(LinkClosedError):
        link.receive(20.0)
    link.close()
    flood.join(LIMIT_S)
    raw.close()


def _flood(raw: socket.socket) -> None:
    try:
        for _ in range(64):
            raw.sendall(b"x" * (1 << 16))
    except OSError as error:
        assert error.errno in {errno.EPIPE, errno.ECONNRESET}  # noqa: PT017  in a thread of its own
