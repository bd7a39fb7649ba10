"""How a model is compiled: optimizers, schedules and metrics by name, custom objects, and weights of a file."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import small_config, write_metadata
from tpu_console.engine.accelerators.backend import FRAMEWORKS
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import ConfigError, DataError, UserCodeError
from tpu_console.engine.input import augment
from tpu_console.engine.models.build import load_start
from tpu_console.engine.models.compile import compile_model, custom_objects, make_optimizer, metrics_of
from tpu_console.engine.runs.metrics import Metric
from tpu_console.engine.training.outputs import Patience

MINE = """
import keras

class Ramp(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, learning_rate, steps, start=0.0):
        self.learning_rate, self.steps, self.start = learning_rate, steps, start

    def __call__(self, step):
        done = keras.ops.cast(step, "float32") / self.steps
        return self.start + (self.learning_rate - self.start) * done

def halved(learning_rate):
    return learning_rate / 2

def wrong():
    return "fast"

class Twice(keras.layers.Layer):
    def call(self, x):
        return 2 * x
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")


def test_tensorflow_tpu_compiles_nothing_for_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    settings = (small_config(), Signature(Task.CLASSES, {"image": Input((4,))}, 3), 1, 8)
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=True)
    compile_model(model, *settings, allows_xla=FRAMEWORKS["tensorflow"].allows_xla(in_scope=False))
    assert model.jit_compile
    assert vars(augment.compiled(tf.identity))["_jit_compile"]
    write_metadata(tmp_path, "tensorflow-tpu", "2.20.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    compile_model(model, *settings, allows_xla=FRAMEWORKS["tensorflow"].allows_xla(in_scope=False))
    assert not model.jit_compile
    fresh = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    compile_model(fresh, *settings, allows_xla=False)
    assert not fresh.jit_compile
    assert not vars(augment.compiled(tf.identity))["_jit_compile"]


X = np.zeros((8, 3), "float32")


def usual_error(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)


class Quality(keras.metrics.Metric):  # type: ignore[misc]  # Keras is untyped
    """A metric that is better when lower, whatever its name looks like."""

    def __init__(self) -> None:
        super().__init__(name="accuracy_gap")
        self._direction = "down"

    def update_state(self, *_: Any, **__: Any) -> None: ...

    def result(self) -> Any:
        return keras.ops.zeros(())


def test_the_class_decides_and_the_name_only_where_it_says_nothing() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, "sigmoid")])
    given = [
        "accuracy",
        keras.metrics.AUC(name="area"),
        keras.metrics.RootMeanSquaredError(name="distance"),
        keras.metrics.MeanSquaredError(name="distance_2"),
        keras.metrics.FalsePositives(name="alarms"),
        usual_error,
        Quality(),
    ]
    model.compile("sgd", "binary_crossentropy", metrics=given)
    found = {metric.name: metric for metric in metrics_of(model)}
    assert found == {
        "loss": Metric("loss", True, "loss", True),
        "accuracy": Metric("accuracy", False, "share", True),
        "area": Metric("area", False, "share", False),
        "distance": Metric("distance", True, "number", False),
        "distance_2": Metric("distance_2", True, "number", True),
        "alarms": Metric("alarms", True, "number", False),
        "usual_error": Metric("usual_error", True, "number", True),
        "accuracy_gap": Metric("accuracy_gap", True, "share", False),
    }
    logs = model.fit(X, np.zeros((8, 1)), verbose=0).history
    assert {*logs} == {*found}


@pytest.mark.parametrize("is_list", [True, False])
def test_metrics_of_several_outputs_are_known_by_the_names_in_the_logs(is_list: bool) -> None:
    inputs = keras.Input((3,))
    ways = keras.layers.Dense(1, name="kind")(inputs), keras.layers.Dense(1, name="age")(inputs)
    model = keras.Model(inputs, list(ways))
    area, gap = keras.metrics.AUC(name="area"), keras.metrics.MeanAbsoluteError(name="gap")
    model.compile("sgd", "mse", metrics=[[area], [gap]] if is_list else {"kind": [area], "age": gap})
    stopping = Patience(monitor="age_gap", patience=1)
    logs = model.fit(X, [np.zeros((8, 1))] * 2, verbose=0, callbacks=[stopping]).history
    found = {metric.name: metric.lower_is_better for metric in metrics_of(model)}
    assert {*logs} == {*found}
    assert (found["kind_area"], found["age_gap"]) == (False, True)
    assert stopping.mode == "min"


