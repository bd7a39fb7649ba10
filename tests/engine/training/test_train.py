"""The engine's thread on real models in this process: outcomes, precisions, and everything that goes wrong."""

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import pytest

from tests.helpers import LIMIT_S, Host, all_of, checkpoint_of, events_of, has, report_of, small_config, the
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.process.main import EngineThread
from tpu_console.engine.runs import events
from tpu_console.engine.runs.events import CheckpointSaved, EpochEnded, Noticed, RunFailed, RunFinished, RunResumed
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.training.outputs import epoch_end_callbacks

Train = Callable[..., RunDirectory]

MINE = """
import keras
import numpy as np
import tensorflow as tf

def dense(shape, classes, units=4):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")])

def leaves(shape, classes):
    raise SystemExit("no model today")

def too_narrow(shape, classes):
    return dense(shape, classes - 3)

def raises_while_training(shape, classes):
    class Fussy(keras.layers.Layer):
        def call(self, x):
            raise ValueError("not this shape")  # the very line
    model = dense(shape, classes)
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), Fussy(), keras.layers.Dense(classes)])

class Fails(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        assert epoch < 1, "the second epoch fails"

def rows(count=64, width=4, classes=3):
    x = np.random.default_rng(1).normal(size=(count, width)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, np.arange(count) % classes))

def data(**options):
    return rows(**options), rows(16)

def training_only():
    return rows()

def empty():
    return rows().filter(lambda x, y: False), None

def breaks():
    def read():
        yield np.zeros(4, "float32"), 0
        raise OSError("the cable is out")
    signature = (tf.TensorSpec((4,), tf.float32), tf.TensorSpec((), tf.int32))
    return tf.data.Dataset.from_generator(read, output_signature=signature), None
"""


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Train]:
    """Train a small configuration in the engine's thread, and return the run when it has ended."""
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def run(before: Callable[[RunDirectory], object] = lambda _: None, **changes: Any) -> RunDirectory:
        config = small_config(**changes)
        directory = prepare_run(config, tmp_path / "runs")
        journal = JournalWriter(directory.journal)
        thread = EngineThread(directory, config, journal, source=events.RunSource.IN_PROCESS)
        before(directory)
        thread.start()
        thread.join(2 * LIMIT_S)
        assert not thread.is_alive()
        assert thread.succeeded == has(directory, RunFinished)
        assert isinstance(events_of(directory)[-1], RunFinished | RunFailed)
        return directory

    yield run
    keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="module", autouse=True)
