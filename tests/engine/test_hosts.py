"""Several hosts before and beside training: who belongs together, who is refused, who is missed, when all stop."""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from engine.channel import Channel
from engine.errors import AcceleratorError
from engine.events import HostLost, HostSampled, Progress, RunFailed
from engine.hosts.agreed_stop import AgreedStop
from engine.hosts.link import Link, LinkClosedError
from engine.hosts.membership import PORT, Membership, check_can_join, find_membership
from engine.hosts.roll_call import answer_roll_call, call_roll, make_card
from engine.hosts.team import Follower, Leader
from engine.journal import JournalWriter
from engine.launch import prepare_run
from engine.roads import Road
from engine.stopping import StoppedError, StopToken
from engine.train import train_and_report
from tests.engine.recorded import lay_out
from tests.helpers import all_of, small_config, the, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from engine.hosts.roll_call import Card

VERSIONS = {"jax": "0.10.2", "keras": "3.15.1"}
LOOPBACK = "127.0.0.1"


def free_port() -> int:
    with closing(socket.create_server((LOOPBACK, 0))) as server:
        return int(server.getsockname()[1])


def place(index: int = 0, count: int = 2, port: int = 1, wait_s: float = 20.0) -> Membership:
    return Membership(count, index, LOOPBACK, port, wait_s, "asked for")


# Who belongs together.


def found(tmp_path: Path, name: str = "laptop", environ: Mapping[str, str] | None = None, **changes: Any) -> Any:
    sources = lay_out(name, tmp_path).sources
    sources = replace(sources, environ={**sources.environ, **(environ or {})})
    return find_membership(small_config(**changes), sources)


def test_a_machine_trains_alone_unless_something_says_otherwise(tmp_path: Path) -> None:
    assert found(tmp_path / "a", accelerator="auto") is None
    assert found(tmp_path / "b", hosts={"count": 1, "index": 0, "coordinator": "h:1"}) is None
    assert found(tmp_path / "c", "gke-v5e-4", accelerator="tpu") is None
    assert found(tmp_path / "d", "kaggle-v5e-8-interactive", accelerator="tpu") is None


def test_the_configuration_says_who_this_is(tmp_path: Path) -> None:
    hosts = {"count": 3, "index": 2, "coordinator": "10.0.0.1:9000", "wait_s": 7}
    assert found(tmp_path, hosts=hosts) == Membership(3, 2, "10.0.0.1", 9000, 7.0, "asked for")


def test_a_tpu_pod_s_metadata_says_who_this_is(tmp_path: Path) -> None:
    pod = Membership(4, 1, "10.128.0.21", PORT, 300.0, "v5p-32 has 4 hosts")
    assert found(tmp_path / "a", "v5p-32-host-1-of-4", accelerator="auto") == pod
    assert found(tmp_path / "b", "v5p-32-host-1-of-4", accelerator="tpu") == pod


def test_a_pod_s_host_that_does_not_use_its_tpu_trains_alone(tmp_path: Path) -> None:
    for number, accelerator in enumerate(("cpu", "sim:8", "tpu:10.0.0.9:8470")):
        assert found(tmp_path / str(number), "v5p-32-host-1-of-4", accelerator=accelerator) is None


def test_gke_s_variables_say_who_this_is(tmp_path: Path) -> None:
    names = "tpu-0.svc,tpu-1.svc,tpu-2.svc,tpu-3.svc"
    environ = {"TPU_WORKER_HOSTNAMES": names, "TPU_WORKER_ID": "3", "TPU_ACCELERATOR_TYPE": "v5litepod-16"}
    place_in = found(tmp_path / "a", "gke-v5e-4", environ, accelerator="tpu")
    assert place_in == Membership(4, 3, "tpu-0.svc", PORT, 300.0, "v5litepod-16 has 4 hosts")
    # libtpu's own ports stand there, which it listens at itself.
    environ = {"TPU_PROCESS_ADDRESSES": "10.4.0.1:8471,10.4.0.2:8471", "TPU_WORKER_ID": "0"}
    place_in = found(tmp_path / "b", "gke-v5e-4", environ, accelerator="tpu")
    assert (place_in.address, place_in.port, place_in.count) == ("10.4.0.1", PORT, 2)


def test_what_a_pod_tells_can_be_set_by_hand(tmp_path: Path) -> None:
    hosts = {"count": 2, "index": 0, "coordinator": "10.128.0.22:9000"}
    chosen = found(tmp_path, "v5p-32-host-1-of-4", accelerator="tpu", hosts=hosts)
    assert chosen == Membership(2, 0, "10.128.0.22", 9000, 300.0, "asked for")


