# mypy: ignore-errors
"""Models that compile: some fit, some do not, and most have something to know about."""

import jax
import keras
from keras import layers, ops


def _model(input_shape, classes, *middle):
    end = layers.Dense(classes, activation="softmax", dtype="float32", name="head")
    return keras.Sequential([keras.Input(input_shape), *middle, end])


def fine(input_shape, classes):
    return _model(input_shape, classes, layers.Conv2D(128, 3, name="conv"), layers.GlobalAveragePooling2D())


def lstm(input_shape, classes):
    return _model(input_shape, classes, layers.Reshape((32, -1)), layers.LSTM(256, name="lstm"))


class Halving(layers.Layer):
    """Goes round until a value is small."""

    def call(self, x):
        y = ops.stop_gradient(x)
        y = ops.while_loop(lambda y: ops.max(y) > 1, lambda y: (y / 2,), (y,))[0]
        return x + ops.stop_gradient(y)

    def compute_output_shape(self, shape):
        return shape


def halving(input_shape, classes):
    return _model(input_shape, classes, layers.Flatten(), Halving(name="halves"))


def rotated(input_shape, classes):
    middle = layers.RandomRotation(0.1, name="turns"), layers.Conv2D(32, 3), layers.GlobalAveragePooling2D()
    return _model(input_shape, classes, *middle)


def wide(input_shape, classes):
    return _model(input_shape, classes, layers.Flatten(), layers.Dense(64, dtype="float64", name="wide"))


class Printed(layers.Layer):
    def call(self, x):
        jax.debug.print("{m}", m=ops.mean(x))
        return x

    def compute_output_shape(self, shape):
        return shape


def printed(input_shape, classes):
    return _model(input_shape, classes, layers.Flatten(), Printed(name="talks"))


def padded(input_shape, classes):
    return _model(input_shape, classes, layers.Flatten(), layers.Dense(70, name="odd"))


def _images(input_shape, classes, filters=128):
    convs = [layers.Conv2D(filters, 3, activation="relu", name=f"conv{n}") for n in range(3)]
    return _model(input_shape, classes, layers.UpSampling2D(7, name="up"), *convs, layers.GlobalAveragePooling2D())


def images(input_shape, classes):
    return _images(input_shape, classes)


def table(input_shape, classes):
    words = layers.Lambda(lambda x: ops.cast(x[..., :20], "int32"), output_shape=(20,), name="words")
    middle = layers.Flatten(), words, layers.Embedding(2_600_000, 512, name="table"), layers.GlobalAveragePooling1D()
    return _model(input_shape, classes, *middle)


def weights(input_shape, classes):
    return _model(input_shape, classes, layers.Flatten(), layers.Dense(600_000, activation="relu", name="huge"))


def attention(input_shape, classes):
    x = keras.Input(input_shape)
    y = layers.Reshape((1024, 3))(x)
    y = layers.Dense(128)(y)
    for n in range(2):
        y = y + layers.MultiHeadAttention(8, 16, name=f"attends{n}")(y, y)
    return keras.Model(x, layers.Dense(classes, activation="softmax")(layers.GlobalAveragePooling1D()(y)))
