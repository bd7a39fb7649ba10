# mypy: ignore-errors
"""Models that no TPU program can be made of; no layer says the shape of its output, as most people write them."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras import layers, ops


def _model(layer):
    def build(input_shape, classes):
        first = [keras.Input(input_shape), layers.Flatten(), layers.Dense(16, name="first")]
        return keras.Sequential([*first, layer(), layers.Dense(classes, activation="softmax", name="head")])

    return build


def _layer(name, call):
    """Return a function of a model with a layer of that name whose `call` this is."""
    call.__code__ = call.__code__.replace(co_name="call")
    kind = type(name.title(), (layers.Layer,), {"call": call})
    return _model(lambda: kind(name=name))


def _count(x):
    return ops.cast(ops.max(x), "int32")


def _branch(self, x):
    if ops.mean(x) > 0:
        return x
    return -x


def _checked(self, x):
    assert ops.all(x >= 0), "pixels below zero"
    return x


def _counted(self, x):
    for _ in range(int(ops.sum(x))):
        x = x + 1
    return x


def _flow(self, x):
    import tensorflow as tf

    return tf.nn.relu(x)


def _spelled(self, x):
    import tensorflow as tf

    return ops.cast(tf.strings.length(tf.strings.as_string(x)), "float32")


def _assigns(self, x):
    x[:, 0] = 0
    return x


def _broken(self, x):
    raise ValueError("the wheel came off")


def _limited(self, x):
    (doubled,) = ops.while_loop(lambda y: ops.max(y) < 9, lambda y: (y * 2,), (x,), maximum_iterations=5)
    return doubled


CALLS = {
    "branch": _branch,
    "both": lambda self, x: x * ops.cast((x > 0) and (x < 1), "float32"),
    "checked": _checked,
    "numpy": lambda self, x: ops.convert_to_tensor(np.sort(np.asarray(x))),
    "eager": lambda self, x: x.numpy() * 2,
    "scaled": lambda self, x: x * float(ops.max(x)),
    "item": lambda self, x: x * x[0, 0].item(),
    "named": lambda self, x: x * len(f"{ops.mean(x):.2f}"),
    "counted": _counted,
    "torch": lambda self, x: x.detach(),
    "mask": lambda self, y: y[y > 0],
    "nonzero": lambda self, x: ops.take(x, ops.nonzero(x)[0], axis=0),
    "unique": lambda self, x: jnp.unique(x)[:10],
    "largest": lambda self, x: ops.top_k(x, _count(x))[0],
    "coded": lambda self, x: ops.one_hot(ops.argmax(x, -1), _count(x)),
    "cut": lambda self, x: x[:, : _count(x)],
    "rows": lambda self, x: ops.stack([row * 2 for row in x]),
    "vanishing": lambda self, x: ops.reshape(x, (int(x.shape[0]) // 2, -1)),
    "flow": _flow,
    "spelled": _spelled,
    "words": lambda self, x: ops.convert_to_tensor(["a"]),
    "noisy": lambda self, x: x + keras.random.normal(ops.shape(x)),
    "assigns": _assigns,
    "plus": lambda self, x: x + np.zeros((3, 3), "float32"),
    "broken": _broken,
    "looped": lambda self, x: ops.while_loop(lambda i, y: i < _count(x), lambda i, y: (i + 1, y * 2), (0, x))[1],
    "limited": _limited,
    "either": lambda self, x: ops.cond(ops.mean(x) > 0, lambda: x, lambda: x[:, :8]),
    "created": lambda self, x: layers.Dense(16)(x),
}
globals().update({name: _layer(name, call) for name, call in CALLS.items()})
lookup = _model(lambda: layers.IntegerLookup(vocabulary=[1, 2], name="lookup"))
plain = masking = measuring = _model(layers.ReLU)


class Late(layers.Layer):
    """Says that the shape stays, so that it is not called before the step is traced."""

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)

    def call(self, x):
        return x if x.mean() > 0 else -x


def deep(input_shape, classes):
    inner = keras.Sequential([layers.Flatten(), Late(name="deep")])
    return keras.Sequential([keras.Input(input_shape), inner, layers.Dense(classes, activation="softmax")])


def remembers(input_shape, classes):
    kept = []
    jax.jit(kept.append)(1.0)
    return kept[0] + 1


def crops(input_shape, classes):
    crops = layers.RandomCrop(6, 6, name="crops"), layers.CenterCrop(5, 5)
    head = layers.Dense(classes, activation="softmax")
    return keras.Sequential([keras.Input(input_shape), *crops, layers.Flatten(), head])


def picked(input_shape, classes):
    x = keras.Input(input_shape)
    side = layers.Lambda(lambda x: x if ops.mean(x) > 0 else -x, name="picked")
    return keras.Model(x, layers.Dense(classes, activation="softmax")(side(layers.Flatten()(x))))


class Narrow(keras.Model):
    def __init__(self, classes):
        super().__init__()
        self.flat, self.head = layers.Flatten(), layers.Dense(classes, activation="softmax")

    def call(self, x):
        y = self.flat(x)
        while ops.max(y) > 1:
            y = y / 2
        return self.head(y)


def narrow(input_shape, classes):
    return Narrow(classes)


class Trainer(keras.Model):
    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables))
        return {"loss": loss}


def trainer(input_shape, classes):
    x = keras.Input(input_shape)
    return Trainer(x, layers.Dense(classes, activation="softmax")(layers.Flatten()(x)))


def several(input_shape, classes):
    x, y = keras.Input(input_shape), keras.Input((3,))
    return keras.Model([x, y], layers.Dense(classes)(layers.Concatenate()([layers.Flatten()(x), y])))


def two(input_shape, classes):
    x = keras.Input(input_shape)
    y = layers.Flatten()(x)
    return keras.Model(x, [layers.Dense(classes, name="kind")(y), layers.Dense(1, name="price")(y)])


def other_shape(input_shape, classes):
    return keras.Sequential([keras.Input((28, 28, 1)), layers.Flatten(), layers.Dense(classes, activation="softmax")])


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
