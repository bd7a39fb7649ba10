"""Builds small models: for images and vectors, texts in classes, and ratings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from ..config.model_options import CnnOptions, MlpOptions, RecommenderOptions, TextOptions, VggOptions
from ..data.examples import Task
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
