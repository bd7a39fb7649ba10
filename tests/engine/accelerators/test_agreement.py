"""How hosts agree on a step: several teams in one process, with a dictionary as JAX's key-value store."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from tpu_console.engine.accelerators import hosts
from tpu_console.engine.accelerators.hosts import Team
from tpu_console.engine.runs.control import Request
from tpu_console.engine.runs.events import HostSampled, Steering
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import create_run

_MOST = 20_000  # executions of a host that never stops
TRACE = Request(Steering.PROFILE, "asked by a test", "3", "7")


class Store(dict[str, str]):
    """Stands for the client of JAX's coordination service."""

    def key_value_set(self, key: str, value: str, *, allow_overwrite: bool = False) -> None:
        if key in self and not allow_overwrite:
            raise RuntimeError(f"ALREADY_EXISTS: {key}")
        self[key] = value

    def key_value_dir_get(self, place: str) -> list[tuple[str, str]]:
        return [(key, value) for key, value in self.copy().items() if key.startswith(f"{place}/")]


class Host:
    """A host that trains; `look` is what its sampler does every second."""

    def __init__(self, folder: Path, index: int, executions: int, store: Store) -> None:
        run = create_run(f"host-{index}", folder)
        self.recorder, self.index, self.store = Recorder(run, JournalWriter(run.journal)), index, store
        self.team = Team(self.recorder, index, {0: "first", 1: "second", 2: "third"})
        self.model = SimpleNamespace(
            make_train_function=list, train_function=lambda *_: time.sleep(1e-3), stop_training=False
        )
        self.team.attach(self.model)
        for _ in range(executions):
            self.model.train_function(None, None)

    def look(self) -> None:
        self.recorder.emit(HostSampled(self.index, "here", 1.0, None, None, None, None))

    def stopped_after(self) -> int:
        """Train until it stops; return its executions."""
        while not self.model.stop_training and self.team.executions < _MOST:
            self.model.train_function(None, None)
        return self.team.executions


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Host]:
    """Three hosts, one of which is ahead."""
    store = Store()
    monkeypatch.setattr(hosts, "coordination_client", lambda: store)
    monkeypatch.setattr(hosts, "_LOOK_S", 0.001)
    return [Host(tmp_path, index, executions, store) for index, executions in enumerate((3, 5, 4))]


def look(several: list[Host]) -> None:
    """Let hosts look until they have settled another request."""
    store = several[0].store
    settled = f"tpu-console/requests/{sum(key.endswith('/at') for key in store)}/at"

    def settle(host: Host) -> None:
        while settled not in store:
            host.look()
        host.look()  # it may not have read that itself

    with ThreadPoolExecutor(len(several)) as pool:
        list(pool.map(settle, several))


def test_all_stop_after_the_next_execution_that_none_has_reached(three: list[Host]) -> None:
    for host in three[1:]:
        host.recorder.control.stop(f"asked by {host.index}")
    assert [host.recorder.control.reason for host in three] == [None] * 3
    look(three)
    assert [host.stopped_after() for host in three] == [6, 6, 6]
    reasons = {host.recorder.control.reason for host in three}
    assert reasons in ({"asked by 1, at host 1 (second)"}, {"asked by 2, at host 2 (third)"})


def test_no_host_goes_past_the_execution_while_they_agree(three: list[Host]) -> None:
    three[0].recorder.control.stop("asked by a test")
    with ThreadPoolExecutor(len(three)) as pool:
        training = [pool.submit(host.stopped_after) for host in three]
        look(three)
        (end,) = {one.result() for one in training}
    assert end < _MOST


def test_a_host_that_is_late_prevents_a_trace_and_a_stop_is_agreed_on_again(
    three: list[Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    *prompt, late = three
    with monkeypatch.context() as patch:
        patch.setattr(hosts, "_AGREE_S", 0.05)
        prompt[0].team.ask_for_trace(TRACE)
        look(prompt)
        prompt[1].recorder.control.stop("asked by a test")
        look(prompt)
    for host in prompt:
        request, refused = host.team.trace_now()
        assert (request, "did not answer" in refused) == (TRACE, True)
        assert host.team.trace_now() == (None, "")
    look([late, *prompt])
    assert [host.stopped_after() for host in three] == [6, 6, 6]


def test_the_hosts_agree_on_one_trace_after_the_other(three: list[Host]) -> None:
    for number, at in ((1, 6), (2, 7)):
        three[number].team.ask_for_trace(TRACE)
        for agree in (look, list):
            with pytest.raises(RuntimeError, match="about to trace"):
                three[0].team.ask_for_trace(TRACE)
            agree(three)
        for host in three:
            while host.team.executions < at:
                assert host.team.trace_now() == (None, "")
                host.model.train_function(None, None)
            assert host.team.trace_now() == (TRACE, "")
