"""The engine's thread on real models in this process: outcomes, precisions, and everything that goes wrong."""

from __future__ import annotations

import json
import math
import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest

from tests.helpers import LIMIT_S, Host, all_of, events_of, has, small_config, the, wait_until
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.models.compile import make_optimizer
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.process.thread import EngineThread
from tpu_console.engine.runs.class_report import read_report
from tpu_console.engine.runs.control import Control
from tpu_console.engine.runs.events import (
    Alerted,
    CheckpointSaved,
    EpochEnded,
    FitStarted,
    ModelBuilt,
    Noticed,
    Phase,
    PhaseStarted,
    Progress,
    RunFailed,
    RunFinished,
    RunResumed,
    RunSource,
    RunStarted,
    StopRequested,
)
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.storage.files import plain_name
from tpu_console.engine.training.fitting import epoch_end_callbacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpu_console.engine.runs.run_directory import RunDirectory

    Train = Callable[..., RunDirectory]

STEPS = 11
"""Steps of an epoch, where an optimizer is used without a run."""

MINE = """
import keras
import numpy as np
import tensorflow as tf

def dense(shape, classes, units=4):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")])

def not_a_model(shape, classes):
    return "a model"

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

def rows(count=64, width=4, classes=3):
    x = np.random.default_rng(1).normal(size=(count, width)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, np.arange(count) % classes))

def data(**options):
    return rows(**options), rows(16)

def training_only():
    return rows()

def three():
    return np.zeros((8, 4)), np.zeros(4)

def text():
    return "rows.csv"

def empty():
    return rows().filter(lambda x, y: False), None

def one_hot():
    return rows().map(lambda x, y: (x, tf.one_hot(y, 3))), None

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
        thread, directory = engine(tmp_path, **changes)
        before(directory)
        thread.start()
        thread.join(2 * LIMIT_S)
        assert not thread.is_alive()
        assert thread.succeeded == has(directory, RunFinished)
        assert isinstance(events_of(directory)[-1], RunFinished | RunFailed)
        return directory

    yield run
    keras.config.set_dtype_policy("float32")


def engine(folder: Path, **changes: Any) -> tuple[EngineThread, RunDirectory]:
    """A thread that is ready to train, and its run."""
    config = small_config(**changes)
    run = prepare_run(config, folder / "runs")
    return EngineThread(run, config, JournalWriter(run.journal), source=RunSource.IN_PROCESS), run


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


def test_the_thread_trains_and_reports_through_its_run(train: Train) -> None:
    run = train(epochs=3)
    assert the(run, RunStarted).source == "in-process"
    assert [event.epoch for event in all_of(run, EpochEnded)] == [1, 2, 3]
    end = the(run, RunFinished)
    assert end.outcome == "completed"
    assert keras.models.load_model(run.model).count_params() == the(run, ModelBuilt).parameters


def test_nothing_waits_for_the_disk_before_the_first_step(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync
    early: dict[str, set[str]] = {}  # by thread
    late: set[str] = set()

    def record(descriptor: int) -> None:
        has_begun = any(b'"FitStarted"' in path.read_bytes() for path in tmp_path.glob("runs/*/events.jsonl"))
        names = late if has_begun else early.setdefault(threading.current_thread().name, set())
        names.add(plain_name(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    train(model="mine.py:dense", dataset="mine.py:data", model_options={})
    assert set(early) <= {"tpu-console-sync"}
    wait_until(lambda: {"config.toml", "inputs.json"} <= late.union(*list(early.values())))
    assert {"model.keras", "summary.json", "events.jsonl"} <= late


def test_a_stop_from_outside_ends_the_thread_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    thread, run = engine(tmp_path, batch_size=1, steps_per_epoch=200_000, epochs=9)
    thread.start()
    wait_until(lambda: has(run, Progress), "training")
    thread.control.stop("asked by a test")
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert thread.succeeded
    assert the(run, StopRequested).reason == "asked by a test"
    assert the(run, RunFinished).outcome == "stopped"


def test_the_same_seed_trains_the_same_and_another_does_not(train: Train) -> None:
    changes = {"epochs": 2, "model_options": {"hidden": [8], "dropout": 0.3}, "batch_size": 64}
    first, again, other = (train(seed=seed, **changes) for seed in (4, 4, 5))
    losses = [[epoch.logs["loss"] for epoch in all_of(run, EpochEnded)] for run in (first, again, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0] != pytest.approx(losses[2], rel=1e-2)


def test_timing_the_steps_changes_nothing_about_the_training(train: Train) -> None:
    changes = {"batch_size": 16, "model": "cnn", "model_options": {"filters": [4], "batch_norm": True, "dropout": 0.3}}
    one, auto = (train(steps_per_execution=steps, **changes) for steps in (1, "auto"))
    assert the(one, FitStarted).steps_per_execution == 1
    assert the(auto, FitStarted).steps_per_execution == 89
    for name in ("loss", "val_loss"):
        # Several steps in one graph are fused otherwise than one: float32's rounding over 89 steps.
        assert the(auto, EpochEnded).logs[name] == pytest.approx(the(one, EpochEnded).logs[name], rel=1e-3)


# float32 is in the tests above.
@pytest.mark.parametrize(("precision", "steps"), [("mixed_bfloat16", 1), ("mixed_float16", "auto")])
def test_every_precision_learns(train: Train, precision: str, steps: int | str) -> None:
    hidden = {"hidden": [32]}
    run = train(precision=precision, epochs=6, steps_per_execution=steps, batch_size=16, model_options=hidden)
    logs = [epoch.logs for epoch in all_of(run, EpochEnded)]
    assert logs[-1]["val_accuracy"] > 0.8
    assert all(math.isfinite(value) for log in logs for value in log.values())
    model = keras.models.load_model(run.model)
    assert model.layers[1].dtype_policy.name == precision
    assert model.layers[-1].compute_dtype == "float32"


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "rmsprop", "adagrad", "adamax", "nadam", "lion"])
def test_every_optimizer_trains_with_all_its_settings(optimizer: str) -> None:
    settings = {"name": f"{optimizer}(clipnorm=1.0)", "weight_decay": 1e-4, "warmup_epochs": 0.5}
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])
    made = make_optimizer(small_config(optimizer=settings, epochs=2), 1, STEPS)
    model.compile(made, "mse", run_eagerly=True)  # so few steps are not worth a graph
    x = np.random.default_rng(1).normal(size=(8 * STEPS, 4)).astype("float32")
    rates = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(rate=float(made.learning_rate)))
    history = model.fit(x, x[:, 0], batch_size=8, epochs=2, verbose=0, callbacks=[rates]).history
    assert history["loss"][1] < history["loss"][0]
    assert history["rate"] == pytest.approx([1e-3, 1e-3])


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({"schedule": "constant"}, [1.0, 1.0]),
        ({"schedule": "linear(final_fraction=0.5)"}, [0.75, 0.5]),
        ({"schedule": "exponential(final_fraction=0.25)"}, [0.5, 0.25]),
        ({"schedule": "cosine(final_fraction=0.1)"}, [0.55, 0.1]),
        ({"schedule": "cosine(final_fraction=0.1)", "warmup_epochs": 1.0}, [1.0, 0.1]),
        ({"schedule": "constant", "warmup_epochs": 1.0}, [1.0, 1.0]),
    ],
)
def test_the_learning_rate_follows_its_schedule(settings: dict[str, Any], rates: list[float]) -> None:
    made = make_optimizer(small_config(optimizer={"learning_rate": 0.01, **settings}, epochs=2), 1, STEPS)
    found = []
    for epoch in (1, 2):
        made.iterations.assign(epoch * STEPS)
        found.append(float(made.learning_rate))
    assert found == pytest.approx([rate * 0.01 for rate in rates])


def test_a_run_tells_the_learning_rate_of_its_schedule(train: Train) -> None:
    schedule = {"learning_rate": 0.01, "schedule": "cosine(final_fraction=0.1)", "warmup_epochs": 1.0}
    run = train(optimizer=schedule, epochs=2, batch_size=128)
    assert [epoch.learning_rate for epoch in all_of(run, EpochEnded)] == pytest.approx([0.01, 0.001])


def test_early_stopping_ends_the_run_and_puts_the_best_weights_back(train: Train) -> None:
    run = train(epochs=50, optimizer={"learning_rate": 3.0}, early_stopping={"patience": 2}, batch_size=64)
    epochs = all_of(run, EpochEnded)
    end = the(run, RunFinished)
    assert end.outcome == "early"
    assert {"val_loss", "2"} <= {*end.reason.split()}
    assert len(epochs) < 50
    best = min(epochs, key=lambda epoch: epoch.logs["val_loss"])
    assert best.epoch == len(epochs) - 2
    report = read_report(run)
    assert report is not None
    assert (report.epoch, report.is_best, report.is_last) == (best.epoch, True, False)


def test_validation_every_second_epoch_is_measured_only_then(train: Train) -> None:
    run = train(epochs=4, validation_freq=2)
    assert ["val_loss" in epoch.logs for epoch in all_of(run, EpochEnded)] == [False, True, False, True]
    assert [epoch.validation_s > 0 for epoch in all_of(run, EpochEnded)] == [False, True, False, True]


@pytest.mark.parametrize(("nan", "epochs", "outcome"), [("stop", 1, "stopped"), ("warn", 2, "completed")])
def test_a_loss_that_is_not_a_number_raises_one_alert(train: Train, nan: str, epochs: int, outcome: str) -> None:
    run = train(epochs=2, optimizer={"name": "sgd", "learning_rate": 1e30}, alerts={"nan": nan})
    alert = the(run, Alerted)
    assert (alert.kind, alert.epoch, alert.stops) == ("nan", 1, nan == "stop")
    assert re.search(r"\b(NaN|infinite) in epoch 1\.", alert.text)
    assert [math.isnan(epoch.logs["loss"]) for epoch in all_of(run, EpochEnded)] == [True] * epochs
    assert the(run, RunFinished).outcome == outcome
    assert ("NaN" in the(run, RunFinished).reason) == (nan == "stop")


def test_a_loss_that_becomes_nan_takes_the_run_back_to_a_checkpoint_with_a_lower_rate(train: Train) -> None:
    steep = {"name": "sgd", "learning_rate": 1e6}
    run = train(epochs=2, model_options={"hidden": [8, 8, 8]}, optimizer=steep, alerts={"nan": "rollback"})
    backs = all_of(run, RunResumed)
    assert 1 <= len(backs) <= 3
    rates = [event.config["optimizer"]["learning_rate"] for event in backs]
    assert rates == pytest.approx([1e6 / 4**number for number in range(1, len(backs) + 1)])
    assert backs[0].why.endswith("learning rate 1e+06 → 2.5e+05")
    state = RunFollower(run).catch_up().state
    assert [(epoch.epoch, epoch.step, math.isfinite(epoch.logs["loss"])) for epoch in state.epochs] == [
        (1, 44, True),
        (2, 88, True),
    ]
    assert (state.train.step.values[1:] > state.train.step.values[:-1]).all()
    assert state.epochs[0].learning_rate == pytest.approx(rates[-1])
    assert load_config(run.config).optimizer.learning_rate == rates[-1]
    assert the(run, RunFinished).outcome == "completed"


def test_a_run_whose_loss_stays_nan_goes_back_three_times(train: Train) -> None:
    run = train(epochs=2, optimizer={"name": "sgd", "learning_rate": 1e30}, alerts={"nan": "rollback"})
    assert len(all_of(run, RunResumed)) == 3
    ended = the(run, RunFinished)
    assert (ended.outcome, "3 times" in ended.reason) == ("stopped", True)


def test_the_files_of_a_run_whose_loss_is_not_a_number_are_readable_by_anything(train: Train) -> None:
    import pandas as pd

    run = train(epochs=1, optimizer={"name": "sgd", "learning_rate": 1e30})

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    summary = json.loads(run.summary.read_text(encoding="utf-8"), parse_constant=refuse)
    assert summary["final"]["loss"] == "NaN"
    assert pd.read_csv(run.history)["loss"].isna().all()


def test_a_checkpoint_without_room_is_noticed_and_training_goes_on(train: Train) -> None:
    run = train(lambda run: run.checkpoints.touch(), epochs=2, checkpoint={"monitor": "auto"})
    notices = all_of(run, Noticed)
    assert notices
    assert "(epoch 1)" in notices[0].message
    assert not all_of(run, CheckpointSaved)
    assert the(run, RunFinished).outcome == "completed"
    assert run.model.is_file()


def test_tensorboard_files_without_room_are_noticed_once_and_training_goes_on(train: Train) -> None:
    run = train(lambda run: run.tensorboard.touch(), epochs=3, sinks=["tensorboard"])
    (notice,) = all_of(run, Noticed)
    assert notice.message.startswith("TensorBoard files ")
    assert the(run, RunFinished).outcome == "completed"


def test_a_model_that_cannot_be_saved_fails_the_run_and_loses_no_epoch(train: Train) -> None:
    run = train(lambda run: run.model.mkdir())
    failed = failure(run)
    assert "model.keras" in failed.what
    assert len(all_of(run, EpochEnded)) == 1


@pytest.mark.slow
def test_too_little_memory_is_explained(too_large: Host) -> None:
    assert too_large.wait() == 1
    failed = failure(too_large.run)
    assert "out of memory" in failed.what
    assert "batch_size" in failed.remedy


def test_labels_that_do_not_fit_the_model_are_explained(train: Train) -> None:
    failed = failure(train(model="mine.py:too_narrow", model_options={}))
    assert re.findall(r"\d+", failed.what) == ["9", "7", "0", "6"]


@pytest.mark.parametrize(
    ("model", "what", "why"),
    [
        ("mine.py:not_a_model", "mine.py:not_a_model returned a str, not a keras.Model.", ""),
        ("mine.py:leaves", "mine.py:leaves raised SystemExit: no model today", "raise SystemExit"),
        ("mine.py:absent", "mine.py has no function 'absent'", ""),
        ("mine.py:raises_while_training", "not this shape", "# the very line"),
    ],
)
def test_a_model_of_one_s_own_that_fails_shows_the_line(train: Train, model: str, what: str, why: str) -> None:
    failed = failure(train(model=model, model_options={}))
    assert what in failed.what
    assert why in failed.why


@pytest.mark.parametrize(
    ("dataset", "what"),
    [
        ("three", "mine.py:three returned arrays of 4 and 8 examples instead of data."),
        ("text", "mine.py:text returned a str instead of data."),
        ("absent", "mine.py has no function 'absent'"),
        ("breaks", "the cable is out"),
    ],
)
def test_a_dataset_of_one_s_own_that_fails_is_explained(train: Train, dataset: str, what: str) -> None:
    failed = failure(train(dataset=f"mine.py:{dataset}", batch_size=4, steps_per_epoch=4))
    assert what in failed.what


def test_a_dataset_without_examples_is_explained(train: Train) -> None:
    failed = failure(train(dataset="mine.py:empty", batch_size=4, steps_per_epoch=4))
    assert failed.what.startswith("mine.py:empty ")
    assert "without examples" in failed.what


@pytest.mark.parametrize("steps", [1, "auto"])
def test_a_dataset_of_one_s_own_trains_with_its_options(train: Train, steps: int | str) -> None:
    run = train(dataset="mine.py:data", data={"options": {"count": 48}}, batch_size=8, steps_per_execution=steps)
    assert the(run, FitStarted).steps_per_epoch == 6
    assert "val_loss" in the(run, EpochEnded).logs


def test_a_dataset_without_validation_trains_and_watches_the_training_metric(train: Train) -> None:
    run = train(dataset="mine.py:training_only", batch_size=8, checkpoint={"monitor": "auto"})
    assert the(run, FitStarted).monitor == "accuracy"
    assert the(run, CheckpointSaved).monitor == "accuracy"
    assert not [event for event in all_of(run, PhaseStarted) if event.phase == Phase.VALIDATING]


def test_stopping_early_on_a_metric_that_is_never_measured_is_refused_before_training(train: Train) -> None:
    run = train(dataset="mine.py:training_only", batch_size=8, early_stopping={"patience": 1})
    assert "no validation data" in failure(run).what
    assert not all_of(run, EpochEnded)


def test_one_hot_labels_train_with_the_loss_for_them(train: Train) -> None:
    run = train(dataset="mine.py:one_hot", batch_size=8, loss="categorical_crossentropy")
    assert the(run, RunFinished).outcome == "completed"


def test_a_batch_larger_than_the_dataset_fails_with_the_largest_that_fits(train: Train) -> None:
    failed = failure(train(batch_size=2000))
    assert "2,000 (2,000 × 1)" in failed.what
    assert "1437" in failed.remedy


def test_a_network_deeper_than_the_picture_is_explained(train: Train) -> None:
    failed = failure(train(model="cnn", model_options={"filters": [4, 4, 4, 4]}))
    assert "(8, 8, 1)" in failed.what
    assert "padding='same'" in failed.remedy


def test_a_split_that_is_too_small_for_every_class_is_explained(train: Train) -> None:
    assert "data.validation_fraction=0.001" in failure(train(data={"validation_fraction": 0.001})).what


def test_without_tensorboard_a_notice_replaces_its_files(tmp_path: Path) -> None:
    run = prepare_run(small_config(), tmp_path / "runs")
    recorder = Recorder(run, JournalWriter(run.journal), Control())
    config = small_config(sinks=["tensorboard"])
    assert epoch_end_callbacks(recorder, config, "loss", {}, has_tensorboard=False) == []
    (noticed,) = events_of(run)
    assert isinstance(noticed, Noticed)
    assert "install tensorboard" in noticed.message


def test_a_channel_tells_a_phase_and_a_stop_once(tmp_path: Path) -> None:
    run = prepare_run(small_config(), tmp_path / "runs")
    recorder = Recorder(run, JournalWriter(run.journal), Control())
    recorder.enter(Phase.TRAINING)
    recorder.enter(Phase.TRAINING)
    recorder.enter(Phase.LOADING, "downloading")
    recorder.enter(Phase.LOADING, "unpacking")
    assert not recorder.should_stop()
    recorder.control.stop("enough")
    assert recorder.should_stop()
    assert recorder.should_stop()
    assert events_of(run) == [
        PhaseStarted("training"),
        PhaseStarted("loading data", "downloading"),
        PhaseStarted("loading data", "unpacking"),
        StopRequested("enough"),
    ]
