"""Small steps as anyone would train them without the console, with one way of watching or none.

With `--turns`, measures instead the processor time of what Keras calls after a step, for each way in turn, and writes
the seconds per step in each turn into a file, because a progress bar takes the output. All ways take turns in one
process, because the same call may take a third longer in another one."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tests.bench.small_parts import CLASSES, EXAMPLES, FEATURES, build, data

BATCH = 64
_STEPS, _FIRST = 400, 50
WAYS = ("nothing", "bridge", "progress-bar", "tensorboard")


def main() -> None:
    """Read the options, and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", nargs="?", default=WAYS[0], choices=WAYS)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=_STEPS)
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--result", type=Path, help="the file to write")
    options = parser.parse_args()
    batches, model = parts()
    if options.turns:
        seconds = step_ends(batches, model, options.turns)
        options.result.write_text(json.dumps(seconds), encoding="utf-8")
        return
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


class StepEnds:
    """Takes the processor time of all callbacks at a step's end, in whichever thread Keras calls them."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        called = keras.callbacks.CallbackList._on_train_batch_end

        def timed(callbacks: Any, batch: int, logs: dict[str, float] | None = None) -> None:
            began = time.thread_time()
            called(callbacks, batch, logs)
            self._seconds.append(time.thread_time() - began)

        keras.callbacks.CallbackList._on_train_batch_end = timed

    def take(self) -> float:
        """Return the seconds per step since the last call, without the first steps."""
        counted, self._seconds = self._seconds[_FIRST:], []
        return sum(counted) / len(counted)


def step_ends(batches: tf.data.Dataset, model: keras.Model, turns: int) -> dict[str, list[float]]:
    """Train in each way in turn; return the processor seconds per step that Keras's calls after it took."""
    model.fit(batches, steps_per_epoch=_STEPS, verbose=0)
    ends = StepEnds()
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(turns):
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                model.fit(batches, steps_per_epoch=_STEPS, **watching(way, folder))
            seconds[way].append(ends.take())
    return seconds


if __name__ == "__main__":
    main()
