"""A model and a dataset whose step takes about a millisecond, for the console and for the plain script alike.

With `COUNTER` in the environment, the model counts its steps in the file that it names.
"""

import mmap
import os
import struct
from pathlib import Path
from typing import Any

COUNTER = "SMALL_PARTS_COUNTER"
EXAMPLES, FEATURES, CLASSES = 16_384, 64, 10
_COUNT = struct.Struct("<Q")


def data() -> tuple[Any, None]:
    """Return generated examples, unbatched, without validation data."""
    import numpy as np
    import tensorflow as tf

    generator = np.random.default_rng(0)
    x = generator.standard_normal((EXAMPLES, FEATURES), dtype=np.float32)
    y = generator.integers(0, CLASSES, EXAMPLES, dtype=np.int32)
    return tf.data.Dataset.from_tensor_slices((x, y)), None


def build(input_shape: tuple[int, ...], classes: int) -> Any:
    import keras

    dense = keras.layers.Dense
    layers = [
        keras.Input(input_shape),
        dense(256, activation="relu"),
        dense(256, activation="relu"),
        dense(classes, activation="softmax"),
    ]
    if COUNTER not in os.environ:
        return keras.Sequential(layers)
    counter = Path(os.environ[COUNTER])

    class Counted(keras.Sequential):  # type: ignore[misc]  # Keras is untyped
        train_function: Any

        def make_train_function(self, force: bool = False) -> None:
            before = self.train_function
            super().make_train_function(force)
            if self.train_function is not before:
                self.train_function = _counted(self.train_function, self.steps_per_execution, counter)

    return Counted(layers)


def _counted(train: Any, steps: int, counter: Path) -> Any:
    counter.write_bytes(_COUNT.pack(0))
    with counter.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), _COUNT.size)
    done = 0

    def counted(*state_and_iterator: Any) -> Any:
        nonlocal done
        logs = train(*state_and_iterator)
        done += steps
        _COUNT.pack_into(shared, 0, done)
        return logs

    return counted


def read_count(counter: Path) -> int:
    """Return the steps in a counter's file; 0 before the first."""
    try:
        return int(_COUNT.unpack(counter.read_bytes())[0])
    except (FileNotFoundError, struct.error):
        return 0
