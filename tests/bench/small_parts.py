"""A model and a dataset whose step takes about a millisecond, for the console and for the plain script alike."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

EXAMPLES, FEATURES, CLASSES = 16_384, 64, 10


def data() -> tuple[Any, None]:
    """Return generated examples, unbatched, without validation data."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((EXAMPLES, FEATURES), dtype=np.float32)
    y = generator.integers(0, CLASSES, EXAMPLES, dtype=np.int32)
    return tf.data.Dataset.from_tensor_slices((x, y)), None


def build(input_shape: tuple[int, ...], classes: int) -> Any:
    """Return an uncompiled perceptron."""
    dense = keras.layers.Dense
    return keras.Sequential(
        [
            keras.Input(input_shape),
            dense(256, activation="relu"),
            dense(256, activation="relu"),
            dense(classes, activation="softmax"),
        ]
    )
