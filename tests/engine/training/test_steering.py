"""Steering in the training thread; `tests/tui/commands/test_steering.py` does it from the command line."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.engine.jobs.predicting import train
from tests.forks import Forked
from tests.helpers import LIMIT_S, Host, all_of, fork_host, has, small_config, the, wait_until
from tpu_console.engine.process.launch import prepare_resumption, prepare_run
from tpu_console.engine.process.main import EngineThread
from tpu_console.engine.runs import events
from tpu_console.engine.runs.control import Control, Request, ask
from tpu_console.engine.runs.events import EpochEnded, RunFinished, Steered, Steering
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = pytest.mark.slow

ENDLESS = """
import numpy as np
import tensorflow as tf

def data():
    x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
    rows = tf.data.Dataset.from_tensor_slices((x, np.arange(64) % 3))
    return rows, rows.repeat(10**9)
"""

SEVERAL = """
import keras

def build(shape, classes):
    model = keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")])
    model.compile(keras.optimizers.SGD(0.02), "sparse_categorical_crossentropy")
    model.other = keras.optimizers.Adam(0.1)
    return model
"""


def asked(*requests: tuple[Steering, str], folder: Path, **changes: Any) -> RunDirectory:
    """A run that found requests when it began to train."""
    control = Control()
    for number, (action, value) in enumerate(requests):
        control.ask(Request(action, "asked by a test", value, str(number)))
    return train(small_config(**changes), folder, control)


def end(process: Forked | subprocess.Popen[bytes]) -> None:
    try:
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()


def test_a_stop_is_heard_in_a_validation_that_would_take_years(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ENDLESS, encoding="utf-8")
    config = small_config(dataset=f"{tmp_path}/mine.py:data", model_options={"hidden": [4]}, epochs=3)
    run = prepare_run(config, tmp_path / "runs")
    thread = EngineThread(run, config, JournalWriter(run.journal), source=events.RunSource.IN_PROCESS)
    thread.start()
    wait_until(lambda: "validating" in [event.phase for event in all_of(run, events.PhaseStarted)], "validation")
    thread.control.stop("asked by a test")
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    # A part of a validation says nothing about the epoch.
    assert set(the(run, EpochEnded).logs) == {"loss", "accuracy"}
    assert the(run, events.StopRequested).reason == "asked by a test"
    assert (the(run, RunFinished).outcome, run.model.exists(), run.report.exists()) == ("stopped", True, False)


def test_impossible_requests_are_refused_in_one_sentence(tmp_path: Path) -> None:
    run = asked(
        (Steering.LEARNING_RATE, "0.1"),
        (Steering.LEARNING_RATE, "nan"),
        (Steering.EPOCHS, "9" * 30),
        (Steering.CONTINUE, ""),
        (Steering.EPOCHS, "2"),
        folder=tmp_path,
        epochs=5,
        optimizer={"learning_rate": 0.01, "schedule": "cosine"},
    )
    *refused, obeyed = (event.refused for event in all_of(run, Steered))
    for sentence, of in zip(refused, ("schedule", "'nan'", f"{int('9' * 30):,} epochs", "not paused"), strict=True):
        assert of in sentence
    assert obeyed == ""
    # Three epochs fewer: not a stop, but all epochs that were asked for.
    assert len(all_of(run, EpochEnded)) == 2
    assert the(run, RunFinished).outcome == "completed"


def test_a_checkpoint_that_is_asked_for_too_early_is_written_after_the_first_execution(tmp_path: Path) -> None:
    run = asked((Steering.CHECKPOINT, ""), folder=tmp_path, epochs=2, batch_size=1024)  # a step each
    answer, (first, _) = the(run, Steered), all_of(run, EpochEnded)
    assert (answer.refused, answer.step) == ("", first.step)


def test_a_paused_run_refuses_what_it_cannot_save_instead_of_waiting(tmp_path: Path) -> None:
    requests = (Steering.PAUSE, ""), (Steering.CHECKPOINT, ""), (Steering.CONTINUE, "")
    run = asked(*requests, folder=tmp_path, epochs=1, batch_size=1024)
    assert [answer.refused for answer in all_of(run, Steered)] == ["", "no step has been done yet", ""]


def test_the_learning_rate_of_one_among_several_optimizers_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "several.py").write_text(SEVERAL, encoding="utf-8")
    model = f"{tmp_path}/several.py:build"
    run = asked((Steering.LEARNING_RATE, "0.1"), folder=tmp_path, model=model, model_options={}, epochs=1)
    assert "(optimizer, other)" in the(run, Steered).refused
    assert the(run, EpochEnded).learning_rate == pytest.approx(0.02)


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_new_learning_rate_and_new_epochs_work_on_replicas(tmp_path: Path, backend: str) -> None:
    config = small_config(epochs=1, accelerator="sim:2", backend=backend, batch_size=64)
    host = Host(config, tmp_path, start=False)
    ask(host.run, Steering.LEARNING_RATE, "asked by a test", "0.02")
    ask(host.run, Steering.EPOCHS, "asked by a test", "+1")
    end(fork_host(host.run))
    done = [(event.action, event.before, event.after, event.refused) for event in all_of(host.run, Steered)]
    assert done == [("learning_rate", pytest.approx(0.001), pytest.approx(0.02), ""), ("epochs", 1.0, 2.0, "")]
    # On JAX this value comes back from the compiled step, so the step has used it.
    assert [event.learning_rate for event in all_of(host.run, EpochEnded)] == pytest.approx([0.02, 0.02])
    steps = [event.step for event in all_of(host.run, events.Progress)]
    assert steps == sorted(set(steps))
    assert has(host.run, RunFinished)


@pytest.mark.usefixtures("resumed_in_forks")
def test_a_resumed_run_has_the_epochs_that_were_added_and_forgets_old_requests(tmp_path: Path) -> None:
    run = prepare_run(small_config(epochs=2), tmp_path / "runs")
    journal = JournalWriter(run.journal)
    journal.write(events.FitStarted(2, 44, 32, 32, 1))
    for after, refused in ((5.0, ""), (9.0, "no")):
        journal.write(Steered(Steering.EPOCHS, "asked", 1, 3, 0.1, 2.0, after, refused))
    journal.close()
    ask(run, Steering.END_NOW, "asked of the process that is gone")
    resumption = prepare_resumption(run)
    assert (resumption.config.epochs, resumption.changes) == (5, ("epochs: 2 → 5",))
    end(resumption.start())
    assert [event.epoch for event in all_of(run, EpochEnded)] == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("resumed_in_forks")
def test_the_schedule_of_the_learning_rate_stays_when_epochs_are_added_and_follows_those_asked_for_on_resuming(
    tmp_path: Path,
) -> None:
    config = small_config(epochs=2, optimizer={"schedule": "cosine(final_fraction=0.1)", "learning_rate": 0.01})
    host = Host(config, tmp_path, start=False)
    ask(host.run, Steering.EPOCHS, "asked by a test", "+2")
    ask(host.run, Steering.STOP_AFTER_EPOCH, "asked by a test")
    end(fork_host(host.run))
    assert resumed_rates(host.run)[2:] == pytest.approx([0.001, 0.001])  # it was made for two epochs
    # And now for six.
    fifth, last = resumed_rates(host.run, ("epochs", 6))[4:]
    assert 0.001 < fifth < 0.01
    assert last == pytest.approx(0.001)


def resumed_rates(run: RunDirectory, *changes: tuple[str, int]) -> list[float]:
    """Resume a run to its end, and return the learning rate of each of its epochs."""
    end(prepare_resumption(run, changes).start())
    return [event.learning_rate or 0.0 for event in RunFollower(run).catch_up().state.epochs]
