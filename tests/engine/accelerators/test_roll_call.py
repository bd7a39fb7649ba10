"""The roll call before several hosts train: who comes, who is refused, who is missed."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.accelerators.host_parts import LOOPBACK, VERSIONS, Hall, free_port, place
from tests.helpers import LIMIT_S, small_config, wait_until
from tpu_console.engine.accelerators.hosts.jax_service import Board, Notes
from tpu_console.engine.accelerators.hosts.membership import Membership
from tpu_console.engine.accelerators.hosts.roll_call import (
    Card,
    Decision,
    answer_roll_call,
    go_to_meeting,
    make_card,
    mismatch,
)
from tpu_console.engine.errors import AcceleratorError
from tpu_console.engine.runs.stop_token import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOST = socket.gethostname()


def card(**changes: Any) -> Card:
    return replace(make_card(place(), small_config()), **({"versions": VERSIONS} | changes))


class Roll:
    """Hosts that answer a roll call at a real meeting, each in a thread of its own; host 0 has to start first."""

    def __init__(self, count: int) -> None:
        self.hall = Hall()
        self.count = count
        self.results: dict[str, Any] = {}
        self.told: list[str] = []
        self.stop: set[str] = set()
        self._threads: list[threading.Thread] = []

    def start(self, index: int, name: str = "", wait_s: float = 30.0, **changes: Any) -> None:
        """Have a host come; what becomes of it is in `results` under its name."""
        name = name or f"host {index}"
        board, membership = self.hall.board(index), place(index, self.count, self.hall.port, wait_s)
        tell: Callable[[str], object] = self.told.append if index == 0 else lambda _: None

        def come() -> None:
            try:
                mine = card(**({"count": self.count} | changes))
                self.results[name] = answer_roll_call(board, membership, mine, lambda: name in self.stop, tell)
            except (AcceleratorError, StoppedError) as error:
                self.results[name] = error

        self._threads.append(threading.Thread(target=come, daemon=True))
        self._threads[-1].start()

    def result(self, name: str) -> Any:
        wait_until(lambda: name in self.results, name)
        return self.results[name]

    def wait_for(self, text: str) -> None:
        """Wait until host 0 has told a text."""
        wait_until(lambda: self.told and text in self.told[-1], text)

    def close(self) -> None:
        self.stop |= {f"host {index}" for index in range(self.count)} | {"first", "second"}
        for thread in self._threads:
            thread.join(LIMIT_S)
        self.hall.close()


@pytest.fixture
def roll() -> Iterator[Callable[[int], Roll]]:
    made: list[Roll] = []

    def make(count: int) -> Roll:
        made.append(Roll(count))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_all_hosts_arrive_and_learn_the_names_of_the_others(roll: Callable[[int], Roll]) -> None:
    hosts = roll(3)
    hosts.start(0)
    hosts.wait_for(f"waiting for hosts 1 and 2 at {LOOPBACK}:{hosts.hall.port}")
    hosts.start(2, host="b")
    hosts.wait_for("waiting for host 1 at")
    hosts.start(1, host="a")
    for index in range(3):
        assert hosts.result(f"host {index}") == {0: HOST, 1: "a", 2: "b"}
    assert len(hosts.told) == 2, "it is reported when it changes, not at every look"


def test_a_missing_host_is_named_after_the_time_limit(roll: Callable[[int], Roll]) -> None:
    hosts = roll(4)
    hosts.start(0, wait_s=1.5)
    hosts.start(1)
    for name in ("host 0", "host 1"):
        assert "Hosts 2 and 3 of 4 did not join within 2 s." in str(hosts.result(name))


class Late(Board):
    """A board where the others come, and host 0 begins, between two looks of host 1."""

    def read(self, folder: str) -> dict[str, str]:
        if folder == "decisions" and super().read("cards"):
            for index, host in ((0, "a"), (2, "c")):
                Notes(self, "cards", Card).write(index, card(count=3, host=host))
            Notes(self, "decisions", Decision).write(0, Decision("begin"))
        return super().read(folder)


def test_a_host_that_came_at_the_last_moment_has_its_name_everywhere() -> None:
    with closing(Hall()) as hall:
        hall.board(0)
        board = Late(hall.board(1)._client)
        mine = card(count=3, host="b")
        names = answer_roll_call(board, place(1, 3, hall.port), mine, lambda: False, lambda _: None)
    assert names == {0: "a", 1: "b", 2: "c"}


def test_two_hosts_of_one_number(roll: Callable[[int], Roll]) -> None:
    hosts = roll(3)
    hosts.start(0)
    hosts.start(1, "first")
    hosts.wait_for("waiting for host 2 ")
    hosts.start(1, "second")
    assert f"Host 1 has already joined ({HOST}). Give each host its own" in str(hosts.result("second"))
    hosts.start(2)
    assert sorted(hosts.result("host 0")) == sorted(hosts.result("first")) == [0, 1, 2], "the first one stays"


def test_a_host_that_arrives_after_the_start_is_refused(roll: Callable[[int], Roll]) -> None:
    hosts = roll(2)
    hosts.start(0)
    hosts.start(1, "first")
    hosts.result("first")
    hosts.start(1, "second")
    assert f"The hosts at {LOOPBACK}:{hosts.hall.port} have already started." in str(hosts.result("second"))


def test_a_host_that_left_may_join_again(roll: Callable[[int], Roll]) -> None:
    hosts = roll(3)
    hosts.start(0)
    hosts.start(1, "first")
    hosts.wait_for("waiting for host 2 ")
    hosts.stop.add("first")
    assert isinstance(hosts.result("first"), StoppedError)
    hosts.wait_for("waiting for hosts 1 and 2 ")
    hosts.start(1)
    hosts.start(2)
    assert sorted(hosts.result("host 0")) == [0, 1, 2]


def test_a_stop_at_host_0_ends_the_wait_of_all(roll: Callable[[int], Roll]) -> None:
    hosts = roll(3)
    hosts.start(0)
    hosts.start(1)
    hosts.wait_for("waiting for host 2 ")
    hosts.stop.add("host 0")
    assert isinstance(hosts.result("host 0"), StoppedError)
    stopped = hosts.result("host 1")
    assert isinstance(stopped, StoppedError)
    assert str(stopped) == "host 0 was asked to stop"


def test_a_host_that_does_not_fit_is_refused_at_both_ends(roll: Callable[[int], Roll]) -> None:
    hosts = roll(2)
    hosts.start(0)
    hosts.start(1, config="another")
    expected = f"Host 1 ({HOST}) has another configuration than host 0. Start the same command on all hosts."
    assert [str(hosts.result(f"host {index}")) for index in (0, 1)] == [expected] * 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"count": 3}, "Host 1 ({host}) expects 3 hosts, host 0 ({host}) expects 2."),
        (
            {"versions": {"jax": "0.9.0", "keras": "3.0"}},
            "Host 1 ({host}) has other versions: jax 0.9.0 there, 0.10.2 at host 0; keras 3.0 there, 3.15.1 at host 0.",
        ),
        ({"config": "another"}, "Host 1 ({host}) has another configuration than host 0."),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], sentence: str) -> None:
    assert mismatch(1, card(), card()) is None
    wrong = mismatch(1, card(**changes), card())
    assert wrong is not None
    assert wrong.what == sentence.format(host=HOST)


def test_only_the_name_and_the_place_may_differ() -> None:
    mine = make_card(place(0), small_config(name="a", hosts={"count": 2, "index": 0}))
    same = make_card(place(1), small_config(name="b", hosts={"count": 2, "index": 1}))
    other = make_card(place(1), small_config(seed=1))
    assert mine.config == same.config != other.config


def test_host_0_never_answers() -> None:
    port = free_port()
    with pytest.raises(AcceleratorError, match=rf"Host 0 did not answer at {LOOPBACK}:{port}.*refused.*--host-index 0"):
        go_to_meeting(place(1, port=port, wait_s=0.3), lambda: False)


def test_a_stop_request_while_waiting_for_host_0() -> None:
    with pytest.raises(StoppedError):
        go_to_meeting(place(1, port=free_port()), lambda: True)


def test_a_second_host_0_finds_the_port_in_use(roll: Callable[[int], Roll]) -> None:
    hosts = roll(2)
    hosts.start(0)
    with pytest.raises(AcceleratorError, match=rf"{LOOPBACK}:{hosts.hall.port}: Address already in use"):
        go_to_meeting(place(port=hosts.hall.port), lambda: False)


def test_an_address_of_another_machine() -> None:
    abroad = Membership(2, 0, "192.0.2.1", free_port(), 1.0, "asked for")  # reserved for documentation: RFC 5737
    with pytest.raises(AcceleratorError, match=r"192\.0\.2\.1:\d+: Cannot assign.* a free port of this machine"):
        go_to_meeting(abroad, lambda: False)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_hosts_meet_at_an_address_of_ipv6() -> None:
    port = free_port()
    first, second = (go_to_meeting(Membership(2, index, "::1", port, 5.0, ""), lambda: False) for index in (0, 1))
    second.board.put("cards/1", "here")
    assert first.board.read("cards") == {"1": "here"}
    second.close()
    first.close()
