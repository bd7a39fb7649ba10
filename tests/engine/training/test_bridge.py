"""`BridgeCallback` and `Run` wherever people put them, and what they report."""

from __future__ import annotations

import copy
import itertools
import pickle
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import keras
import keras_tuner
import numpy as np
import optuna
import pytest

from tests.helpers import all_of, small_config, the, wait_until
from tpu_console import BridgeCallback, Run
from tpu_console.engine.config.run_config import compared_values
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import (
    EpochEnded,
    FitStarted,
    Noticed,
    Progress,
    RunFailed,
    RunFinished,
    RunStarted,
    Steering,
    ValidationProgress,
)
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import create_run, list_runs
from tpu_console.engine.training.outputs import EpochSummaries

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

X, Y = np.random.default_rng(0).normal(size=(64, 4)).astype("float32"), np.arange(64) % 3


def model_of(module: Any = keras) -> Any:
    model = module.Sequential([module.layers.Input((4,)), module.layers.Dense(3, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    return model


def run_of(label: str) -> RunDirectory:
    (run,) = [run for run in list_runs() if run.run_id.endswith(label)]
    return run


def test_a_copied_or_pickled_callback_makes_its_own_runs_and_evaluate_makes_none() -> None:
    settings = {"rate": 0.1, "act": keras.activations.relu}
    first = BridgeCallback("tuned", config=settings, monitor="val_acuracy")
    model = model_of()
    model.evaluate(X, Y, callbacks=[first], verbose=0)
    model.predict(X, callbacks=[first], verbose=0)
    assert list_runs() == []
    model.fit(X, Y, epochs=1, callbacks=[first], verbose=0)
    second = pickle.loads(
        pickle.dumps(copy.deepcopy(BridgeCallback("copied", config={"rate": 0.1}, monitor="val_acuracy")))
    )
    model.fit(X, Y, epochs=2, validation_split=0.25, callbacks=[copy.copy(second)], verbose=0)
    run = run_of("copied")
    assert the(run, RunStarted).config == {"rate": 0.1}
    assert {"'val_acuracy'", "'val_accuracy'?"} <= {*the(run, Noticed).message.split()}
    assert the(run, FitStarted).monitor == "val_acuracy"
    assert the(run, RunFinished).outcome == "completed"
    assert the(run_of("tuned"), RunStarted).config["act"].startswith("<function relu")
    assert not all_of(run_of("tuned"), Noticed)  # without validation, a validation metric is not missed


def test_a_model_of_tf_keras_is_watched_too() -> None:
    tf_keras = pytest.importorskip("tf_keras")
    model_of(tf_keras).fit(X, Y, epochs=2, validation_split=0.25, callbacks=[BridgeCallback("old")], verbose=0)
    ended = all_of(run_of("old"), EpochEnded)
    assert [event.epoch for event in ended] == [1, 2]
    assert ended[0].learning_rate == pytest.approx(0.001)
    assert "val_loss" in ended[0].logs


def test_the_curve_of_a_loop_is_what_it_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpu_console.engine.training.notebook._PROGRESS_S", 0.0)
    losses = [1.0, 0.2, 0.9, 0.4, 0.1, 0.3]
    with Run("raw", epochs=2, steps_per_epoch=3) as run:
        for step, loss in enumerate(losses, 1):
            run.log(step, loss=loss, rank=step)
            if step % 3 == 0:
                run.end_epoch()
    state = RunFollower(run_of("raw")).catch_up().state
    assert state.train.metrics["loss"].values.tolist() == pytest.approx(losses)
    assert state.train.metrics["rank"].values.tolist() == [1, 2, 3, 4, 5, 6]
    assert [epoch.logs["loss"] for epoch in state.epochs] == pytest.approx([0.7, 0.8 / 3])


def test_a_loop_of_one_s_own_logs_epochs_and_hears_a_stop() -> None:
    with Run("loop", config={"rate": 1}, epochs=2, batch_size=8) as run:
        for epoch in range(2):
            for step in range(1, 6):
                run.log(epoch * 5 + step, loss=1 / step)
            run.end_epoch(val_loss=np.float32(0.5))
        assert not run.should_stop
        ask(run_of("loop"), Steering.STOP, "enough")
        wait_until(lambda: run.should_stop, "the stop")
    found = run_of("loop")
    assert all_of(found, Progress)[0].logs == {"loss": 1.0}
    assert [(event.epoch, event.step, event.epoch_steps) for event in all_of(found, EpochEnded)] == [
        (1, 5, 5),
        (2, 10, 5),
    ]
    mean = sum(1 / step for step in range(1, 6)) / 5
    assert all_of(found, EpochEnded)[-1].logs == {"loss": pytest.approx(mean), "val_loss": 0.5}
    assert (the(found, RunFinished).outcome, the(found, RunFinished).reason) == ("stopped", "enough")


def test_a_loop_that_raises_fails_its_run() -> None:
    def fails() -> None:
        with Run("broken") as run:
            run.log(1, loss=2.0)
            raise ValueError("oh")

    with pytest.raises(ValueError, match="oh"):
        fails()
    assert the(run_of("broken"), RunFailed).what == "ValueError: oh"


def test_each_trial_of_kerastuner_and_optuna_is_a_run(tmp_path: Path) -> None:
    def build(hp: Any) -> Any:
        hp.Choice("units", [2, 3])
        return model_of()

    tuner = keras_tuner.GridSearch(build, "val_loss", directory=tmp_path)
    callback = BridgeCallback("tuned", config={"search": "grid"})
    tuner.search(X, Y, epochs=1, validation_split=0.25, callbacks=[callback], verbose=0)
    assert [the(run, RunStarted).config for run in list_runs()] == [{"search": "grid"}] * 2
    assert all(the(run, RunFinished).outcome == "completed" for run in list_runs())

    def prune(trial: optuna.Trial) -> None:
        def report(epoch: int, logs: dict[str, float]) -> None:
            trial.report(logs["loss"], step=epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

        callbacks = [BridgeCallback("study"), keras.callbacks.LambdaCallback(on_epoch_end=report)]
        model_of().fit(X, Y, epochs=3, callbacks=callbacks, verbose=0)

    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=1e-9))
    study.optimize(prune, n_trials=1)
    wait_until(lambda: all_of(run_of("study"), RunFailed), "the end of the pruned run")
    assert len(all_of(run_of("study"), EpochEnded)) == 1


def test_tensorboard_compares_runs_by_their_settings(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    secret = {"webhook": "https://hooks.example.com/services/secret"}
    settings = compared_values(small_config(alerts=secret, optimizer={"schedule": "cosine"}))
    run = create_run("small", tmp_path)
    journal = JournalWriter(run.journal)
    summaries = EpochSummaries(Recorder(run, journal), settings)
    for epoch in range(2):
        summaries.on_epoch_end(epoch, {"loss": 0.5, "val_loss": 0.6})
    summaries.on_train_end()
    journal.close()
    accumulator = EventAccumulator(str(run.tensorboard))
    accumulator.Reload()
    content = accumulator.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    known = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert known["batch_size"].number_value == 32
    assert known["optimizer.learning_rate"].number_value == 0.001
    assert known["optimizer.schedule"].string_value == "cosine"
    assert known["model_options.hidden"].string_value == "[8]"
    assert known["sinks"].string_value == "[]"
    assert known["alerts.webhook"].string_value == "https://hooks.example.com/…"
    assert "optimizer.weight_decay" not in known


def test_validation_reports_twice_a_second_and_its_length_once_that_is_known(tmp_path: Path) -> None:
    run = create_run("bridge", tmp_path)
    now = [100.0]
    callback = BridgeCallback(Recorder(run, JournalWriter(run.journal)), clock=lambda: now[0])
    callback.set_model(SimpleNamespace(metrics=[], run_eagerly=True))
    callback.set_params({"epochs": 2, "steps": 1})
    callback.on_train_begin()
    for epoch in range(2):
        callback.on_epoch_begin(epoch)
        callback.on_test_begin()
        for batch in range(10):
            now[0] += 0.15
            callback.on_test_batch_end(batch)
        callback.on_test_end()
    written = all_of(run, ValidationProgress)
    assert written == [
        *(ValidationProgress(1, batches, None) for batches in (4, 8)),
        *(ValidationProgress(2, batches, 10) for batches in (4, 8)),
    ]


def test_a_loop_whose_run_is_removed_goes_on_with_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    with Run("loop") as loop:
        (run,) = list_runs()
        shutil.rmtree(run.path)
        wait_until(lambda: any("removed" in str(warning.message) for warning in recwarn))
        loop.log(1, loss=1.0)
        assert not loop.should_stop
    assert not run.path.exists()


BATCH, BATCHES = 8, 12


def test_a_model_that_does_not_learn_has_the_loss_of_its_batches(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(BATCH * BATCHES, 4)).astype("float32")
    y = generator.integers(0, 2, BATCH * BATCHES).astype("float32")
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
    metrics = ["accuracy", keras.metrics.AUC(name="auc")]
    model.compile(keras.optimizers.SGD(0.0), "binary_crossentropy", metrics=metrics, jit_compile=False)
    # A clock on which every third batch is due for a report.
    ticks = itertools.count()
    run = create_run("means", tmp_path)
    callback = BridgeCallback(Recorder(run, JournalWriter(run.journal)), clock=lambda: next(ticks) * 0.04)
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[callback])

    train = RunFollower(run).catch_up().state.train
    batches = [model.evaluate(x[at : at + BATCH], y[at : at + BATCH], verbose=0) for at in range(0, len(x), BATCH)]
    steps = [0, *train.step.values.astype(int)]
    assert len(steps) > 5
    for column, name in enumerate(("loss", "accuracy")):
        measured = np.tile([batch[column] for batch in batches], 2)
        expected = [measured[begin:end].mean() for begin, end in itertools.pairwise(steps)]
        np.testing.assert_allclose(train.metrics[name].values, expected, atol=1e-5)
    assert train.running == {"auc"}
