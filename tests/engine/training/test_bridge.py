"""`BridgeCallback` and `Run` wherever people put them: runs that are watched, stopped, and end whatever happens."""

import copy
import itertools
import math
import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import keras_tuner
import numpy as np
import pytest

from tests.forks import fork
from tests.helpers import all_of, events_of, has, private_mode, small_config, the, wait_until
from tpu_console import BridgeCallback, Run
from tpu_console.engine.config.run_config import compared_values
from tpu_console.engine.runs import events
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import EpochEnded, FitStarted, Noticed, RunFailed, RunFinished, RunStarted
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.engine.training.outputs import EpochSummaries

X, Y = np.random.default_rng(0).normal(size=(64, 4)).astype("float32"), np.arange(64) % 3


def model_of(module: Any = keras, **options: Any) -> Any:
    model = module.Sequential([module.layers.Input((4,)), module.layers.Dense(3, "softmax")])
    settings = {"metrics": ["accuracy"], "jit_compile": False, **options}
    model.compile("adam", "sparse_categorical_crossentropy", **settings)
    return model


def run_of(label: str) -> RunDirectory:
    (run,) = [run for run in list_runs() if run.run_id.endswith(label)]
    return run


def test_every_fit_of_one_callback_is_a_run_of_its_own() -> None:
    twice = BridgeCallback("twice")
    model_of().fit(X, Y, batch_size=8, epochs=2, validation_split=0.25, callbacks=[twice], verbose=0)
    model_of().fit(X, Y, batch_size=8, epochs=3, callbacks=[twice], verbose=0)
    first, second = list_runs()[::-1]
    for run, epochs, steps in ((first, 2, 6), (second, 3, 8)):
        started, *_, end = events_of(run)
        assert isinstance(started, RunStarted)
        assert (started.label, started.source, started.pid) == ("twice", "notebook", os.getpid())
        fit = the(run, FitStarted)
        assert (fit.epochs, fit.steps_per_epoch, fit.global_batch) == (epochs, steps, None)
        assert isinstance(end, RunFinished)
        assert (end.outcome, end.reason) == ("completed", "fit returned")
        ended = all_of(run, EpochEnded)
        assert [event.epoch for event in ended] == list(range(1, epochs + 1))
        assert end.summary["final"]["loss"] == pytest.approx(ended[-1].logs["loss"])
        assert ("val_loss" in ended[0].logs) == (run is first)
        assert (private_mode(run.path), private_mode(run.journal)) == (0o700, 0o600)
    phases = [event.phase for event in all_of(first, events.PhaseStarted)]
    assert phases[:3] == ["compiling", "training", "validating"]


def test_a_metric_that_is_no_single_number_is_left_out_and_harms_nothing() -> None:
    class Vector(keras.metrics.Metric):  # type: ignore[misc]  # Keras is untyped
        def update_state(self, *_: Any, **__: Any) -> None: ...

        def result(self) -> Any:
            return keras.ops.ones((3,))

    model = model_of(metrics=["accuracy", Vector()], jit_compile="auto")
    model.fit(X, Y, batch_size=8, callbacks=[BridgeCallback("vector")], verbose=0)
    logs = the(run_of("vector"), EpochEnded).logs
    assert logs.keys() == {"loss", "accuracy"}
    assert all(math.isfinite(value) for value in logs.values())