@pytest.mark.parametrize(
    ("hosts", "sentence"),
    [
        ({"count": 2, "coordinator": "h:1"}, "Which of the 2 hosts this is, is not known. Say it with --host-index"),
        ({"count": 2, "index": 0}, "Where host 0 is reached is not known. Say it with --coordinator"),
        ({"count": 2, "index": 0, "coordinator": "h:"}, "'h:' is not where a coordinator can be"),
        ({"count": 2, "index": 0, "coordinator": "h:70000"}, "'h:70000' is not where"),
        ({"count": 2, "index": 0, "coordinator": ":9000"}, "':9000' is not where"),
        ({"count": 2, "index": 0, "coordinator": "http://h:9000"}, "'http://h:9000' is not where"),
        ({"count": 2, "index": 0, "coordinator": "[::1:9000"}, "is not where"),
    ],
)
def test_what_is_missing_or_wrong_is_one_sentence(tmp_path: Path, hosts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AcceleratorError) as caught:
        found(tmp_path, hosts=hosts)
    assert sentence in str(caught.value)


def test_an_index_that_a_smaller_number_of_hosts_has_not(tmp_path: Path) -> None:
    hosts = {"count": 2, "coordinator": "h:1"}
    with pytest.raises(AcceleratorError, match="This is host 3, but 2 hosts are 0 to 1"):
        found(tmp_path, "gke-v5e-4", {"TPU_WORKER_ID": "3"}, accelerator="tpu", hosts=hosts)


@pytest.mark.parametrize(
    ("told", "address", "port", "where"),
    [
        ("host-0", "host-0", PORT, f"host-0:{PORT}"),
        ("host-0:9000", "host-0", 9000, "host-0:9000"),
        ("[::1]:9000", "::1", 9000, "[::1]:9000"),
        ("[fe80::1%eth0]", "fe80::1%eth0", PORT, f"[fe80::1%eth0]:{PORT}"),
        ("2001:db8::7", "2001:db8::7", PORT, f"[2001:db8::7]:{PORT}"),
    ],
)
def test_addresses_of_both_kinds(tmp_path: Path, told: str, address: str, port: int, where: str) -> None:
    place_in = found(tmp_path, hosts={"count": 2, "index": 0, "coordinator": told})
    assert (place_in.address, place_in.port, place_in.where) == (address, port, where)


def test_several_hosts_need_jax_and_a_process_of_their_own() -> None:
    check_can_join(place(), Road("jax", "asked for", "cpu"), "host")
    with pytest.raises(AcceleratorError, match=r"needs a process of its own.*without --in-process"):
        check_can_join(place(), Road("jax", "asked for", "cpu"), "in-process")
    with pytest.raises(AcceleratorError, match=r"with JAX only, and this run takes tensorflow \(auto: a SavedModel"):
        check_can_join(place(), Road("tensorflow", "auto: a SavedModel", "tpu"), "host")


def test_a_run_inside_the_console_that_is_one_of_several_ends_with_that_sentence(tmp_path: Path) -> None:
    hosts = {"count": 2, "index": 0, "coordinator": "127.0.0.1:9000"}
    run = prepare_run(small_config(hosts=hosts), tmp_path / "runs")
    journal = JournalWriter(run.journal)
    assert not train_and_report(run, small_config(hosts=hosts), journal, StopToken(), source="in-process")
    journal.close()
    failed = the(run, RunFailed)
    assert (failed.what, failed.remedy) == (
        "One of 2 hosts (asked for) needs a process of its own.",
        "Start it without --in-process.",
    )


# The roll call.


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
            thread.join(30.0)
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
    thread.join(20.0)
    assert list(links) == [1]
    for link in (links[1], ends[0][0]):
        link.close()


# The connection.


@pytest.fixture
def pair() -> Iterator[tuple[Link, Link]]:
    links = tuple(Link(end) for end in _connected())
    yield links[0], links[1]
    for link in links:
        link.close()


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as server:
        client = socket.create_connection(server.getsockname())
        return server.accept()[0], client


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
    end, raw = _connected()
    link = Link(end)
    flood = threading.Thread(target=_flood, args=(raw,))
    flood.start()
    with pytest.raises(LinkClosedError):
        link.receive(20.0)
    link.close()
    flood.join(20.0)
    raw.close()


def _flood(raw: socket.socket) -> None:
    try:
        for _ in range(64):
            raw.sendall(b"x" * (1 << 16))
    except OSError as error:
        assert error.errno in {errno.EPIPE, errno.ECONNRESET}  # noqa: PT017  in a thread of its own


# Stopping after the same step.


class Model:
    """Stands for a compiled model: it has what `AgreedStop` touches, and steps that take a moment."""

    steps_per_execution = 1
    stop_training = False

    def make_train_function(self) -> None:
        self.train_function: Callable[[Any, Any], int] = lambda state, _: state + 1


