"""`BridgeCallback` in a script of anyone's own: a run appears, is watched, stopped, and ends whatever happens."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import ROOT, all_of, events_of, has, private_mode, the, wait_until
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import (
    EpochEnded,
    FitStarted,
    PhaseStarted,
    Progress,
    RunFailed,
    RunFinished,
    RunStarted,
    Steering,
    StopRequested,
)
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of
from tpu_console.engine.runs.run_directory import list_runs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
import keras
import numpy as np
from tpu_console import BridgeCallback

x, y = np.random.default_rng(1).normal(size=(64, 4)).astype("float32"), np.arange(64) % 3

class Vector(keras.metrics.Metric):
    def update_state(self, *args, **kwargs): pass
    def result(self): return keras.ops.ones((3,))

def model(**options):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
    options = {"metrics": ["accuracy"], "jit_compile": False, **options}
    made.compile("adam", "sparse_categorical_crossentropy", **options)
    return made

class Breaks(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1: raise RuntimeError("in the middle")

twice = BridgeCallback("twice")
model().fit(x, y, batch_size=8, epochs=2, validation_split=0.25, callbacks=[twice], verbose=0)
model().fit(x, y, batch_size=8, epochs=3, callbacks=[twice], verbose=0)

fitted = model(metrics=["accuracy", Vector()], jit_compile="auto")
history = fitted.fit(x, y, batch_size=8, epochs=1, callbacks=[BridgeCallback("vector")], verbose=0)

try:
    model().fit(x, y, epochs=5, callbacks=[BridgeCallback("broken"), Breaks()], verbose=0)
except RuntimeError as error:
    print("caught", error, flush=True)

def forever():
    while True: yield x, y

model().fit(forever(), steps_per_epoch=10**7, epochs=9, callbacks=[BridgeCallback("endless")], verbose=0)
print("stopped", flush=True)
input()
model().fit(x, y, batch_size=8, epochs=10**6, callbacks=[BridgeCallback("killed")], verbose=0)
"""


class Script:
    """The script in a process of its own, and the runs it makes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            cwd=ROOT,
            env=os.environ | {"TPU_CONSOLE_HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def runs(self, label: str) -> list[RunDirectory]:
        """The runs of a label, the oldest first."""
        return [
            run for run in list_runs(self.home / "runs")[::-1] if f"-{label}" in run.run_id and has(run, RunStarted)
        ]

    def run(self, label: str) -> RunDirectory:
        """The only run of a label, as soon as it trains."""
        wait_until(lambda: self.runs(label) and has(self.runs(label)[0], Progress), f"the run {label}")
        (run,) = self.runs(label)
        return run

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Script]:
    script = Script(tmp_path_factory.mktemp("notebook"))
    yield script
    script.process.kill()
    script.process.communicate()


def test_every_fit_of_one_callback_is_a_separate_run(script: Script) -> None:
    wait_until(lambda: len(script.runs("twice")) == 2 and has(script.runs("twice")[1], RunFinished), "two runs")
    first, second = script.runs("twice")
    assert [event.epoch for event in all_of(first, EpochEnded)] == [1, 2]
    assert [event.epoch for event in all_of(second, EpochEnded)] == [1, 2, 3]
    for run, epochs, steps in ((first, 2, 6), (second, 3, 8)):
        events = events_of(run)
        started = events[0]
        assert isinstance(started, RunStarted)
        assert (started.label, started.source, started.pid) == ("twice", "notebook", script.process.pid)
        fit = the(run, FitStarted)
        assert (fit.epochs, fit.steps_per_epoch, fit.global_batch) == (epochs, steps, None)
        end = events[-1]
        assert isinstance(end, RunFinished)
        assert (end.outcome, end.reason) == ("completed", "fit returned")
        assert end.summary["final"]["loss"] == pytest.approx(all_of(run, EpochEnded)[-1].logs["loss"])
        assert private_mode(run.path) == 0o700
        assert private_mode(run.journal) == 0o600
    told = [event.phase for event in all_of(first, PhaseStarted)]
    assert told[:3] == ["compiling", "training", "validating"]
    assert "val_loss" in all_of(first, EpochEnded)[0].logs
    assert "val_loss" not in all_of(second, EpochEnded)[0].logs


def test_a_metric_that_is_no_single_number_is_left_out_and_harms_nothing(script: Script) -> None:
    wait_until(lambda: script.runs("vector") and has(script.runs("vector")[0], RunFinished), "the run")
    (run,) = script.runs("vector")
    logs: dict[str, Any] = the(run, EpochEnded).logs
    assert logs.keys() == {"loss", "accuracy"}
    assert all(math.isfinite(value) for value in logs.values())


def test_a_fit_that_is_left_by_an_exception_fails_its_run_and_raises_as_ever(script: Script) -> None:
    assert script.line() == "caught in the middle\n"
    (run,) = script.runs("broken")
    wait_until(lambda: has(run, RunFailed), "the end")
    failed = the(run, RunFailed)
    assert "last epoch" in failed.what
    assert events_of(run)[-1] == failed
    assert len(all_of(run, EpochEnded)) == 2


def test_a_request_from_a_console_stops_fit(script: Script) -> None:
    run = script.run("endless")
    assert liveness_of(run) is Liveness.ALIVE
    ask(run, Steering.STOP, "asked from the console")
    assert script.line() == "stopped\n"
    assert the(run, StopRequested)
    end = the(run, RunFinished)
    assert (end.outcome, end.reason) == ("stopped", "asked from the console")
    assert list(run.control.iterdir()) == []


def test_a_killed_notebook_is_seen_to_be_dead(script: Script) -> None:
    assert script.process.stdin is not None
    script.process.stdin.write("\n")
    script.process.stdin.flush()
    run = script.run("killed")
    assert liveness_of(run) is Liveness.ALIVE
    script.process.kill()
    wait_until(lambda: liveness_of(run) is Liveness.DEAD, "its death")
    assert not has(run, RunFinished)
