"""Two inputs, and two outputs with a loss each; compiled by its function."""

import keras
import numpy as np
from keras import layers


def build(shapes, classes):
    title, tags = keras.Input(shapes["title"], name="title"), keras.Input(shapes["tags"], name="tags")
    words = layers.GlobalAveragePooling1D()(layers.Embedding(50, 8)(title))
    both = layers.Concatenate()([words, tags])
    outputs = {
        "urgency": layers.Dense(1, activation="sigmoid", name="urgency")(both),
        "team": layers.Dense(4, activation="softmax", name="team")(both),
    }
    model = keras.Model({"title": title, "tags": tags}, outputs)
    model.compile(
        keras.optimizers.Adam(0.01),
        loss={"urgency": "binary_crossentropy", "team": "sparse_categorical_crossentropy"},
        loss_weights={"urgency": 1.0, "team": 0.2},
        metrics={"team": ["accuracy"]},
    )
    return model


def data(tickets=120):
    random = np.random.default_rng(0)
    x = {"title": random.integers(0, 50, (tickets, 10)), "tags": random.integers(0, 2, (tickets, 12)).astype("float32")}
    return x, {"urgency": x["tags"][:, 0], "team": x["title"][:, 0] % 4}