class Trainer(threading.Thread):
    """A host that trains: steps in epochs, with others' validation between them."""

    def __init__(self, stop: AgreedStop, steps: int, pause: threading.Event, pace_s: float) -> None:
        super().__init__(daemon=True)
        self.model = Model()
        stop.attach(self.model)
        self.done = 0
        self._steps, self._pause, self._pace_s = steps, pause, pace_s

    def run(self) -> None:
        while self.done < self._steps and not self.model.stop_training:
            self.done = self.model.train_function(self.done, None)
            self._pause.wait(self._pace_s)


class Crew:
    """A leader and followers over real links, each with a trainer."""

    def __init__(self, folder: Path, paces: tuple[float, ...], steps: int = 10**6) -> None:
        self.stops = [AgreedStop() for _ in paces]
        self.over = threading.Event()
        self.heard: dict[int, str] = {}
        self.lost: dict[int, str] = {}
        self.asked: list[str] = []
        self.channels: list[Channel] = []
        for index in range(len(paces)):
            run = prepare_run(small_config(name=f"host-{index}"), folder)
            self.channels.append(Channel(run, JournalWriter(run.journal)))
        card = make_card(place(), small_config(), VERSIONS)
        self.links, self.cards, self.followers = {}, {}, {}
        for index in range(1, len(paces)):
            here, there = (Link(end) for end in _connected())
            self.links[index] = here
            self.cards[index] = replace(card, index=index, host=f"machine-{index}")
            self.followers[index] = self._follower(index, there)
        self.leader = Leader(
            self.channels[0], self.links, self.cards, self.stops[0], self._noter(self.lost, 0), self._request
        )
        self.trainers = [Trainer(stop, steps, self.over, pace) for stop, pace in zip(self.stops, paces, strict=True)]
        self.sides: list[Leader | Follower] = [self.leader, *self.followers.values()]
        for side in self.sides:
            side.start()

    def _follower(self, index: int, link: Link) -> Follower:
        return Follower(
            self.channels[index],
            link,
            "machine-0",
            self.stops[index],
            lambda what: self._leave(index, what, link),
            self._noter(self.heard, index),
        )

    def _leave(self, index: int, what: str, link: Link) -> None:
        """Do what the process of a host does when the run cannot go on: it ends."""
        self.lost[index] = what
        link.close()

    def _noter(self, notes: dict[int, str], index: int) -> Callable[[str], object]:
        return lambda text: notes.setdefault(index, text)

    def _request(self, reason: str) -> None:
        self.asked.append(reason)
        self.leader.request_stop(reason, lambda: self.heard.setdefault(0, reason))

    def train(self) -> None:
        for trainer in self.trainers:
            trainer.start()

    def wait(self) -> list[int]:
        """Wait for the end of training; return the steps of each."""
        for trainer in self.trainers:
            trainer.join(30.0)
            assert not trainer.is_alive(), "training goes on"
        return [trainer.done for trainer in self.trainers]

    def close(self) -> None:
        self.over.set()
        self.leader.finish()
        for side in self.sides:
            side.close()
        for channel in self.channels:
            channel.journal.close()


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Callable[..., Crew]]:
    made: list[Crew] = []

    def make(*paces: float, steps: int = 10**6) -> Crew:
        made.append(Crew(tmp_path / "runs", paces, steps))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_hosts_of_different_pace_stop_after_the_same_step(crew: Callable[..., Crew]) -> None:
    hosts = crew(0.001, 0.004, 0.0003)
    hosts.train()
    wait_until(lambda: hosts.trainers[1].done >= 5, "training")
    hosts.leader.request_stop("asked by SIGTERM", lambda: hosts.heard.setdefault(0, "asked by SIGTERM"))
    hosts.leader.request_stop("again", lambda: None)
    done = hosts.wait()
    assert len(set(done)) == 1
    assert hosts.heard == dict.fromkeys(range(3), "asked by SIGTERM")
    assert not hosts.lost


def test_a_stop_at_another_host_stops_all_and_says_where(crew: Callable[..., Crew]) -> None:
    hosts = crew(0.001, 0.002)
    hosts.train()
    wait_until(lambda: hosts.trainers[1].done >= 5, "training")
    hosts.followers[1].request_stop("asked by SIGTERM")
    assert len(set(hosts.wait())) == 1
    assert set(hosts.heard.values()) == {"asked by SIGTERM, at host 1 (machine-1)"}


def test_a_host_that_begins_late_still_goes_as_far_as_the_others(crew: Callable[..., Crew]) -> None:
    hosts = crew(0.001, 0.001)
    hosts.trainers[0].start()
    wait_until(lambda: hosts.trainers[0].done >= 20, "training")
    hosts.leader.request_stop("early", lambda: hosts.heard.setdefault(0, "early"))
    wait_until(lambda: hosts.trainers[0].model.stop_training, "host 0 stops")
    assert 1 not in hosts.heard, "the other has not come that far"
    hosts.trainers[1].start()
    assert len(set(hosts.wait())) == 1
    assert hosts.heard[1] == "early"


