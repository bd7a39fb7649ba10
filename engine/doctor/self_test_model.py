"""The model of the self-test: a small CNN whose first weights are the same on every device and backend.

Backends and devices differ in their random numbers, so NumPy draws them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import keras


def build(input_shape: tuple[int, ...], classes: int) -> keras.Model:
    """Return the model."""
    from keras import Input, Sequential, layers

    model = Sequential(
        [
            Input(input_shape),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(classes, activation="softmax", dtype="float32"),
        ]
    )
    random = np.random.default_rng(7)
    model.set_weights([_first(random, weight.shape) for weight in model.weights])
    return model


def _first(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Draw weights as Glorot and Bengio do (2010); biases are zero."""
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    limit = math.sqrt(6 / (math.prod(shape[:-2]) * sum(shape[-2:])))
    return random.uniform(-limit, limit, shape).astype(np.float32)
