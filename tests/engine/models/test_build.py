"""Two phases of one run: a frozen base, then its layers too; and layers that a custom model uses but does not own."""

import inspect
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests import saved_models
from tests.helpers import LIMIT_S, Host, all_of, run_host, small_config, the, wait_until
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import ConfigError, DataError, UserCodeError
from tpu_console.engine.models.build import build_model, refuse_loose_weights, training_phases, unfreeze
from tpu_console.engine.process.launch import prepare_resumption
from tpu_console.engine.runs.events import CheckpointSaved, EpochEnded, FitStarted, Noticed, RunFinished
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.training.outputs import Patience

SIGNATURE = Signature(Task.CLASSES, {"image": Input((32, 32, 3))}, 3)


@pytest.fixture
def colors(tmp_path: Path) -> str:
    (tmp_path / "colors.py").write_text(saved_models.COLORS, encoding="utf-8")
    return f"{tmp_path / 'colors.py'}:colors"


def two_phases(dataset: str, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "dataset": dataset,
        "model": "application",
        "model_options": {"name": "MobileNet", "weights": "none"},
        "epochs": 4,
        "fine_tuning": {"after_epochs": 2, "from_layer": -12, "learning_rate": 1e-4},
        "checkpoint": {"monitor": "auto"},
        "sinks": ["tensorboard"],
    }
    return small_config(**(values | changes))


@pytest.mark.slow
def test_the_second_phase_continues_where_the_first_ended_and_trains_the_whole_base(
    colors: str, tmp_path: Path
) -> None:
    hub = {"model": "hub", "model_options": {"path": saved_models.reusable(tmp_path / "saved")}}
    tuning, rate = {"after_epochs": 2, "learning_rate": 0.005}, {"learning_rate": 0.01}
    devices = {"accelerator": "sim:2", "batch_size": 12}
    run = run_host(two_phases(colors, **hub, **devices, fine_tuning=tuning, optimizer=rate), tmp_path / "runs")
    assert the(run, RunFinished).outcome == "completed", run.log.read_text()[-2000:]
    epochs = all_of(run, EpochEnded)
    assert [(epoch.epoch, epoch.step) for epoch in epochs] == [(1, 4), (2, 8), (3, 12), (4, 16)]
    assert [epoch.learning_rate for epoch in epochs] == pytest.approx([0.01, 0.01, 0.005, 0.005])
    # Each phase compiles in its first epoch, which is timed apart.
    assert [epoch.compile_s > 0 for epoch in epochs] == [True, False, True, False]
    (switch,) = [notice.message for notice in all_of(run, Noticed) if "Fine-tuning begins" in notice.message]
    assert "the 1 weights" in switch
    assert "0.005" in switch
    assert [fit.epochs for fit in all_of(run, FitStarted)] == [4, 4]
    state = RunFollower(run).catch_up().state
    assert (state.steps_total, len(state.epochs)) == (16, 4)
    # Each phase has a TensorBoard file.
    assert not any("TensorBoard" in notice for notice in state.notices)
    assert len(list((run.path / "tensorboard" / "train").iterdir())) == 2
    assert all_of(run, CheckpointSaved)
    assert json.loads(run.summary.read_text())["epochs"] == 4
    model = keras.models.load_model(run.model, safe_mode=False, compile=False)
    kernel = next(weight for weight in model.get_layer("features").weights if "kernel" in weight.name)
    assert np.abs(kernel.numpy() - saved_models.weights()).max() > 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("resumed_in_forks")
def test_a_run_that_is_stopped_in_its_second_phase_continues_there(
    colors: str, tmp_path: Path, start: Callable[..., Host]
) -> None:
    hub = {"model": "hub", "model_options": {"path": saved_models.reusable(tmp_path / "saved")}, "sinks": []}
    tuning = {"after_epochs": 1, "learning_rate": 0.005}
    host = start(
        two_phases(colors, **hub, epochs=100_000, fine_tuning=tuning, optimizer={"learning_rate": 0.01}), forked=True
    )
    wait_until(lambda: len(all_of(host.run, EpochEnded)) >= 2, "an epoch of the second phase")
    host.send(signal.SIGTERM)
    assert host.wait() == 0
    assert the(host.run, RunFinished).outcome == "stopped"
    assert host.run.model.is_file()
    done = all_of(host.run, EpochEnded)[-1].epoch
    assert prepare_resumption(host.run, [("epochs", done + 2)]).start().wait(LIMIT_S) == 0, host.run.log.read_text()
    epochs = RunFollower(host.run).catch_up().state.epochs
    assert [epoch.epoch for epoch in epochs] == [*range(1, done + 3)]
    assert [epoch.learning_rate for epoch in epochs] == pytest.approx([0.01, *[0.005] * (done + 1)])


def test_phases_share_the_epochs_and_each_has_its_rate(colors: str) -> None:
    config = two_phases(colors, optimizer={"learning_rate": 0.5, "schedule": "cosine"})
    first, second = training_phases(config)
    assert (first.config.epochs, first.last_epoch, first.config.optimizer.learning_rate) == (2, 2, 0.5)
    assert (second.config.epochs, second.last_epoch, second.config.optimizer.learning_rate) == (2, 4, 1e-4)
    assert second.config.optimizer.schedule == "cosine"
    (only,) = training_phases(two_phases(colors, fine_tuning={}))
    assert (only.last_epoch, only.is_fine_tuning) == (4, False)


