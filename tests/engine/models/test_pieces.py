"""Custom schedules, custom objects and weights of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import small_config
from tpu_console.engine.errors import ConfigError, DataError, UserCodeError
from tpu_console.engine.models.build import load_start
from tpu_console.engine.models.compile import custom_objects, make_optimizer

if TYPE_CHECKING:
    from pathlib import Path

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


def rates(schedule: str, steps: tuple[int, ...]) -> list[float]:
    config = small_config(epochs=2, optimizer={"schedule": schedule, "learning_rate": 1.0})
    made, found = make_optimizer(config, 1, 10), []
    for step in steps:
        made.iterations.assign(step)
        found.append(float(made.learning_rate))
    return found


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("mine.py:Ramp", [0.0, 0.5, 1.0]),
        ("mine.py:Ramp(start=0.5, learning_rate=2.5)", [0.5, 1.5, 2.5]),
        ("mine.py:halved", [0.5, 0.5, 0.5]),
        ("inverse_time_decay(decay_rate=1, decay_steps=10)", [1.0, 0.5, 1 / 3]),
        ("cosine_decay_restarts(first_decay_steps=10)", [1.0, 1.0, 0.5]),
    ],
)
def test_a_schedule_of_keras_or_the_user_gets_the_peak_and_the_steps(schedule: str, expected: list[float]) -> None:
    assert rates(schedule, (0, 10, 20)) == pytest.approx(expected)


def test_anything_but_a_schedule_is_refused() -> None:
    with pytest.raises(UserCodeError, match="made a str, not a keras LearningRateSchedule"):
        rates("mine.py:wrong", (0,))
    with pytest.raises(ConfigError, match=r"InverseTimeDecay cannot be made with .*speed"):
        rates("inverse_time_decay(speed=1)", (0,))


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
