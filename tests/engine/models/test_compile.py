"""How a model is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import small_config, write_metadata
from tpu_console.engine.accelerators.table import FRAMEWORKS
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.input import augment
from tpu_console.engine.models.compile import compile_model, metrics_of
from tpu_console.engine.models.fine_tuning import Patience
from tpu_console.engine.runs.metrics import Metric

if TYPE_CHECKING:
    from pathlib import Path


def test_tensorflow_tpu_compiles_nothing_for_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    settings = (small_config(), Signature(Task.CLASSES, {"image": Input((4,))}, 3), 1, 8)
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=True)
    compile_model(model, *settings, allows_xla=FRAMEWORKS["tensorflow"].allows_xla(in_scope=False))
    assert model.jit_compile
    assert vars(augment._compiled(tf.identity))["_jit_compile"]
    write_metadata(tmp_path, "tensorflow-tpu", "2.20.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    compile_model(model, *settings, allows_xla=FRAMEWORKS["tensorflow"].allows_xla(in_scope=False))
    assert not model.jit_compile
    assert not vars(augment._compiled(tf.identity))["_jit_compile"]


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
