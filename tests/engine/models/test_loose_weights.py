"""Layers that a custom model uses without owning them."""

from __future__ import annotations

import inspect
from typing import Any

import keras
import pytest
import tensorflow as tf
from keras import layers

from tpu_console.engine.errors import UserCodeError
from tpu_console.engine.models.build import refuse_loose_weights

IMAGES = tf.TensorSpec((None, 4, 4), tf.float32)
TABLE = layers.Dense(3)


class Created(keras.Model):  # type: ignore[misc]  # Keras is untyped
    """The usual mistake."""

    def __init__(self) -> None:
        super().__init__()
        self.head = layers.Dense(2)

    def call(self, x: Any) -> Any:
        x = layers.Dense(3, activation="relu")(x)
        return self.head(layers.MultiHeadAttention(1, 2)(x, x))


class Block(layers.Layer):  # type: ignore[misc]
    """The same in a layer, which states its output's shape."""

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], 3)

    def call(self, x: Any) -> Any:
        return Scale()(keras.Sequential([layers.Dense(3)])(x))


class Scale(layers.Layer):  # type: ignore[misc]
    """A layer as it should be."""

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=shape[-1:], initializer="ones")

    def call(self, x: Any) -> Any:
        return x * self.scale


class Global(keras.Model):  # type: ignore[misc]
    """Uses a layer that is no attribute."""

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