def test_a_stop_behind_the_last_step_leaves_the_run_complete(crew: Callable[..., Crew]) -> None:
    hosts = crew(0.0, 0.0, steps=30)
    hosts.train()
    assert hosts.wait() == [30, 30]
    hosts.leader.request_stop("too late", lambda: hosts.heard.setdefault(0, "too late"))
    wait_until(lambda: all(stop.hold() == 30 for stop in hosts.stops), "asked")
    assert not hosts.heard


def test_several_steps_at_once_count_as_many() -> None:
    stop, model = AgreedStop(), Model()
    model.steps_per_execution = 8
    stop.attach(model)
    ended: list[int] = []
    assert model.train_function(0, None) == 1
    assert stop.hold() == 8
    stop.stop_after(9, lambda: ended.append(1))
    model.train_function(1, None)
    assert (ended, model.stop_training, stop.hold()) == ([1], True, 16)


def test_a_second_phase_goes_on_counting() -> None:
    stop = AgreedStop()
    for _ in range(2):  # fine-tuning compiles the model anew
        model = Model()
        stop.attach(model)
        model.train_function(0, None)
    assert stop.hold() == 2


# Watching over each other.


def test_a_host_that_is_gone_is_named_at_every_other(crew: Callable[..., Crew]) -> None:
    hosts = crew(0.0, 0.0, 0.0)
    hosts.followers[1].close()
    wait_until(lambda: len(hosts.lost) == 3, "all noticed")
    assert hosts.lost[0] == hosts.lost[2] == "Host 1 (machine-1) is gone."
    lost = the(hosts.channels[0].run, HostLost)
    assert (lost.process, lost.host) == (1, "machine-1")


def test_host_0_gone_ends_the_others(crew: Callable[..., Crew]) -> None:
    hosts = crew(0.0, 0.0)
    hosts.links[1].close()
    wait_until(lambda: 1 in hosts.lost, "noticed")
    assert hosts.lost[1] == "Host 0 (machine-0) is gone."


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_is_told_to_the_others_with_its_cause(crew: Callable[..., Crew], failing: int) -> None:
    hosts = crew(0.0, 0.0, 0.0)
    side = hosts.followers[1] if failing else hosts.leader
    side.fail("train.csv has no column 'label'")
    if failing:
        side.close()
    others = {0, 1, 2} - {failing}
    wait_until(lambda: set(hosts.lost) >= others, "told")
    name = "Host 1 (machine-1)" if failing else "Host 0"
    assert {hosts.lost[index] for index in others} == {f"{name} failed: train.csv has no column 'label'."}
    assert failing not in hosts.lost, "its own last event says why"
    assert not all_of(hosts.channels[0].run, HostLost)


def test_a_step_that_fails_for_a_lost_host_is_put_down_to_that_host(crew: Callable[..., Crew]) -> None:
    hosts = crew(0.0, 0.0, 0.0)
    failing = threading.Thread(target=hosts.leader.fail, args=("Gloo: connection closed by peer", 20.0))
    failing.start()
    hosts.followers[2].close()
    failing.join(20.0)
    wait_until(lambda: 0 in hosts.lost and 1 in hosts.lost, "noticed")
    assert hosts.lost[0] == hosts.lost[1] == "Host 2 (machine-2) is gone."


def test_a_host_s_figures_reach_host_0_and_its_progress_does_not(crew: Callable[..., Crew]) -> None:
    hosts = crew(0.0, 0.0)
    sample = HostSampled(1, "machine-1", 1.0, 50.0, 10, 20, None, None, {"disk": "not told"})
    hosts.channels[1].emit(Progress(1, 1, 1, 0.1, {"loss": 1.0}))
    hosts.channels[1].emit(sample)
    wait_until(lambda: all_of(hosts.channels[0].run, HostSampled), "passed on")
    assert the(hosts.channels[0].run, HostSampled) == sample
    assert not all_of(hosts.channels[0].run, Progress)


def test_a_host_that_is_done_waits_for_host_0_to_take_leave(crew: Callable[..., Crew]) -> None:
    hosts = crew(0.0, 0.0)
    leaving = threading.Thread(target=hosts.followers[1].finish, daemon=True)
    leaving.start()
    # Host 0 still saves: its link lives, and neither takes the other for lost.
    hosts.links[1].send("beat")
    assert leaving.is_alive()
    hosts.leader.finish()
    leaving.join(20.0)
    assert not leaving.is_alive()
    hosts.followers[1].close()
    hosts.leader.close()
    assert not hosts.lost
