"""A GAN with two optimizers."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers


class Gan(keras.Model):
    def __init__(self):
        super().__init__()
        self.maker = keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(2)])
        self.judge = keras.Sequential([keras.Input((2,)), layers.Dense(8, activation="relu"), layers.Dense(1)])
        self.seen = keras.metrics.Mean(name="judge_loss")

    def compile(self, judge_optimizer, maker_optimizer):
        super().compile()
        self.judge_optimizer, self.maker_optimizer = judge_optimizer, maker_optimizer

    @property
    def metrics(self):
        return [self.seen]

    def train_step(self, real):
        noise = tf.random.normal((tf.shape(real)[0], 4))
        with tf.GradientTape(persistent=True) as tape:
            right, wrong = self.judge(real), self.judge(self.maker(noise))
            judge_loss, maker_loss = tf.reduce_mean(wrong - right), -tf.reduce_mean(wrong)
        parts = ((self.judge, self.judge_optimizer, judge_loss), (self.maker, self.maker_optimizer, maker_loss))
        for part, optimizer, loss in parts:
            optimizer.apply(tape.gradient(loss, part.trainable_variables), part.trainable_variables)
        self.seen.update_state(judge_loss)
        return {"judge_loss": self.seen.result()}


def build(input_shape, classes):
    model = Gan()
    model.compile(keras.optimizers.Adam(0.001), keras.optimizers.Adam(0.001))
    return model


def data():
    return tf.data.Dataset.from_tensor_slices(np.random.default_rng(0).normal(size=(96, 2)).astype("float32"))
