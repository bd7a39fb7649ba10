"""JAX's coordination service: hosts join it one by one and exchange short texts."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.engine.accelerators.host_parts import LOOPBACK, Hall, free_port, place
from tpu_console.engine.accelerators.hosts.jax_service import Notes, host_meeting, join_meeting
from tpu_console.engine.accelerators.hosts.roll_call import Decision

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def hall() -> Iterator[Hall]:
    hall = Hall()
    yield hall
    hall.close()


def test_hosts_join_one_by_one_and_read_what_the_others_write(hall: Hall) -> None:
    first, third = hall.board(0), hall.board(2)
    assert first.read("cards") == {}
    third.put("cards/2", "a")
    third.put("cards/2", "é")
    assert first.read("cards") == {"2": "é"}
    hall.board(1).remove("cards/2")
    assert third.read("cards") == {}


def test_the_service_listens_at_the_address_of_the_configuration_only(hall: Hall) -> None:
    hall.board(0)
    others = [str(address) for _, _, _, _, (address, *_) in socket.getaddrinfo(socket.gethostname(), hall.port)]
    for address in {"127.0.0.2", *others} - {LOOPBACK, "::1"}:
        with pytest.raises(OSError, match=r"refused|unreachable"):
            socket.create_connection((address, hall.port), 1.0)


def test_a_meeting_that_is_not_open_yet_is_an_error_and_no_abort() -> None:
    port = free_port()
    with pytest.raises(OSError, match="refused"):
        join_meeting(place(1, port=port))
    with closing(socket.create_server((LOOPBACK, port))), pytest.raises(OSError, match="refused"):
        join_meeting(place(1, port=port))


def test_a_meeting_is_closed_once() -> None:
    meeting = host_meeting(place(port=free_port()))
    meeting.close()
    meeting.close()


def test_silence_is_measured_from_the_last_note(hall: Hall) -> None:
    now = [0.0]
    notes = Notes(hall.board(0), "decisions", Decision, lambda: now[0])
    for index in (1, 2):
        notes.write(index, Decision("begin"))
    assert notes.read() == {1: Decision("begin"), 2: Decision("begin")}
    assert notes.silent_s(3) == 0.0
    now[0] = 7.0
    notes.write(1, Decision("begin"))
    assert notes.read(5.0) == {1: Decision("begin")}
    assert [notes.silent_s(index) for index in (1, 2, 3)] == [0.0, 7.0, 7.0]


def test_texts_that_are_not_notes_are_ignored(hall: Hall) -> None:
    board = hall.board(0)
    for index, text in enumerate(["", "[]", "{", '{"what": 1}', '{"remedy": "x"}', "null"]):
        board.put(f"decisions/{index}", f"0 {text}")
    board.put("decisions/x", '0 {"what": "begin"}')
    board.put("decisions/9", '{"what": "begin"}')
    assert Notes(board, "decisions", Decision).read() == {}
