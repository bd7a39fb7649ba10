"""Builds a text classifier: convolutions over word embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from ..config.model_options import TextOptions
from ..errors import DataError
from .basic import classifier

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..data.examples import Signature


def text(config: RunConfig, signature: Signature) -> Any:
    """Build `text`: Keras's example "Text classification from scratch", with a softmax over any number of classes.

    Raises:
        DataError: The examples are not texts, or too short for the convolutions.
    """
    options = TextOptions.model_validate(config.model_options)
    if "vocabulary" not in signature.sizes:
        raise DataError("The model 'text' needs texts.", remedy="Use dataset = 'text-csv', or another model.")
    length = int(signature.shape[0] or 0)
    least = _least_length(options)
    if length < least:
        raise DataError(
            f"Texts of {length} words are too short for {len(options.filters)} convolutions over "
            f"{options.kernel_size} words.",
            remedy=f"Set data.options.length to at least {least}, or use fewer model_options.filters.",
        )
    layers = keras.layers
    stack: list[Any] = [keras.Input((length,), dtype="int32", name="text")]
    stack += [layers.Embedding(signature.sizes["vocabulary"], options.width), layers.Dropout(options.dropout)]
    for filters in options.filters:
        stack.append(layers.Conv1D(filters, options.kernel_size, strides=options.stride, activation="relu"))
    stack += [layers.GlobalMaxPooling1D(), layers.Dense(options.hidden, activation="relu")]
    return keras.Sequential([*stack, layers.Dropout(options.dropout), classifier(signature.classes)], name="text")


def _least_length(options: TextOptions) -> int:
    """Return the number of words that gives the last convolution one output."""
    length = 1
    for _ in options.filters:
        length = (length - 1) * options.stride + options.kernel_size
    return length
