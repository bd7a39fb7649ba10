"""Several hosts while they train: stopping after the same step, and watching over each other."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from engine.channel import Channel
from engine.events import HostLost, HostSampled, Progress
from engine.hosts.agreed_stop import AgreedStop
from engine.hosts.link import Link
from engine.hosts.roll_call import make_card
from engine.hosts.team import Follower, Leader
from engine.journal import JournalWriter
from engine.launch import prepare_run
from tests.engine.host_parts import VERSIONS, connected_sockets, place
from tests.helpers import LIMIT_S, all_of, small_config, the, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


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
        self.unbegun: dict[int, str] = {}
        self.asked: list[str] = []
        self.channels: list[Channel] = []
        for index in range(len(paces)):
            run = prepare_run(small_config(name=f"host-{index}"), folder)
            self.channels.append(Channel(run, JournalWriter(run.journal)))
        card = make_card(place(), small_config(), VERSIONS)
        self.links, self.cards, self.followers = {}, {}, {}
        for index in range(1, len(paces)):
            here, there = (Link(end) for end in connected_sockets())
            self.links[index] = here
            self.cards[index] = replace(card, index=index, host=f"machine-{index}")
            self.followers[index] = self._follower(index, there)
        self.leader = Leader(
            self.channels[0],
            self.links,
            self.cards,
            self.stops[0],
            self._noter(self.lost, 0),
            self._request,
            self._noter(self.unbegun, 0),
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
            lambda reason: self._leave_unbegun(index, reason, link),
        )

    def _leave_unbegun(self, index: int, reason: str, link: Link) -> None:
        self.unbegun[index] = reason
        link.close()

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
            trainer.join(LIMIT_S)
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


def test_hosts_that_have_begun_nothing_end_where_they_are(crew: Callable[..., Crew]) -> None:
    hosts = crew(0.001, 0.002, 0.001)
    hosts.followers[2].request_stop("asked with tpu-console stop")
    wait_until(lambda: len(hosts.unbegun) == 3, "the end")
    why = "asked with tpu-console stop, at host 2 (machine-2)"
    assert hosts.unbegun == dict.fromkeys(range(3), why)
    assert not hosts.lost
    assert not hosts.heard
    assert [trainer.done for trainer in hosts.trainers] == [0, 0, 0]


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
    failing.join(LIMIT_S)
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
    leaving.join(LIMIT_S)
    assert not leaving.is_alive()
    hosts.followers[1].close()
    hosts.leader.close()
    assert not hosts.lost
