"""Small models for images and vectors: a convolutional network and dense layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from engine.errors import DataError
from engine.model_options import CnnOptions, MlpOptions

if TYPE_CHECKING:
    from engine.config import RunConfig
    from engine.examples import Signature


def cnn(config: RunConfig, signature: Signature) -> Any:
    """Build `cnn`.

    Raises:
        DataError: The examples are not images, or too small for it.
    """
    options = CnnOptions.model_validate(config.model_options)
    return _cnn(options, signature.shape, signature.classes)


def mlp(config: RunConfig, signature: Signature) -> Any:
    """Build `mlp`."""
    options = MlpOptions.model_validate(config.model_options)
    return _mlp(options, signature.shape, signature.classes)


def _cnn(options: CnnOptions, input_shape: tuple[int | None, ...], classes: int) -> Any:
    layers = keras.layers
    if len(input_shape) != 3:
        raise DataError(
            f"The model 'cnn' needs images of shape (height, width, channels); the examples have shape {input_shape}.",
            remedy="Use model = 'mlp', or a model of your own.",
        )
    stack: list[Any] = [keras.Input(input_shape)]
    for filters in options.filters:
        for index in range(options.convolutions):
            stack.append(layers.Conv2D(filters, options.kernel_size, padding=options.padding))
            if options.batch_norm:
                stack.append(layers.BatchNormalization())
            if index < options.convolutions - 1:
                stack.append(layers.ReLU())
        # ReLU after the pooling: the result is the same, on a quarter of the values.
        stack += [layers.MaxPooling2D(2), layers.ReLU()]
    stack.append(layers.Flatten())
    stack += [layers.Dense(units, activation="relu") for units in options.hidden]
    if options.dropout:
        stack.append(layers.Dropout(options.dropout))
    try:
        return keras.Sequential([*stack, classifier(classes)], name="cnn")
    except ValueError as error:
        raise DataError(
            f"The model 'cnn' cannot be built for examples of shape {input_shape}.",
            why=" ".join(str(error).split())[:300],
            remedy="Use fewer filters, or model_options.padding='same': each block halves height and width.",
        ) from error


def _mlp(options: MlpOptions, input_shape: tuple[int | None, ...], classes: int) -> Any:
    layers = keras.layers
    stack: list[Any] = [keras.Input(input_shape), layers.Flatten()]
    for units in options.hidden:
        stack.append(layers.Dense(units, activation="relu"))
        if options.dropout:
            stack.append(layers.Dropout(options.dropout))
    return keras.Sequential([*stack, classifier(classes)], name="mlp")


def classifier(classes: int) -> Any:
    """Return the last layer of a classifier."""
    # float32 whatever the policy: a softmax in 16 bits loses the small probabilities (Keras mixed precision guide).
    return keras.layers.Dense(classes, activation="softmax", dtype="float32")