def test_a_fit_that_is_left_by_an_exception_fails_its_run_and_raises_as_ever() -> None:
    class Breaks(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        model_of().fit(X, Y, epochs=5, callbacks=[BridgeCallback("broken"), Breaks()], verbose=0)
    run = run_of("broken")
    wait_until(lambda: has(run, RunFailed), "the end")
    assert (events_of(run)[-1], len(all_of(run, EpochEnded))) == (the(run, RunFailed), 2)


ENDLESS = """
import keras, numpy as np
from tpu_console import BridgeCallback

def forever():
    while True: yield np.ones((8, 4)), np.zeros(8)

for label in ("stopped", "killed"):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    model.fit(forever(), steps_per_epoch=10**7, callbacks=[BridgeCallback(label)], verbose=0)
"""


def test_a_console_stops_fit_and_sees_that_a_killed_notebook_is_dead(tmp_path: Path, private_home: Path) -> None:
    def training(label: str) -> RunDirectory:
        wait_until(lambda: [run for run in list_runs() if label in run.run_id and has(run, events.Progress)], label)
        run = run_of(label)
        assert liveness_of(run) is Liveness.ALIVE
        return run

    env = os.environ | {"TPU_CONSOLE_HOME": str(private_home)}
    process = fork(ENDLESS, output=tmp_path / "out", errors=tmp_path / "errors", cwd=tmp_path, env=env)
    try:
        stopped = training("stopped")
        ask(stopped, events.Steering.STOP, "asked from the console")
        killed = training("killed")
    finally:
        process.kill()
    end = the(stopped, RunFinished)
    assert (end.outcome, end.reason) == ("stopped", "asked from the console")
    assert the(stopped, events.StopRequested)
    assert list(stopped.control.iterdir()) == []
    wait_until(lambda: liveness_of(killed) is Liveness.DEAD, "its death")
    assert not has(killed, RunFinished)


def test_a_copied_or_pickled_callback_makes_its_own_runs_and_evaluate_makes_none() -> None:
    settings = {"rate": 0.1, "act": keras.activations.relu}
    first = BridgeCallback("tuned", config=settings, monitor="val_acuracy")
    model = model_of()
    model.evaluate(X, Y, callbacks=[first], verbose=0)
    model.predict(X, callbacks=[first], verbose=0)
    assert list_runs() == []
    model.fit(X, Y, epochs=1, callbacks=[first], verbose=0)
    copied = copy.deepcopy(BridgeCallback("copied", config={"rate": 0.1}, monitor="val_acuracy"))
    second = pickle.loads(pickle.dumps(copied))
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


def test_a_loop_logs_steps_and_epochs_and_hears_a_stop() -> None:
    ticks = itertools.count()
    losses, rate = [1.0, 0.2, 0.9, 0.4, 0.1, 0.3], {"rate": 1}
    with Run("loop", config=rate, epochs=2, steps_per_epoch=3, batch_size=8, clock=lambda: float(next(ticks))) as run:
        for step, loss in enumerate(losses, 1):
            run.log(step, loss=loss, rank=step)
            if step % 3 == 0:
                run.end_epoch(val_loss=np.float32(0.5))
        assert not run.should_stop
        ask(run_of("loop"), events.Steering.STOP, "enough")
        wait_until(lambda: run.should_stop, "the stop")
    found = run_of("loop")
    state = RunFollower(found).catch_up().state
    assert state.train.metrics["loss"].values.tolist() == pytest.approx(losses)
    assert state.train.metrics["rank"].values.tolist() == [1, 2, 3, 4, 5, 6]
    assert [epoch.logs["loss"] for epoch in state.epochs] == pytest.approx([0.7, 0.8 / 3])
    assert state.epochs[-1].logs["val_loss"] == 0.5
    assert [(event.epoch, event.step, event.epoch_steps) for event in state.epochs] == [(1, 3, 3), (2, 6, 3)]
    assert (the(found, RunFinished).outcome, the(found, RunFinished).reason) == ("stopped", "enough")


def test_a_loop_reports_at_most_ten_times_a_second_and_means_of_all_its_steps() -> None:
    with Run("slow", clock=lambda: 1.0) as run:
        for step in range(1, 6):
            run.log(step, loss=1 / step)
    assert [event.logs for event in all_of(run_of("slow"), events.Progress)] == [{"loss": 1.0}]
    assert the(run_of("slow"), EpochEnded).logs == {"loss": pytest.approx(sum(1 / step for step in range(1, 6)) / 5)}


def test_a_loop_that_raises_fails_its_run() -> None:
    def fails() -> None:
        with Run("broken") as run:
            run.log(1, loss=2.0)
            raise ValueError("oh")

    with pytest.raises(ValueError, match="oh"):
        fails()
    assert the(run_of("broken"), RunFailed).what == "ValueError: oh"


def test_each_trial_of_kerastuner_is_a_run(tmp_path: Path) -> None:
    def build(hp: Any) -> Any:
        hp.Choice("units", [2, 3])
        return model_of()

    callback = BridgeCallback("tuned", config={"search": "grid"})
    tuner = keras_tuner.GridSearch(build, "val_loss", directory=tmp_path)
    tuner.search(X, Y, epochs=1, validation_split=0.25, callbacks=[callback], verbose=0)
    assert [the(run, RunStarted).config for run in list_runs()] == [{"search": "grid"}] * 2
    assert all(the(run, RunFinished).outcome == "completed" for run in list_runs())


def test_tensorboard_compares_runs_by_their_settings(recorder: Recorder) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    secret = {"webhook": "https://hooks.example.com/services/secret"}
    settings = compared_values(small_config(alerts=secret, optimizer={"schedule": "cosine"}))
    summaries = EpochSummaries(recorder, settings)
    for epoch in range(2):
        summaries.on_epoch_end(epoch, {"loss": 0.5, "val_loss": 0.6})
    summaries.on_train_end()
    accumulator = EventAccumulator(str(recorder.run.tensorboard))
    accumulator.Reload()
    content = accumulator.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    known = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert (known["batch_size"].number_value, known["optimizer.learning_rate"].number_value) == (32, 0.001)
    texts = ("optimizer.schedule", "model_options.hidden", "sinks", "alerts.webhook")
    assert [known[name].string_value for name in texts] == ["cosine", "[8]", "[]", "https://hooks.example.com/…"]
    assert "optimizer.weight_decay" not in known


def test_validation_reports_twice_a_second_and_its_length_once_that_is_known(recorder: Recorder) -> None:
    now = [100.0]
    callback = BridgeCallback(recorder, clock=lambda: now[0])
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
    assert all_of(recorder.run, events.ValidationProgress) == [
        events.ValidationProgress(epoch, batches, total) for epoch, total in ((1, None), (2, 10)) for batches in (4, 8)
    ]


def test_a_loop_whose_run_is_removed_goes_on_with_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    with Run("loop") as loop:
        (run,) = list_runs()
        shutil.rmtree(run.path)
        wait_until(lambda: any("removed" in str(warning.message) for warning in recwarn))
        loop.log(1, loss=1.0)
        assert not loop.should_stop
    assert not run.path.exists()


def test_a_model_that_does_not_learn_has_the_loss_of_its_batches(recorder: Recorder) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(96, 4)).astype("float32"), generator.integers(0, 2, 96).astype("float32")
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
    metrics = ["accuracy", keras.metrics.AUC(name="auc")]
    model.compile(keras.optimizers.SGD(0.0), "binary_crossentropy", metrics=metrics, jit_compile=False)
    # A clock on which every third batch is due for a report.
    ticks = itertools.count()
    callback = BridgeCallback(recorder, clock=lambda: next(ticks) * 0.04)
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[callback])

    train = RunFollower(recorder.run).catch_up().state.train
    batches = [model.evaluate(x[at : at + 8], y[at : at + 8], verbose=0) for at in range(0, len(x), 8)]
    steps = [0, *train.step.values.astype(int)]
    assert len(steps) > 5
    for column, name in enumerate(("loss", "accuracy")):
        measured = np.tile([batch[column] for batch in batches], 2)
        expected = [measured[begin:end].mean() for begin, end in itertools.pairwise(steps)]
        np.testing.assert_allclose(train.metrics[name].values, expected, atol=1e-5)
    assert train.running == {"auc"}
