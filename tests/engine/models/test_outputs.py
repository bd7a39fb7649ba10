"""What a custom model gives to its loss, and whether its labels fit."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest

from tests.helpers import small_config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import DataError
from tpu_console.engine.models.compile import compile_model
from tpu_console.engine.models.label_checks import check_labels
from tpu_console.engine.models.outputs import logits_activation

layers = keras.layers
X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
SIGNATURE = Signature(Task.OWN, {"example": Input((4,))}, 3)


def config(**changes: Any) -> Any:
    return small_config(model="mine.py:build", model_options={}, dataset="mine.py:data", **changes)


def sequential(*stack: Any) -> Any:
    return keras.Sequential([keras.Input((4,)), *stack])


def functional(last: Any) -> Any:
    inputs = keras.Input((4,))
    return keras.Model(inputs, last(layers.Dense(3)(inputs)))


class Subclassed(keras.Model):  # type: ignore[misc]  # Keras is untyped
    """A model whose last layer Keras does not know."""

    def __init__(self, activation: str | None, units: int = 3) -> None:
        super().__init__()
        self.dense = layers.Dense(units, activation)

    def call(self, x: Any) -> Any:
        return self.dense(x) * 1.0


@pytest.mark.parametrize(
    ("model", "activation"),
    [
        (sequential(layers.Dense(3)), "softmax"),
        (sequential(layers.Dense(3, "softmax")), ""),
        (sequential(layers.Dense(3), layers.Softmax()), ""),
        (sequential(layers.Dense(3), layers.Activation("softmax", dtype="float32")), ""),
        (sequential(keras.Sequential([layers.Dense(3)])), "softmax"),
        (functional(keras.ops.softmax), ""),
        (functional(lambda x: x * 2), "softmax"),
        (Subclassed(None), "softmax"),
        (Subclassed("softmax"), ""),
    ],
)
def test_logits_are_found_by_the_last_layer_or_a_batch(model: Any, activation: str) -> None:
    assert logits_activation(model, config(), X) == activation


def test_two_classes_need_the_sigmoid_and_a_key_overrides_what_was_found() -> None:
    binary = config(loss="binary_crossentropy")
    assert logits_activation(sequential(layers.Dense(1)), binary, X) == "sigmoid"
    assert logits_activation(Subclassed("sigmoid", 1), binary, X) == ""
    assert logits_activation(sequential(layers.Dense(3)), config(outputs="probabilities"), X) == ""
    assert logits_activation(sequential(layers.Dense(3, "softmax")), config(outputs="logits"), X) == "softmax"
    assert logits_activation(sequential(layers.Dense(3)), config(loss="mean_squared_error"), X) == ""


def test_logits_get_the_same_loss_and_metrics_as_their_probabilities() -> None:
    labels = (X[:, :1] > 0).astype("float32")
    settings = config(loss="binary_crossentropy", metrics=["accuracy", "auc", "binary_accuracy"], label_smoothing=0.1)
    logits = sequential(layers.Dense(1))
    results = []
    for model, activation in ((logits, "sigmoid"), (sequential(logits, layers.Activation("sigmoid")), "")):
        compile_model(model, settings, SIGNATURE, 1, 2, activation=activation)
        results.append(model.evaluate(X, labels, verbose=0, return_dict=True))
    assert results[0] == pytest.approx(results[1], rel=1e-4)
    assert set(results[0]) == {"loss", *settings.metrics}


@pytest.mark.parametrize(
    ("loss", "units", "labels", "says"),
    [
        ("sparse_categorical_crossentropy", 3, np.array([0.5, 1.25]), "decimal numbers.*loss=mean_squared_error"),
        ("sparse_categorical_crossentropy", 1, np.array([0, 1]), "a single one.*loss=binary_crossentropy"),
        ("sparse_categorical_crossentropy", 3, np.array([0, 3]), "A label is 3, but the model gives 3 values"),
        ("sparse_categorical_crossentropy", 3, np.eye(3), "a label has 3 values.*loss=categorical_crossentropy"),
        ("categorical_crossentropy", 3, np.array([0, 2]), "loss=sparse_categorical_crossentropy"),
        ("binary_crossentropy", 1, np.array([0, 2]), "they go from 0 to 2.*loss=sparse_categorical_crossentropy"),
        ("binary_crossentropy", 1, np.array([0.0, 7.5]), "from 0 to 7.5.*loss=mean_squared_error"),
        ("binary_crossentropy", 3, np.array([0, 1]), "as many labels as outputs"),
        ("mean_squared_error", 3, np.array([0.5, 1.0]), "A label has 1 number, but the model gives 3 values"),
    ],
)
def test_labels_that_do_not_fit_name_the_loss_that_does(loss: str, units: int, labels: Any, says: str) -> None:
    for model in (sequential(layers.Dense(units)), Subclassed(None, units)):
        with pytest.raises(DataError) as refused:
            check_labels(config(loss=loss), model, X, labels)
        assert re.search(says, str(refused.value)), str(refused.value)


@pytest.mark.parametrize(
    ("loss", "units", "labels"),
    [
        ("sparse_categorical_crossentropy", 3, np.array([[0.0], [2.0]])),
        ("categorical_crossentropy", 3, np.eye(3)),
        ("binary_crossentropy", 1, np.array([0.0, 1.0])),
        ("binary_crossentropy", 3, np.eye(3)),
        ("mean_squared_error", 1, np.array([3, 4])),
        ("mean_squared_error", 3, np.ones((2, 3))),
        ("poisson", 3, np.array([-0.5])),
    ],
)
def test_labels_that_fit_are_accepted(loss: str, units: int, labels: Any) -> None:
    check_labels(config(loss=loss), sequential(layers.Dense(units)), X, labels)
