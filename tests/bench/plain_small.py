"""Small steps as anyone would train them without the console, bare or with `BridgeCallback`."""

import argparse

import keras
import tensorflow as tf

from tests.bench.small_parts import CLASSES, EXAMPLES, FEATURES, build, data

BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("bare", "bridge"))
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    callbacks = []
    if options.way == "bridge":
        from tpu_console import BridgeCallback

        callbacks = [BridgeCallback("small-steps")]
    keras.utils.set_random_seed(0)
    examples, _ = data()
    batches = examples.cache().shuffle(EXAMPLES).repeat().batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    model = build((FEATURES,), CLASSES)
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(batches, epochs=options.epochs, steps_per_epoch=options.steps, callbacks=callbacks, verbose=0)


if __name__ == "__main__":
    main()
