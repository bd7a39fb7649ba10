"""Segmentation from a `PyDataset`."""

import keras
import numpy as np
from keras import layers


class Pictures(keras.utils.PyDataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        images = np.random.default_rng(index).normal(size=(8, 16, 16, 1)).astype("float32")
        return images, (images[..., 0] > 0).astype("int32")


def build(input_shape, classes):
    inputs = keras.Input(input_shape)
    small = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(inputs)
    large = layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="relu")(small)
    return keras.Model(inputs, layers.Conv2D(2, 1)(layers.Concatenate()([inputs, large])))


def data():
    return Pictures(), Pictures()
