"""The preset `fashion-mnist-cnn` as anyone would write it without the console.

Prints one JSON object: when the first step ended (with ``--first-step``), or each epoch's seconds.
"""

import argparse
import json
import time
from typing import Any

import keras
import tensorflow as tf


class FirstStep(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Notes when the first step ended, and stops."""

    ended_at = 0.0

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.ended_at = self.ended_at or time.time()
        self.model.stop_training = True


def train(callback: Any, epochs: int, steps: int) -> None:
    keras.utils.set_random_seed(1)
    (x_train, y_train), (x_test, y_test) = keras.datasets.fashion_mnist.load_data()

    def prepare(x: Any, y: Any) -> Any:
        return tf.cast(x, tf.float32), y

    data = (
        tf.data.Dataset.from_tensor_slices((x_train[..., None], y_train))
        .cache()
        .shuffle(60_000)
        .repeat()
        .batch(1000, drop_remainder=True)
        .map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )
    test = tf.data.Dataset.from_tensor_slices((x_test[..., None], y_test)).cache().batch(1000).map(prepare).prefetch(2)
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(64, 3),
            keras.layers.MaxPooling2D(2),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        data,
        epochs=epochs,
        steps_per_epoch=steps,
        validation_data=test,
        validation_freq=epochs,
        callbacks=[callback],
        verbose=0,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--first-step", action="store_true")
    options = parser.parse_args()
    if options.first_step:
        first = FirstStep()
        train(first, 1, options.steps)
        print(json.dumps({"first_step_at": first.ended_at}), flush=True)
        return
    ended_at: list[float] = []
    # It has no batch hooks, so that `fit` stays as it is.
    clock = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: ended_at.append(time.perf_counter()))
    train(clock, options.epochs, options.steps)
    print(json.dumps({"ended_at": ended_at}), flush=True)


if __name__ == "__main__":
    main()
