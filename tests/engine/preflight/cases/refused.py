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


class Scaled(layers.Layer):
    def call(self, x):
        return x * float(ops.max(x))


class Counted(layers.Layer):
    def call(self, x):
        for _ in range(int(ops.sum(x))):
            x = x + 1
        return x


class Eager(layers.Layer):
    def call(self, x):
        return x.numpy() * 2


class Flow(layers.Layer):
    def call(self, x):
        import tensorflow as tf

        return tf.nn.relu(x)


class Nonzero(layers.Layer):
    def call(self, x):
        return ops.take(x, ops.nonzero(x)[0], axis=0)


class Item(layers.Layer):
    def call(self, x):
        return x * x[0, 0].item()


class Rows(layers.Layer):
    def call(self, x):
        return ops.stack([row * 2 for row in x])


class Unique(layers.Layer):
    def call(self, x):
        return jnp.unique(x)[:10]


class Checked(layers.Layer):
    def call(self, x):
        assert ops.all(x >= 0), "pixels below zero"
        return x


class Vanishing(layers.Layer):
    def call(self, x):
        return ops.reshape(x, (int(x.shape[0]) // 2, -1))


class Broken(layers.Layer):
    def call(self, x):
        raise ValueError("the wheel came off")


class Noisy(layers.Layer):
    def call(self, x):
        return x + keras.random.normal(ops.shape(x))


class Assigns(layers.Layer):
    def call(self, x):
        x[:, 0] = 0
        return x


class Named(layers.Layer):
    def call(self, x):
        return x * len(f"{ops.mean(x):.2f}")


class Plus(layers.Layer):
    def call(self, x):
        return x + np.zeros((3, 3), "float32")


def _count(x):
    return ops.cast(ops.max(x), "int32")


class Looped(layers.Layer):
    def call(self, x):
        return ops.while_loop(lambda i, y: i < _count(x), lambda i, y: (i + 1, y * 2), (0, x))[1]


class Limited(layers.Layer):
    def call(self, x):
        return ops.while_loop(lambda y: ops.max(y) < 9, lambda y: (y * 2,), (x,), maximum_iterations=5)[0]


class Largest(layers.Layer):
    def call(self, x):
        count = _count(x)
        return ops.top_k(x, count)[0]


class Coded(layers.Layer):
    def call(self, x):
        return ops.one_hot(ops.argmax(x, -1), _count(x))


class Cut(layers.Layer):
    def call(self, x):
        length = _count(x)
        return x[:, :length]


class Either(layers.Layer):
    def call(self, x):
        return ops.cond(ops.mean(x) > 0, lambda: x, lambda: x[:, :8])


class Both(layers.Layer):
    def call(self, x):
        return x * ops.cast((x > 0) and (x < 1), "float32")


class Spelled(layers.Layer):
    def call(self, x):
        import tensorflow as tf

        return ops.cast(tf.strings.length(tf.strings.as_string(x)), "float32")


class Torch(layers.Layer):
    def call(self, x):
        return x.detach()


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


branch, numpy, mask, number, counted = map(_with, (Branch, Sorted, Masked, Scaled, Counted))
eager, flow, nonzero, item, rows, broken = map(_with, (Eager, Flow, Nonzero, Item, Rows, Broken))
unique, checked, vanishing = map(_with, (Unique, Checked, Vanishing))
looped, limited, largest, coded, cut = map(_with, (Looped, Limited, Largest, Coded, Cut))
either, both, spelled, torch = map(_with, (Either, Both, Spelled, Torch))
noisy, assigns, plus, named, created = map(_with, (Noisy, Assigns, Plus, Named, Created))


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


def anonymous(input_shape, classes):
    layer = layers.Lambda(
        lambda x: x if ops.mean(x) > 0 else -x,
        name="picked",
    )
    return _with(lambda: layer)(input_shape, classes)


def trainer(input_shape, classes):
    x = keras.Input(input_shape)
    return Trainer(x, layers.Dense(classes, activation="softmax")(layers.Flatten()(x)))


def other_shape(input_shape, classes):
    return keras.Sequential([keras.Input((28, 28, 1)), layers.Flatten(), layers.Dense(classes, activation="softmax")])


def plain(input_shape, classes):
    return _with(layers.ReLU)(input_shape, classes)


masking = measuring = plain


def lookup(input_shape, classes):
    return _with(lambda: layers.IntegerLookup(vocabulary=[1, 2], name="numbers"))(input_shape, classes)


def loss(y, predicted):
    errors = -ops.log(ops.take_along_axis(predicted, ops.cast(y, "int32")[:, None], axis=-1))
    if ops.mean(errors) > 10:
        errors = ops.ones_like(errors)
    return errors


def masked(y, predicted):
    errors = -ops.log(ops.max(predicted, axis=-1))
    return ops.mean(errors[errors > 0.1])


def measured(y, predicted):
    return float(ops.mean(predicted)) * predicted
