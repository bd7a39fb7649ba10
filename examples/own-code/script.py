"""A transformer in a script of its own, with `BridgeCallback`."""

import keras
import numpy as np
from keras import layers

from tpu_console import BridgeCallback

words = np.random.default_rng(0).integers(1, 100, (128, 20))
labels = (words[:, :10].sum(axis=1) > words[:, 10:].sum(axis=1)).astype("int32")
inputs = keras.Input((20,), dtype="int32")
embedded = layers.Embedding(100, 16)(inputs)
attended = layers.LayerNormalization()(embedded + layers.MultiHeadAttention(2, 8)(embedded, embedded))
model = keras.Model(inputs, layers.Dense(2, activation="softmax")(layers.GlobalAveragePooling1D()(attended)))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
callback = BridgeCallback("transformer", config={"heads": 2})
model.fit(words, labels, epochs=2, validation_split=0.2, verbose=0, callbacks=[callback])
