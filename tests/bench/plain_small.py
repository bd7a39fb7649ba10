"""Small steps as anyone would train them without the console, with one way of watching or none."""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import keras
import tensorflow as tf

from tests.bench.small_parts import CLASSES, EXAMPLES, FEATURES, build, data

BATCH = 64
WAYS = ("nothing", "bridge", "progress-bar", "tensorboard")


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    batches, model = parts()
    with tempfile.TemporaryDirectory() as folder:
        fit = {"epochs": options.epochs, "steps_per_epoch": options.steps}
        model.fit(batches, **fit, **watching(options.way, folder))


def parts() -> tuple[tf.data.Dataset, keras.Model]:
    """Return the batches and the compiled model."""
    keras.utils.set_random_seed(0)
    examples, _ = data()
    batches = examples.cache().shuffle(EXAMPLES).repeat().batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    model = build((FEATURES,), CLASSES)
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return batches, model


def watching(way: str, folder: str) -> dict[str, Any]:
    """Return the arguments of `fit` for a way of watching; TensorBoard writes into the folder."""
    callbacks: list[Any] = []
    if way == "bridge":
        from tpu_console import BridgeCallback

        callbacks = [BridgeCallback("small-steps")]
    elif way == "tensorboard":
        callbacks = [keras.callbacks.TensorBoard(folder, update_freq="batch")]
    return {"callbacks": callbacks, "verbose": 1 if way == "progress-bar" else 0}


if __name__ == "__main__":
    main()
