"""Builds small models for images and vectors: convolutional networks and dense layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from ..config.model_options import CnnOptions, MlpOptions, VggOptions
from ..errors import DataError, one_line

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..data.examples import Signature


def cnn(config: RunConfig, signature: Signature) -> Any:
    """Build `cnn`; raise `DataError` if the examples are not images, or too small for it."""
    options = CnnOptions.model_validate(config.model_options)
    layers = keras.layers
    stack: list[Any] = [keras.Input(image_shape("cnn", signature))]
    for filters in options.filters:
        for index in range(options.convolutions):
            stack.append(layers.Conv2D(filters, options.kernel_size, padding=options.padding))
            if options.batch_norm:
                stack.append(layers.BatchNormalization())
            if index < options.convolutions - 1:
                stack.append(layers.ReLU())
        # ReLU after pooling gives the same result on a quarter of the values.
        stack += [layers.MaxPooling2D(2), layers.ReLU()]
    stack.append(layers.Flatten())
    stack += [layers.Dense(units, activation="relu") for units in options.hidden]
    if options.dropout:
        stack.append(layers.Dropout(options.dropout))
    remedy = "Use fewer filters, or model_options.padding='same'"
    return _stacked("cnn", [*stack, classifier(signature.classes)], signature, remedy)


def vgg(config: RunConfig, signature: Signature) -> Any:
    """Build `vgg`: blocks of two convolutions, the second without padding, as in Keras's CIFAR-10 example."""
    options = VggOptions.model_validate(config.model_options)
    layers = keras.layers
    stack: list[Any] = [keras.Input(image_shape("vgg", signature))]
    for filters in options.filters:
        stack += [
            layers.Conv2D(filters, 3, padding="same", activation="relu"),
            layers.Conv2D(filters, 3, activation="relu"),
            layers.MaxPooling2D(2),
        ]
        if options.block_dropout:
            stack.append(layers.Dropout(options.block_dropout))
    stack += [layers.Flatten(), layers.Dense(options.hidden, activation="relu")]
    if options.dropout:
        stack.append(layers.Dropout(options.dropout))
    return _stacked("vgg", [*stack, classifier(signature.classes)], signature, "Use fewer filters")


def mlp(config: RunConfig, signature: Signature) -> Any:
    """Build `mlp`."""
    options, layers = MlpOptions.model_validate(config.model_options), keras.layers
    stack: list[Any] = [keras.Input(signature.shape), layers.Flatten()]
    for units in options.hidden:
        stack.append(layers.Dense(units, activation="relu"))
        if options.dropout:
            stack.append(layers.Dropout(options.dropout))
    return keras.Sequential([*stack, classifier(signature.classes)], name="mlp")


def image_shape(model: str, signature: Signature) -> tuple[int | None, ...]:
    """Return the shape of the examples: (height, width, channels); raise `DataError` if they are not images."""
    if len(signature.shape) != 3:
        shapes = " and ".join(str(given.shape) for given in signature.inputs.values())
        raise DataError(
            f"The model '{model}' needs images of shape (height, width, channels); the examples have shape {shapes}.",
            remedy="Use model = 'mlp' or a custom model.",
        )
    return signature.shape


def _stacked(name: str, stack: list[Any], signature: Signature, remedy: str) -> Any:
    """Build a model from blocks of convolutions; raise `DataError` if the images are too small for that many blocks."""
    try:
        return keras.Sequential(stack, name=name)
    except ValueError as error:
        raise DataError(
            f"The model '{name}' cannot be built for examples of shape {signature.shape}.",
            why=one_line(error, 300),
            remedy=f"{remedy}: each block halves height and width.",
        ) from error


def classifier(classes: int) -> Any:
    """Return the last layer of a classifier."""
    # Always float32: a softmax in 16 bits loses small probabilities (Keras mixed precision guide).
    return keras.layers.Dense(classes, activation="softmax", dtype="float32")
