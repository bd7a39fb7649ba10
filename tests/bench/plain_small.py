"""Small steps as anyone would train them without the console, with one way of watching or none.

Writes one JSON object into a file, because a progress bar takes the output: each epoch's end, and with ``--handling``
the processor time of what is called after a step.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tests.bench.plain_fashion import EpochClock
from tests.bench.small_parts import CLASSES, EXAMPLES, FEATURES, build, data

BATCH = 64
WAYS = ("nothing", "bridge", "progress-bar", "tensorboard")


class Handling:
    """Takes the processor time of all callbacks at a step's end, in whichever thread Keras calls them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        called = keras.callbacks.CallbackList._on_train_batch_end

        def timed(callbacks: Any, batch: int, logs: dict[str, float] | None = None) -> None:
            began = time.thread_time()
            called(callbacks, batch, logs)
            self.seconds.append(time.thread_time() - began)

        keras.callbacks.CallbackList._on_train_batch_end = timed

    def a_step(self, skipped: int) -> float:
        """Return the seconds a step, without the first ones."""
        counted = self.seconds[skipped:]
        return sum(counted) / len(counted)


def main() -> None:
    """Read the options, train, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--result", type=Path, required=True, help="the file to write")
    parser.add_argument("--handling", action="store_true")
    options = parser.parse_args()
    keras.utils.set_random_seed(0)
    examples, _ = data()
    batches = examples.cache().shuffle(EXAMPLES).repeat().batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    model = build((FEATURES,), CLASSES)
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    clock, handling = EpochClock(), Handling() if options.handling else None
    with tempfile.TemporaryDirectory() as folder:
        model.fit(
            batches,
            epochs=options.epochs,
            steps_per_epoch=options.steps,
            callbacks=[*_watching(options.way, folder), clock],
            verbose=1 if options.way == "progress-bar" else 0,
        )
    figures: dict[str, Any] = {"ended_at": clock.ended_at}
    if handling is not None:
        figures["handling_s"] = handling.a_step(options.steps)
    options.result.write_text(json.dumps(figures), encoding="utf-8")


def _watching(way: str, folder: str) -> list[Any]:
    if way == "bridge":
        from tpu_console import BridgeCallback

        return [BridgeCallback("small-steps")]
    if way == "tensorboard":
        return [keras.callbacks.TensorBoard(folder, update_freq="batch")]
    return []


if __name__ == "__main__":
    main()
