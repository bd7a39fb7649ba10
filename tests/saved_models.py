"""Real SavedModels as people find them: exported by Keras, in TensorFlow Hub's second format, and from TensorFlow 1."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

FEATURES = 6


def weights() -> Any:
    """Weights of a layer that tells colours apart."""
    return np.random.default_rng(5).normal(size=(3, FEATURES)).astype(np.float32)


def exported(folder: Path) -> str:
    """Export a Keras model that turns images of any size into a map of features, as `model.export` does."""
    model = keras.Sequential([keras.Input((None, None, 3)), keras.layers.Conv2D(FEATURES, 1, activation="relu")])
    model.layers[-1].set_weights([weights().reshape(1, 1, 3, FEATURES), np.zeros(FEATURES)])
    model.export(folder, verbose=False)
    return str(folder)


class _Reusable(tf.Module):  # type: ignore[misc]  # TensorFlow is untyped
    """What TensorFlow Hub asks of a reusable SavedModel."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(weights(), name="block/kernel")
        self.mean = tf.Variable(tf.zeros(3), trainable=False, name="block/mean")
        penalty = tf.function(lambda: 0.01 * tf.reduce_sum(self.kernel**2), input_signature=[])
        self.regularization_losses = [penalty]

    @tf.function(input_signature=[tf.TensorSpec((None, None, None, 3)), tf.TensorSpec((), tf.bool)])  # type: ignore[untyped-decorator]
    def __call__(self, images: Any, training: Any = False) -> Any:
        colors = tf.reduce_mean(images, (1, 2))
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(colors, 0))
        return tf.nn.relu((colors - self.mean) @ self.kernel)


def reusable(folder: Path) -> str:
    """Save a module that is called itself, has variables to train, and behaves otherwise in training."""
    tf.saved_model.save(_Reusable(), str(folder))
    return str(folder)


def from_tf1(folder: Path, size: int = 32, outputs: int = 1) -> str:
    """Save a graph of TensorFlow 1, which has nothing but a signature for images of one size."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        images = v1.placeholder(tf.float32, (None, size, size, 3), name="images")
        kernel = v1.get_variable("kernel", initializer=weights())
        features = tf.nn.relu(tf.reduce_mean(images, (1, 2)) @ kernel)
        session.run(v1.global_variables_initializer())
        named = {f"part{index}": features for index in range(outputs)}
        v1.saved_model.simple_save(session, str(folder), {"images": images}, named)
    return str(folder)


def silent(folder: Path) -> str:
    tf.saved_model.save(tf.Module(), str(folder))
    return str(folder)


def with_signatures(folder: Path, names: tuple[str, ...]) -> str:
    """Save a module with some signatures, each of which takes two tensors."""
    module = tf.Module()
    spec = tf.TensorSpec((None, 32, 32, 3))
    add = tf.function(lambda a, b: {"sum": a + b}, input_signature=[spec, spec])
    tf.saved_model.save(module, str(folder), signatures=dict.fromkeys(names, add))
    return str(folder)


COLORS = '''
"""A person's own dataset: squares of three colours on noise."""
import numpy as np
import tensorflow as tf

def colors(count=96, size=32, seed=1):
    random = np.random.default_rng(seed)
    def made(count):
        labels = np.arange(count) % 3
        images = random.uniform(0, 0.4, (count, size, size, 3)).astype("float32")
        images[np.arange(count), ..., labels] += 0.5
        return tf.data.Dataset.from_tensor_slices((images, labels))
    return made(count), made(24)
'''
"""Text of a module whose `colors` makes a dataset that every base with colours in its features can learn."""
