# mypy: ignore-errors
"""Models that no TPU program can be made of; no layer says the shape of its output, as most people write them."""

import jax.numpy as jnp
import keras
import numpy as np
from keras import layers, ops


class Branch(layers.Layer):
    def call(self, x):
        if ops.mean(x) > 0:
            return x
        return -x


class Sorted(layers.Layer):
    def call(self, x):
        return ops.convert_to_tensor(np.sort(np.asarray(x)))


class Masked(layers.Layer):
    def call(self, y):
        return y[y > 0]


class Counted(layers.Layer):
    def call(self, x):
        for _ in range(int(ops.sum(x))):
            x = x + 1
        return x


class Flow(layers.Layer):
    def call(self, x):
        import tensorflow as tf

        return tf.nn.relu(x)


class Rows(layers.Layer):
    def call(self, x):
        return ops.stack([row * 2 for row in x])


class Unique(layers.Layer):
    def call(self, x):
        return jnp.unique(x)[:10]


class Noisy(layers.Layer):
    def call(self, x):
        return x + keras.random.normal(ops.shape(x))


class Assigns(layers.Layer):
    def call(self, x):
        x[:, 0] = 0
        return x


class Plus(layers.Layer):
    def call(self, x):
        return x + np.zeros((3, 3), "float32")


def _count(x):
    return ops.cast(ops.max(x), "int32")


class Looped(layers.Layer):
    def call(self, x):
        return ops.while_loop(lambda i, y: i < _count(x), lambda i, y: (i + 1, y * 2), (0, x))[1]


class Largest(layers.Layer):
    def call(self, x):
        count = _count(x)
        return ops.top_k(x, count)[0]


class Cut(layers.Layer):
    def call(self, x):
        length = _count(x)
        return x[:, :length]


class Either(layers.Layer):
    def call(self, x):
        return ops.cond(ops.mean(x) > 0, lambda: x, lambda: x[:, :8])


class Words(layers.Layer):
    def call(self, x):
        return ops.convert_to_tensor(["a"])


class Spelled(layers.Layer):
    def call(self, x):
        import tensorflow as tf

        return ops.cast(tf.strings.length(tf.strings.as_string(x)), "float32")


class Created(layers.Layer):
    def call(self, x):
        return layers.Dense(16)(x)


class Narrow(keras.Model):
    def __init__(self, classes):
        super().__init__()
        self.flat, self.head = layers.Flatten(), layers.Dense(classes, activation="softmax")

    def call(self, x):
        y = self.flat(x)
        while ops.max(y) > 1:
            y = y / 2
        return self.head(y)


class Trainer(keras.Model):
    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables))
        return {"loss": loss}


def _with(layer):
    def build(input_shape, classes):
        first = [keras.Input(input_shape), layers.Flatten(), layers.Dense(16, name="first")]
        return keras.Sequential([*first, layer(), layers.Dense(classes, activation="softmax", name="head")])

    return build


numpy, mask, counted, flow, rows, unique = map(_with, (Sorted, Masked, Counted, Flow, Rows, Unique))
looped, largest, cut, either, noisy = map(_with, (Looped, Largest, Cut, Either, Noisy))
assigns, plus, created, words, spelled = map(_with, (Assigns, Plus, Created, Words, Spelled))


def cropped(input_shape, classes):
    crops = layers.RandomCrop(6, 6, name="crops"), layers.CenterCrop(5, 5)
    head = layers.Dense(classes, activation="softmax")
    return keras.Sequential([keras.Input(input_shape), *crops, layers.Flatten(), head])


def several(input_shape, classes):
    x, y = keras.Input(input_shape), keras.Input((3,))
    return keras.Model([x, y], layers.Dense(classes)(layers.Concatenate()([layers.Flatten()(x), y])))


def two(input_shape, classes):
    x = keras.Input(input_shape)
    y = layers.Flatten()(x)
    return keras.Model(x, [layers.Dense(classes, name="kind")(y), layers.Dense(1, name="price")(y)])


def subclass(input_shape, classes):
    return Narrow(classes)


def function(input_shape, classes):
    x = keras.Input(input_shape)
    y = Branch(name="sided")(layers.Flatten()(x))
    return keras.Model(x, layers.Dense(classes, activation="softmax")(y))


def trainer(input_shape, classes):
    x = keras.Input(input_shape)
    return Trainer(x, layers.Dense(classes, activation="softmax")(layers.Flatten()(x)))


def other_shape(input_shape, classes):
    return keras.Sequential([keras.Input((28, 28, 1)), layers.Flatten(), layers.Dense(classes, activation="softmax")])


def plain(input_shape, classes):
    return _with(layers.ReLU)(input_shape, classes)


measuring = plain


def loss(y, predicted):
    errors = -ops.log(ops.take_along_axis(predicted, ops.cast(y, "int32")[:, None], axis=-1))
    if ops.mean(errors) > 10:
        errors = ops.ones_like(errors)
    return errors


def measured(y, predicted):
    return float(ops.mean(predicted)) * predicted