STEPS = 10
"""Steps of an epoch."""


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "rmsprop", "adagrad", "adamax", "nadam", "lion"])
def test_every_optimizer_trains_with_all_its_settings(optimizer: str) -> None:
    settings = {"name": f"{optimizer}(clipnorm=1.0)", "weight_decay": 1e-4, "warmup_epochs": 0.5}
    made = make_optimizer(small_config(optimizer=settings, epochs=2), 1, STEPS)
    weight = keras.Variable(np.ones(2))
    for _ in range(STEPS):
        made.apply([keras.ops.ones(2)], [weight])
    assert (weight.numpy() < 1).all()
    assert float(made.learning_rate) == pytest.approx(1e-3)


def rates(schedule: str, warmup_epochs: float = 0.0) -> list[float]:
    """The learning rate at the beginning of each of two epochs and at the end, with a peak of 1."""
    given = {"schedule": schedule, "learning_rate": 1.0, "warmup_epochs": warmup_epochs}
    made, found = make_optimizer(small_config(epochs=2, optimizer=given), 1, STEPS), []
    for epoch in range(3):
        made.iterations.assign(epoch * STEPS)
        found.append(float(made.learning_rate))
    return found


@pytest.mark.parametrize(
    ("schedule", "warmup_epochs", "expected"),
    [
        ("constant", 0.0, [1.0, 1.0, 1.0]),
        ("linear(final_fraction=0.5)", 0.0, [1.0, 0.75, 0.5]),
        ("exponential(final_fraction=0.25)", 0.0, [1.0, 0.5, 0.25]),
        ("cosine(final_fraction=0.1)", 0.0, [1.0, 0.55, 0.1]),
        ("cosine(final_fraction=0.1)", 1.0, [0.0, 1.0, 0.1]),
        ("constant", 1.0, [0.0, 1.0, 1.0]),
        ("mine.py:Ramp", 0.0, [0.0, 0.5, 1.0]),
        ("mine.py:Ramp(start=0.5, learning_rate=2.5)", 0.0, [0.5, 1.5, 2.5]),
        ("mine.py:halved", 0.0, [0.5, 0.5, 0.5]),
        ("inverse_time_decay(decay_rate=1, decay_steps=10)", 0.0, [1.0, 0.5, 1 / 3]),
        ("cosine_decay_restarts(first_decay_steps=10)", 0.0, [1.0, 1.0, 0.5]),
    ],
)
def test_the_learning_rate_follows_a_schedule(schedule: str, warmup_epochs: float, expected: list[float]) -> None:
    assert rates(schedule, warmup_epochs) == pytest.approx(expected)


def test_anything_but_a_schedule_is_refused() -> None:
    with pytest.raises(UserCodeError, match="made a str, not a keras LearningRateSchedule"):
        rates("mine.py:wrong")
    with pytest.raises(ConfigError, match=r"InverseTimeDecay cannot be made with .*speed"):
        rates("inverse_time_decay(speed=1)")


def test_custom_objects_let_a_model_function_load_a_saved_model(tmp_path: Path) -> None:
    objects = custom_objects(small_config(custom_objects="mine.py:Twice"))
    keras.Sequential([keras.Input((3,)), objects["Twice"]()]).save(tmp_path / "saved.keras")
    with keras.saving.CustomObjectScope(objects):
        loaded: Any = keras.saving.load_model(tmp_path / "saved.keras")
    assert loaded(np.ones((1, 3), "float32")).numpy().tolist() == [[2.0, 2.0, 2.0]]


class Subclassed(keras.Model):  # type: ignore[misc]  # Keras is untyped
    """Has no variables before its first batch."""

    def __init__(self, units: int = 2) -> None:
        super().__init__()
        self.words = keras.layers.Embedding(5, 3)
        self.rest = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(units)])

    def call(self, inputs: Any) -> Any:
        return self.rest(self.words(inputs["word"])) + keras.ops.sum(inputs["size"], axis=-1, keepdims=True)


@pytest.mark.parametrize("name", ["start.keras", "start.weights.h5"])
def test_a_subclassed_model_is_built_for_the_data_before_its_weights_are_loaded(name: str, tmp_path: Path) -> None:
    batch = {"word": np.array([[0, 4], [1, 2]]), "size": np.ones((2, 3), "float32")}
    first, second = Subclassed(), Subclassed()
    expected = first(batch)
    (first.save if name.endswith(".keras") else first.save_weights)(tmp_path / name)
    inputs = {key: tf.TensorSpec((None, *part.shape[1:]), part.dtype) for key, part in batch.items()}
    load_start(second, small_config(weights=name), inputs)
    np.testing.assert_array_equal(second(batch), expected)
    with pytest.raises(DataError, match="has no weights of the model"):
        load_start(Subclassed(units=3), small_config(weights=name), inputs)
    with pytest.raises(DataError, match="cannot be called"):
        load_start(Subclassed(), small_config(weights=name), inputs["size"])