def test_a_layer_that_does_not_exist_is_refused(colors: str) -> None:
    config = two_phases(colors, fine_tuning={"after_epochs": 1, "from_layer": -100})
    with pytest.raises(DataError, match=r"fine_tuning.from_layer is -100, but .* has 87 layers"):
        unfreeze(build_model(config, SIGNATURE), config)


def test_the_base_is_found_behind_layers_of_augmentation(colors: str) -> None:
    config = two_phases(colors)
    model = build_model(config, SIGNATURE)
    inputs = keras.Input((32, 32, 3))
    wrapped = keras.Model(inputs, model(layers.RandomFlip()(inputs)), name=model.name)
    assert "8 of the 87 layers" in unfreeze(wrapped, config)
    assert len(wrapped.trainable_weights) == len(model.trainable_weights) > 2


def test_patience_remembers_the_best_epoch_of_an_earlier_fit() -> None:
    x, y = np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    patience = Patience(monitor="loss", patience=3, restore_best_weights=True)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(x, y, epochs=3, callbacks=[patience], verbose=0)
    best = patience.best
    model.compile(keras.optimizers.SGD(-0.5), "mse")  # away from the goal
    model.fit(x, y, epochs=2, callbacks=[patience], verbose=0)
    assert patience.best <= best < 0.5
    assert model.evaluate(x, y, verbose=0) < 0.5


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"model": "cnn", "model_options": {}}, "after_epochs"),
        ({"epochs": 2}, "after_epochs"),
        ({"model_options": {"trainable": "all"}}, "after_epochs"),
        ({"model": "hub", "model_options": {"path": "x"}}, "from_layer"),
    ],
)
def test_impossible_fine_tuning_is_refused_at_the_start(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(two_phases("digits").model_dump(mode="json") | changes)
    assert [problem.key for problem in caught.value.problems] == [f"fine_tuning.{key}"]


IMAGES = tf.TensorSpec((None, 4, 4), tf.float32)
TABLE = layers.Dense(3)


class Created(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.head = layers.Dense(2)

    def call(self, x: Any) -> Any:
        x = layers.Dense(3, activation="relu")(x)
        return self.head(layers.MultiHeadAttention(1, 2)(x, x))


class Block(layers.Layer):  # type: ignore[misc]
    """States its output's shape."""

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], 3)

    def call(self, x: Any) -> Any:
        return Scale()(keras.Sequential([layers.Dense(3)])(x))


class Scale(layers.Layer):  # type: ignore[misc]
    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=shape[-1:], initializer="ones")

    def call(self, x: Any) -> Any:
        return x * self.scale


class Global(keras.Model):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return TABLE(x)


class Good(keras.Model):  # type: ignore[misc]
    """Owns all its layers, one of which it creates at its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = [Scale(), layers.Bidirectional(layers.LSTM(2, return_sequences=True)), layers.Dropout(0.5)]
        self.late: Any = None

    def call(self, x: Any, training: bool = False) -> Any:
        for part in self.parts:
            x = part(x)
        if self.late is None:
            self.late = layers.Dense(2)
        return keras.random.dropout(self.late(layers.ReLU()(x)), 0.1)


class Bare(layers.Layer):  # type: ignore[misc]
    """Creates a variable in each call."""

    def call(self, x: Any) -> Any:
        return x * keras.Variable("ones", (4,))


class Late(keras.Model):  # type: ignore[misc]
    """Adds a weight in its first call, when Keras does not allow that any more."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: Any = None

    def call(self, x: Any) -> Any:
        if self.scale is None:
            self.scale = self.add_weight(shape=(4,), initializer="ones")
        return x * self.scale


class Gan(keras.Model):  # type: ignore[misc]
    """Cannot be called."""


def _functional(*inner: Any) -> Any:
    return keras.Sequential([keras.Input((4, 4)), *inner, layers.Dense(2)])


def _line(of: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(of)
    return first + next(number for number, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(
    ("model", "name", "of", "line"),
    [
        (Created(), "dense", Created, "layers.Dense(3,"),
        (_functional(Block()), "dense", Block, "return Scale()"),
        (keras.Sequential([_functional(layers.TimeDistributed(Block()))]), "dense", Block, "return Scale()"),
        (Global(), "dense", Global, "TABLE(x)"),
        (_functional(layers.Lambda(lambda x: layers.Dense(3)(x + 1))), "dense", None, ""),
        (_functional(Bare()), "variable", Bare, "keras.Variable"),
        (Late(), "late", Late, "self.add_weight"),
    ],
)
def test_what_the_model_does_not_own_is_refused_with_its_line(model: Any, name: str, of: Any, line: str) -> None:
    with pytest.raises(UserCodeError) as raised:
        refuse_loose_weights(model, IMAGES)
    assert name in raised.value.what
    assert of is None or f"File {__file__}, line {_line(of, line)}: " in raised.value.why


@pytest.mark.parametrize(
    "model", [Good(), Gan(), _functional(Scale(), layers.Bidirectional(layers.GRU(3))), _functional(layers.Lambda(abs))]
)
def test_models_that_own_their_layers_pass_twice(model: Any) -> None:
    refuse_loose_weights(model, IMAGES)
    before = [weight.path for weight in model.weights]
    refuse_loose_weights(model, IMAGES)
    assert [weight.path for weight in model.weights] == before
