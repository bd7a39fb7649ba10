"""The roll call before several hosts train: who comes, who is refused, who is missed."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from engine.errors import AcceleratorError
from engine.hosts.membership import Membership
from engine.hosts.roll_call import answer_roll_call, call_roll, make_card
from engine.stopping import StoppedError
from tests.engine.host_parts import LOOPBACK, VERSIONS, free_port, place
from tests.helpers import LIMIT_S, small_config, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.hosts.roll_call import Card


class Roll:
    """Hosts that answer a roll call, each in a thread of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        self.results: dict[str, Any] = {}
        self.told: list[str] = []
        self.stop: dict[str, bool] = {}
        self._threads: list[threading.Thread] = []

    def card(self, index: int, **changes: Any) -> Card:
        return replace(make_card(place(index), small_config(), VERSIONS), **changes)

    def start(self, index: int, name: str = "", count: int = 2, wait_s: float = 20.0, **changes: Any) -> None:
        """Have a host come; what becomes of it is in `results` under its name."""
        name = name or f"host {index}"
        place_in = place(index, count, self.port, wait_s)
        card = self.card(index, **({"count": count} | changes))

        def come() -> None:
            def should_stop() -> bool:
                return self.stop.get(name, False)

            try:
                if index:
                    self.results[name] = answer_roll_call(place_in, card, should_stop)
                else:
                    self.results[name] = call_roll(place_in, card, should_stop, self.told.append)
            except Exception as error:  # noqa: BLE001  the test looks at it
                self.results[name] = error

        self._threads.append(threading.Thread(target=come, daemon=True))
        self._threads[-1].start()

    def result(self, name: str) -> Any:
        wait_until(lambda: name in self.results, name)
        return self.results[name]

    def error(self, name: str) -> str:
        found_error = self.result(name)
        assert isinstance(found_error, AcceleratorError), found_error
        return str(found_error)

    def wait_for(self, text: str) -> None:
        """Wait until host 0 has told a text."""
        wait_until(lambda: any(text in line for line in self.told), text)

    def connect(self) -> socket.socket:
        """Connect as something that is no host."""
        connection: list[socket.socket] = []

        def reached() -> bool:
            try:
                connection.append(socket.create_connection((LOOPBACK, self.port), 5.0))
            except OSError:
                return False
            return True

        wait_until(reached, "host 0 listens")
        return connection[0]

    def close(self) -> None:
        for thread in self._threads:
            thread.join(LIMIT_S)
        for result in self.results.values():
            if isinstance(result, tuple):
                for link in result[0].values() if isinstance(result[0], dict) else [result[0]]:
                    link.close()


@pytest.fixture
def roll() -> Iterator[Roll]:
    roll = Roll()
    yield roll
    roll.close()


def test_all_come_in_any_order_and_hear_of_each_other(roll: Roll) -> None:
    roll.start(2, count=3)
    roll.start(1, count=3)
    roll.start(0, count=3)
    links, cards, port = roll.result("host 0")
    assert sorted(links) == sorted(cards) == [1, 2]
    assert cards[2].host == socket.gethostname()
    for index in (1, 2):
        link, name, port_there = roll.result(f"host {index}")
        assert (name, port_there) == (socket.gethostname(), port)
        links[index].send("beat", note="é")
        assert link.receive(5.0) == {"kind": "beat", "note": "é"}
    assert roll.told[0] == f"waiting for hosts 1 and 2 at {LOOPBACK}:{roll.port}"
    assert len(roll.told) <= 2, "it is told when it changes, not at every look"


def test_a_host_that_never_comes_is_named_after_the_limit(roll: Roll) -> None:
    roll.start(1, count=4)
    roll.start(0, count=4, wait_s=1.5)
    absent = "Hosts 2 and 3 of 4 did not come within 2 s."
    assert absent in roll.error("host 0")
    assert f"Host 0 gave up: {absent}" in roll.error("host 1")


def test_a_coordinator_that_never_comes(roll: Roll) -> None:
    roll.start(1, wait_s=0.5)
    told = roll.error("host 1")
    assert f"Host 0 did not answer at {LOOPBACK}:{roll.port}" in told
    assert "Connection refused" in told
    assert "--host-index 0" in told


def test_two_hosts_of_one_number(roll: Roll) -> None:
    roll.start(0, count=3)
    roll.start(1, "first", count=3)
    roll.wait_for("waiting for host 2 ")
    roll.start(1, "second", count=3)
    assert f"Host 1 is here already ({socket.gethostname()}). Give each host its own" in roll.error("second")
    roll.start(2, count=3)
    assert sorted(roll.result("host 0")[0]) == [1, 2], "the one that was first stays"


