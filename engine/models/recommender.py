"""Builds recommenders: matrix factorisation (Koren et al. 2009), or two towers of dense layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from ..config.model_options import RecommenderOptions
from ..data.examples import Task
from ..errors import DataError

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..data.examples import Signature


def recommender(config: RunConfig, signature: Signature) -> Any:
    """Build `recommender`: the mean rating, plus biases of user and item, plus the product of their vectors.

    Inputs ``user`` and ``item`` are numbers of shape ``()``; the output has shape ``(1,)``.

    Raises:
        DataError: The examples are not ratings.
    """
    options = RecommenderOptions.model_validate(config.model_options)
    if signature.task is not Task.RATINGS:
        raise DataError(
            "The model 'recommender' needs users, items and ratings.",
            remedy="Use dataset = 'ratings-csv', or another model.",
        )
    inputs = {name: keras.Input((), dtype="int32", name=name) for name in ("user", "item")}
    vectors, biases = [], []
    for name, numbers in inputs.items():
        count = signature.sizes[f"{name}s"]
        vectors.append(_vector(numbers, count, options, name))
        biases.append(_embedding(count, 1, options, f"{name}_bias", "zeros")(numbers))
    suits = keras.layers.Dot(axes=1)(vectors)
    score = keras.layers.Add()([suits, *biases])
    # Always float32: 16 bits resolve ratings only to hundredths.
    rating = keras.layers.Rescaling(1.0, offset=signature.label_mean, dtype="float32", name="rating")(score)
    return keras.Model(inputs, rating, name="recommender")


def _vector(numbers: Any, count: int, options: RecommenderOptions, name: str) -> Any:
    vector = _embedding(count, options.width, options, f"{name}_factors", "he_normal")(numbers)
    if options.kind == "towers":
        for index, units in enumerate(options.hidden, 1):
            is_last = index == len(options.hidden)
            layer = keras.layers.Dense(units, activation=None if is_last else "relu", name=f"{name}_dense_{index}")
            vector = layer(vector)
    return vector


def _embedding(count: int, width: int, options: RecommenderOptions, name: str, initializer: str) -> Any:
    penalty = keras.regularizers.L2(options.regularisation) if options.regularisation else None
    return keras.layers.Embedding(
        count, width, embeddings_initializer=initializer, embeddings_regularizer=penalty, name=name
    )
