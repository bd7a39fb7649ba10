"""Small steps as anyone would train them without the console, with one way of watching or none.

Writes one JSON object with each epoch's end into a file, because a progress bar takes the output.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tests.bench.plain_fashion import EpochClock
from tests.bench.small_parts import CLASSES, EXAMPLES, FEATURES, build, data

BATCH = 64
WAYS = ("nothing", "bridge", "progress-bar", "tensorboard")


def main() -> None:
    """Read the options, train, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--result", type=Path, required=True, help="the file to write")
    options = parser.parse_args()
    keras.utils.set_random_seed(0)
    examples, _ = data()
    batches = examples.cache().shuffle(EXAMPLES).repeat().batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    model = build((FEATURES,), CLASSES)
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    clock = EpochClock()
    with tempfile.TemporaryDirectory() as folder:
        model.fit(
            batches,
            epochs=options.epochs,
            steps_per_epoch=options.steps,
            callbacks=[*_watching(options.way, folder), clock],
            verbose=1 if options.way == "progress-bar" else 0,
        )
    options.result.write_text(json.dumps({"ended_at": clock.ended_at}), encoding="utf-8")


def _watching(way: str, folder: str) -> list[Any]:
    if way == "bridge":
        from engine import BridgeCallback

        return [BridgeCallback("small-steps")]
    if way == "tensorboard":
        return [keras.callbacks.TensorBoard(folder, update_freq="batch")]
    return []


if __name__ == "__main__":
    main()
