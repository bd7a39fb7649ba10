"""Several hosts while they train: stopping after the same step, and watching over each other."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.accelerators.host_parts import Hall
from tests.helpers import LIMIT_S, all_of, small_config, the, wait_until
from tpu_console.engine.accelerators.hosts.agreed_stop import AgreedStop
from tpu_console.engine.accelerators.hosts.jax_service import Notes
from tpu_console.engine.accelerators.hosts.team import Team, Word
from tpu_console.engine.errors import DataError
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs.events import HostLost, HostSampled, Progress, RunFailed, RunFinished
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder

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

    def __init__(self, team: Team, steps: int, pause: threading.Event, pace_s: float) -> None:
        super().__init__(daemon=True)
        self.model = Model()
        team.attach(self.model)
        self.done = 0
        self._steps, self._pause, self._pace_s = steps, pause, pace_s

    def run(self) -> None:
        while self.done < self._steps and not self.model.stop_training:
            self.done = self.model.train_function(self.done, None)
            self._pause.wait(self._pace_s)


class WorkerPool:
    """Hosts over a real service, each with a trainer."""

    def __init__(self, folder: Path, paces: tuple[float, ...], steps: int = 10**6, silent_s: float = 30.0) -> None:
        self.hall = Hall()
        self.over = threading.Event()
        self.ends: dict[int, RunFailed | RunFinished] = {}
        self.channels: list[Recorder] = []
        self.teams: list[Team] = []
        names = {index: f"machine-{index}" for index in range(len(paces))}
        for index in names:
            run = prepare_run(small_config(name=f"host-{index}"), folder)
            self.channels.append(Recorder(run, JournalWriter(run.journal)))
            leave = partial(self.ends.setdefault, index)
            board = self.hall.board(index)
            self.teams.append(Team(self.channels[index], index, names, board, leave, silent_s, suspect_s=1.5))
        self.tokens = [recorder.stop_token for recorder in self.channels]
        self.trainers = [Trainer(team, steps, self.over, pace) for team, pace in zip(self.teams, paces, strict=True)]

    def start(self, *indices: int) -> None:
        """Have hosts watch over each other; by default all."""
        for index in indices or range(len(self.teams)):
            self.teams[index].start()

    def train(self) -> None:
        self.start()
        for trainer in self.trainers:
            trainer.start()

    def wait(self) -> list[int]:
        """Wait for the end of training; return the steps of each."""
        for trainer in self.trainers:
            trainer.join(LIMIT_S)
            assert not trainer.is_alive(), "training goes on"
        return [trainer.done for trainer in self.trainers]

    def reasons(self) -> list[str | None]:
        return [recorder.stop_token.reason for recorder in self.channels]

    def close(self) -> None:
        self.over.set()
        for team in self.teams:
            team.stop_watching()
        self.hall.close()
        for recorder in self.channels:
            recorder.journal.close()


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., WorkerPool]]:
    monkeypatch.setattr("tpu_console.engine.accelerators.hosts.team._LOOK_S", 0.1)
    made: list[WorkerPool] = []

    def make(*paces: float, **changes: Any) -> WorkerPool:
        made.append(WorkerPool(tmp_path / "runs", paces, **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_hosts_of_different_pace_stop_after_the_same_step(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.001, 0.002, 0.0005)
    hosts.train()
    wait_until(lambda: hosts.trainers[1].done >= 5, "training")
    hosts.tokens[0].request("asked by SIGTERM")
    assert len(set(hosts.wait())) == 1
    assert hosts.reasons() == ["asked by SIGTERM"] * 3
    assert not hosts.ends


def test_two_requests_are_one_stop_with_one_reason(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.001, 0.002)
    hosts.train()
    wait_until(lambda: hosts.trainers[1].done >= 5, "training")
    for token in hosts.tokens:
        token.request("asked by SIGTERM")
    assert len(set(hosts.wait())) == 1
    assert len(set(hosts.reasons())) == 1


def test_a_stop_at_another_host_stops_all_and_says_where(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.001, 0.002)
    hosts.train()
    wait_until(lambda: hosts.trainers[1].done >= 5, "training")
    hosts.tokens[1].request("asked by SIGTERM")
    assert len(set(hosts.wait())) == 1
    assert hosts.reasons() == ["asked by SIGTERM, at host 1 (machine-1)"] * 2


def test_a_host_that_starts_late_stops_after_the_same_step(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.001, 0.001)
    hosts.start()
    hosts.trainers[0].start()
    wait_until(lambda: hosts.trainers[0].done >= 20, "training")
    hosts.tokens[0].request("early")
    wait_until(lambda: hosts.trainers[0].model.stop_training, "host 0 stops")
    assert hosts.reasons() == ["early", None], "the other has not come that far"
    hosts.trainers[1].start()
    assert len(set(hosts.wait())) == 1
    assert hosts.reasons() == ["early", "early"]


def test_hosts_that_have_not_begun_a_step_end_without_one(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.001, 0.002, 0.001)
    hosts.start()
    hosts.tokens[2].request("asked with tpu-console stop")
    wait_until(lambda: len(hosts.ends) == 3, "the end")
    why = "asked with tpu-console stop, at host 2 (machine-2), before training began"
    assert hosts.ends == dict.fromkeys(range(3), RunFinished("stopped", why, {}))
    assert [trainer.done for trainer in hosts.trainers] == [0, 0, 0]


def test_a_stop_asked_for_before_the_hosts_were_joined_counts(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.001, 0.002)
    hosts.tokens[0].request("asked while connecting")
    hosts.start()
    wait_until(lambda: len(hosts.ends) == 2, "the end")


def test_a_stop_request_after_the_last_step_leaves_the_run_complete(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.0, 0.0, steps=30)
    hosts.train()
    assert hosts.wait() == [30, 30]
    hosts.tokens[0].request("too late")
    wait_until(lambda: all(team.is_agreed for team in hosts.teams), "asked")
    assert hosts.reasons() == [None, None]


def test_several_steps_per_execution_are_all_counted() -> None:
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
    for _ in range(2):  # fine-tuning compiles the model again
        model = Model()
        stop.attach(model)
        model.train_function(0, None)
    assert stop.hold() == 2


# Watching over each other.


def test_a_silent_host_is_named_at_every_other(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.0, 0.0, 0.0, silent_s=2.0)
    hosts.start(0, 2)  # host 1 never writes a word
    wait_until(lambda: len(hosts.ends) == 2, "all noticed")
    for index in (0, 2):
        end = hosts.ends[index]
        assert isinstance(end, RunFailed)
        assert end.what == "Host 1 (machine-1) is gone. The run cannot go on without it."
    lost = the(hosts.channels[0].run, HostLost)
    assert (lost.process, lost.host) == (1, "machine-1")


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_is_reported_to_the_other_hosts_with_its_cause(crew: Callable[..., WorkerPool], failing: int) -> None:
    hosts = crew(0.0, 0.0, 0.0)
    hosts.start()
    own = RunFailed("train.csv has no column 'label'", "", "", "console.log")
    hosts.teams[failing].fail(DataError(own.what), own)
    wait_until(lambda: len(hosts.ends) == 3, "told")
    assert hosts.ends.pop(failing) == own
    expected = f"Host {failing} (machine-{failing}) failed: {own.what}. The run cannot go on without it."
    assert [end.what for end in hosts.ends.values() if isinstance(end, RunFailed)] == [expected] * 2
    assert not all_of(hosts.channels[0].run, HostLost)


def test_a_failed_step_is_blamed_on_the_lost_host(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.0, 0.0, 0.0)
    hosts.start(0, 1)
    hosts.teams[0].fail(RuntimeError("Gloo: connection closed by peer"), RunFailed("Gloo", "", "", "console.log"))
    wait_until(lambda: len(hosts.ends) == 2, "noticed")
    expected = "Host 2 (machine-2) is gone. The run cannot go on without it."
    assert [end.what for end in hosts.ends.values() if isinstance(end, RunFailed)] == [expected] * 2


def test_a_host_s_figures_reach_host_0_and_its_progress_does_not(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.0, 0.0)
    hosts.start()
    sample = HostSampled(1, "machine-1", 1.0, 50.0, 10, 20, None, None, {"disk": "not told"})
    hosts.channels[1].emit(Progress(1, 1, 1, 0.1, {"loss": 1.0}))
    hosts.channels[1].emit(sample)
    wait_until(lambda: all_of(hosts.channels[0].run, HostSampled), "passed on")
    assert the(hosts.channels[0].run, HostSampled) == sample
    assert not all_of(hosts.channels[0].run, Progress)


def test_notes_of_a_stranger_are_ignored(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.0, 0.0)
    stranger = hosts.hall.board(7)
    end = '{"type": "RunFailed", "what": "x", "why": "", "remedy": "", "log": ""}'
    stranger.put("words/x", "[1")
    stranger.put("words/1", "[1")
    hosts.start(0)
    for figure in ("[1]", "1", '{"type": []}', end):
        Notes(stranger, "words", Word).write(1, Word(figures={"HostSampled": figure}))
        wait_until(lambda figure=figure: hosts.teams[0]._passed_on.get((1, "HostSampled")) == figure, figure)  # type: ignore[misc]
    hosts.start(1)
    hosts.tokens[1].request("asked")
    wait_until(lambda: len(hosts.ends) == 2, "the end")
    assert not all_of(hosts.channels[0].run, RunFailed)


def test_a_host_that_is_done_waits_for_host_0_to_take_leave(crew: Callable[..., WorkerPool]) -> None:
    hosts = crew(0.0, 0.0)
    hosts.start()
    leaving = threading.Thread(target=hosts.teams[1].finish, daemon=True)
    leaving.start()
    wait_until(lambda: "1" in hosts.hall.board(7).read("words"), "host 1 gives a sign of life")
    beat = hosts.hall.board(7).read("words")["1"]
    wait_until(lambda: hosts.hall.board(7).read("words")["1"] != beat, "host 1 still gives signs of life")
    assert leaving.is_alive(), "host 0 still saves"
    hosts.teams[0].finish()
    leaving.join(LIMIT_S)
    assert not leaving.is_alive()
    assert not hosts.ends