def test_a_second_host_0_finds_the_port_taken(roll: Roll) -> None:
    roll.start(0)
    roll.wait_for("waiting for host 1 ")
    roll.start(0, "second")
    assert f"{LOOPBACK}:{roll.port} is taken already" in roll.error("second")
    roll.start(1)
    roll.result("host 0")


def test_a_host_that_left_may_come_again(roll: Roll) -> None:
    roll.start(0, count=3)
    roll.start(1, "first", count=3)
    roll.wait_for("waiting for host 2 ")
    roll.stop["first"] = True
    assert isinstance(roll.result("first"), StoppedError)
    wait_until(lambda: "hosts 1 and 2" in roll.told[-1], "missing again")
    roll.start(1, count=3)
    roll.start(2, count=3)
    assert sorted(roll.result("host 0")[0]) == [1, 2]


OTHER_VERSIONS = (
    "has other versions: jax 0.9.0 there, 0.10.2 at host 0; keras missing there, 3.15.1 at host 0. "
    "Install the same versions on all hosts."
)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"count": 3}, "was told of 3 hosts, host 0 ({host}) of 2. Give all the same --hosts."),
        ({"versions": {"jax": "0.9.0"}}, OTHER_VERSIONS),
        ({"config": "another"}, "has another configuration than host 0. Start the same command on all hosts."),
    ],
)
def test_hosts_that_do_not_belong_together(roll: Roll, changes: dict[str, Any], sentence: str) -> None:
    roll.start(0)
    roll.start(1, **changes)
    host = socket.gethostname()
    expected = f"Host 1 ({host}) {sentence.format(host=host)}"
    assert (roll.error("host 0"), roll.error("host 1")) == (expected, expected)


def test_only_the_name_and_the_place_may_differ() -> None:
    mine = make_card(place(0), small_config(name="a", hosts={"count": 2, "index": 0}), VERSIONS)
    same = make_card(place(1), small_config(name="b", hosts={"count": 2, "index": 1}), VERSIONS)
    other = make_card(place(1), small_config(seed=1), VERSIONS)
    assert mine.config == same.config != other.config


def test_what_is_no_host_is_passed_over(roll: Roll) -> None:
    roll.start(0)
    with closing(roll.connect()) as browser:
        browser.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert browser.recv(1) == b"", "it hangs up"
    with closing(roll.connect()) as odd:
        odd.sendall(b'{"kind":"card","index":"one"}\n[1]\n')
        assert odd.recv(1) == b""
    roll.connect().close()
    roll.start(1)
    assert list(roll.result("host 0")[0]) == [1]


def test_a_program_of_another_kind_at_host_0_s_port(roll: Roll) -> None:
    with closing(socket.create_server((LOOPBACK, roll.port))) as server:
        roll.start(1)
        connection, _ = server.accept()
        with closing(connection):
            connection.recv(10)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            assert "hung up: it speaks something else. Its own run says why; if none is there" in roll.error("host 1")


def test_an_address_of_another_machine() -> None:
    abroad = Membership(2, 0, "192.0.2.1", free_port(), 1.0, "asked for")  # reserved for documentation: RFC 5737
    with pytest.raises(AcceleratorError, match=r"192\.0\.2\.1 is not an address of this machine"):
        call_roll(abroad, make_card(abroad, small_config(), VERSIONS), lambda: False, lambda _: None)


@pytest.mark.parametrize("host", [0, 1])
def test_a_stop_in_the_roll_call_ends_it_for_whom_it_concerns(roll: Roll, host: int) -> None:
    roll.start(0, count=3)
    roll.start(1, count=3)
    roll.wait_for("waiting for host 2 ")
    roll.stop[f"host {host}"] = True
    assert isinstance(roll.result(f"host {host}"), StoppedError)
    if host == 0:
        stopped = roll.result("host 1")
        assert isinstance(stopped, StoppedError)
        assert str(stopped) == "host 0 was asked to stop"
    else:
        wait_until(lambda: "hosts 1 and 2" in roll.told[-1], "host 0 waits on")
        roll.stop["host 0"] = True


def test_a_stop_while_nobody_answers(roll: Roll) -> None:
    roll.start(1)
    roll.stop["host 1"] = True
    assert isinstance(roll.result("host 1"), StoppedError)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_hosts_meet_at_an_address_of_ipv6() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
    ends: list[Any] = []
    first, second = (Membership(2, index, "::1", port, 20.0, "") for index in (0, 1))
    card = make_card(second, small_config(), VERSIONS)
    thread = threading.Thread(target=lambda: ends.append(answer_roll_call(second, card, lambda: False)))
    thread.start()
    links, _, _ = call_roll(first, replace(card, index=0), lambda: False, lambda _: None)
    thread.join(LIMIT_S)
    assert list(links) == [1]
    for link in (links[1], ends[0][0]):
        link.close()