def too_large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A run without enough memory, from the first test on: TensorFlow waits ten seconds for memory to come free."""
    host = Host(small_config(model_options={"hidden": [16, 1 << 44]}), tmp_path_factory.mktemp("large"), forked=True)
    yield host
    host.kill()


def failure(run: RunDirectory) -> RunFailed:
    """The failure of a run; its sentence is one line, and the details are in the log."""
    failed = the(run, RunFailed)
    assert "\n" not in failed.what
    log = run.log.read_text(encoding="utf-8")
    assert "Traceback" in log or f"Error: {failed.what}" in log
    assert failed.log == "console.log"
    return failed


# Runs with the same seed are compared in test_resume.py.
def test_a_run_in_process_trains_with_its_seed_and_reports_through_its_run(train: Train) -> None:
    first, other = (train(seed=seed, batch_size=64) for seed in (4, 5))
    assert the(first, EpochEnded).logs["loss"] != pytest.approx(the(other, EpochEnded).logs["loss"], rel=1e-2)
    assert the(first, events.RunStarted).source == "in-process"
    assert the(first, RunFinished).outcome == "completed"
    assert keras.models.load_model(first.model).count_params() == the(first, events.ModelBuilt).parameters


@pytest.mark.parametrize(("precision", "steps"), [("mixed_bfloat16", 1), ("mixed_float16", "auto")])
def test_every_precision_learns(train: Train, precision: str, steps: int | str) -> None:
    hidden, rate = {"hidden": [32]}, {"learning_rate": 0.01}
    run = train(precision=precision, epochs=3, steps_per_execution=steps, model_options=hidden, optimizer=rate)
    logs = [epoch.logs for epoch in all_of(run, EpochEnded)]
    assert logs[-1]["val_accuracy"] > 0.8
    assert all(math.isfinite(value) for log in logs for value in log.values())
    model = keras.models.load_model(run.model)
    assert model.layers[1].dtype_policy.name == precision
    assert model.layers[-1].compute_dtype == "float32"


def test_early_stopping_ends_the_run_and_puts_the_best_weights_back(train: Train) -> None:
    run = train(epochs=50, optimizer={"learning_rate": 3.0}, early_stopping={"patience": 2}, batch_size=64)
    epochs = all_of(run, EpochEnded)
    end = the(run, RunFinished)
    assert end.outcome == "early"
    assert {"val_loss", "2"} <= {*end.reason.split()}
    assert len(epochs) < 50
    best = min(epochs, key=lambda epoch: epoch.logs["val_loss"])
    assert best.epoch == len(epochs) - 2
    report = report_of(run)
    assert (report.epoch, report.is_best, report.is_last) == (best.epoch, True, False)


def test_validation_every_second_epoch_is_measured_only_then(train: Train) -> None:
    run = train(epochs=4, validation_freq=2)
    assert ["val_loss" in epoch.logs for epoch in all_of(run, EpochEnded)] == [False, True, False, True]
    assert [epoch.validation_s > 0 for epoch in all_of(run, EpochEnded)] == [False, True, False, True]


def test_a_loss_that_becomes_nan_stops_the_run_if_configured(train: Train) -> None:
    run = train(epochs=2, optimizer={"name": "sgd", "learning_rate": 1e30}, alerts={"nan": "stop"})
    alert, end = the(run, events.Alerted), the(run, RunFinished)
    assert (alert.kind, alert.epoch, alert.stops) == ("nan", 1, True)
    assert re.search(r"\b(NaN|infinite) in epoch 1\.", alert.text)
    assert math.isnan(the(run, EpochEnded).logs["loss"])
    assert end.outcome == "stopped"
    assert "NaN" in end.reason
    json.loads(run.summary.read_text(encoding="utf-8"), parse_constant=pytest.fail)


def test_a_loss_that_becomes_nan_takes_the_run_back_to_a_checkpoint_with_a_lower_rate(train: Train) -> None:
    steep = {"name": "sgd", "learning_rate": 1e6}
    run = train(epochs=2, model_options={"hidden": [8, 8, 8]}, optimizer=steep, alerts={"nan": "rollback"})
    backs = all_of(run, RunResumed)
    assert 1 <= len(backs) <= 3
    rates = [event.config["optimizer"]["learning_rate"] for event in backs]
    assert rates == pytest.approx([1e6 / 4**number for number in range(1, len(backs) + 1)])
    assert backs[0].why.endswith("learning rate 1e+06 → 2.5e+05")
    state = RunFollower(run).catch_up().state
    assert [(epoch.epoch, epoch.step) for epoch in state.epochs] == [(1, 44), (2, 88)]
    assert all(math.isfinite(epoch.logs["loss"]) for epoch in state.epochs)
    assert (state.train.step.values[1:] > state.train.step.values[:-1]).all()
    assert state.epochs[0].learning_rate == pytest.approx(rates[-1])
    assert load_config(run.config).optimizer.learning_rate == rates[-1]
    assert the(run, RunFinished).outcome == "completed"


def test_a_run_whose_loss_stays_nan_goes_back_three_times(train: Train) -> None:
    run = train(epochs=2, optimizer={"name": "sgd", "learning_rate": 1e30}, alerts={"nan": "rollback"})
    assert len(all_of(run, RunResumed)) == 3
    ended = the(run, RunFinished)
    assert (ended.outcome, "3 times" in ended.reason) == ("stopped", True)


def test_files_without_room_are_noticed_and_training_goes_on(train: Train) -> None:
    def spoil(run: RunDirectory) -> None:
        run.checkpoints.touch()
        run.tensorboard.touch()

    run = train(spoil, epochs=2, checkpoint={"monitor": "auto"}, sinks=["tensorboard"])
    notices = [event.message for event in all_of(run, Noticed)]
    assert any("(epoch 1)" in message for message in notices)
    assert [message.startswith("TensorBoard files ") for message in notices].count(True) == 1
    assert not all_of(run, CheckpointSaved)
    assert the(run, RunFinished).outcome == "completed"
    assert run.model.is_file()


def test_a_model_that_cannot_be_saved_fails_the_run_and_loses_no_epoch(train: Train) -> None:
    run = train(lambda run: run.model.mkdir())
    assert "model.keras" in failure(run).what
    assert len(all_of(run, EpochEnded)) == 1


@pytest.mark.parametrize(
    ("changes", "what", "why"),
    [
        ({"model": "mine.py:leaves", "model_options": {}}, "raised SystemExit", "raise SystemExit"),
        ({"model": "mine.py:raises_while_training", "model_options": {}}, "not this shape", "# the very line"),
        ({"model": "mine.py:too_narrow", "model_options": {}}, "to 9, and the model gives 7", ""),
        ({"batch_size": 2000}, "2,000 (2,000 × 1)", ""),
        ({"model": "cnn", "model_options": {"filters": [4, 4, 4, 4]}}, "(8, 8, 1)", ""),
        ({"data": {"validation_fraction": 0.001}}, "data.validation_fraction=0.001", ""),
        ({"dataset": "mine.py:breaks", "batch_size": 4, "steps_per_epoch": 4}, "the cable is out", ""),
        ({"dataset": "mine.py:empty", "batch_size": 4, "steps_per_epoch": 4}, "without examples", ""),
        (
            {"dataset": "mine.py:training_only", "batch_size": 8, "early_stopping": {"patience": 1}},
            "early_stopping.monitor is val_loss",
            "",
        ),
    ],
)
def test_what_cannot_be_trained_is_explained_with_its_line(
    train: Train, changes: dict[str, Any], what: str, why: str
) -> None:
    run = train(**changes)
    failed = failure(run)
    assert what in failed.what
    assert why in failed.why
    assert not all_of(run, EpochEnded)


@pytest.mark.slow
def test_too_little_memory_is_explained(too_large: Host) -> None:
    assert too_large.wait() == 1
    failed = failure(too_large.run)
    assert "out of memory" in failed.what
    assert "batch_size" in failed.remedy


def test_a_callback_that_raises_fails_the_run_after_its_checkpoint(train: Train) -> None:
    run = train(epochs=2, callbacks=["mine.py:Fails"])
    assert "second epoch" in failure(run).what
    assert checkpoint_of(run)[1].epoch == 1


def test_a_dataset_without_validation_trains_and_watches_the_training_metric(train: Train) -> None:
    run = train(dataset="mine.py:training_only", batch_size=8, checkpoint={"monitor": "auto"})
    assert the(run, events.FitStarted).monitor == the(run, CheckpointSaved).monitor == "accuracy"
    assert "validating" not in [event.phase for event in all_of(run, events.PhaseStarted)]


def test_without_tensorboard_a_notice_replaces_its_files(recorder: Recorder) -> None:
    config = small_config(sinks=["tensorboard"])
    assert epoch_end_callbacks(recorder, config, "loss", {}, has_tensorboard=False) == []
    assert "install tensorboard" in the(recorder.run, Noticed).message


def test_a_recorder_reports_a_phase_and_a_stop_once(recorder: Recorder) -> None:
    phases = [("training", ""), ("loading data", "one"), ("loading data", "two")]
    for phase, detail in (phases[0], *phases):
        recorder.enter(events.Phase(phase), detail)
    assert not recorder.should_stop()
    recorder.control.stop("enough")
    assert [recorder.should_stop(), recorder.should_stop()] == [True, True]
    told = [events.PhaseStarted(phase, detail) for phase, detail in phases]
    assert events_of(recorder.run) == [*told, events.StopRequested("enough")]
