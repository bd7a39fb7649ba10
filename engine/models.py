"""Builds the model and its optimizer, uncompiled, and compiles them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from engine.errors import DataError, UserCodeError
from engine.events import ModelBuilt
from engine.options import CnnOptions, MlpOptions
from engine.plan import scaled_learning_rate
from engine.user_code import call_user_function

if TYPE_CHECKING:
    from engine.config import RunConfig


def build_model(config: RunConfig, input_shape: tuple[int | None, ...], classes: int) -> Any:
    """Return the uncompiled model of a configuration.

    Args:
        config: The configuration.
        input_shape: Shape of one example.
        classes: Number of classes.

    Raises:
        DataError: The model does not fit the examples.
        UserCodeError: The person's own function failed or returned the wrong thing.
    """
    if config.model == "cnn":
        return _cnn(CnnOptions.model_validate(config.model_options), input_shape, classes)
    if config.model == "mlp":
        return _mlp(MlpOptions.model_validate(config.model_options), input_shape, classes)
    model = call_user_function(config.model, input_shape, classes, **config.model_options)
    if not isinstance(model, keras.Model):
        raise UserCodeError(
            f"{config.model} returned a {type(model).__name__}, not a keras.Model.",
            remedy="Return an uncompiled Keras model.",
        )
    return model


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
        return keras.Sequential([*stack, _classifier(classes)], name="cnn")
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
    return keras.Sequential([*stack, _classifier(classes)], name="mlp")


def _classifier(classes: int) -> Any:
    # float32 whatever the policy: a softmax in 16 bits loses the small probabilities (Keras mixed precision guide).
    return keras.layers.Dense(classes, activation="softmax", dtype="float32")


def make_optimizer(config: RunConfig, replicas: int, steps_per_epoch: int) -> Any:
    """Return the optimizer with its learning-rate schedule.

    Args:
        config: The configuration.
        replicas: Copies of the model.
        steps_per_epoch: Steps an epoch, for the schedule's length.
    """
    options = config.optimizer
    classes = {
        "adam": keras.optimizers.Adam,
        "adamw": keras.optimizers.AdamW,
        "sgd": keras.optimizers.SGD,
        "rmsprop": keras.optimizers.RMSprop,
        "adagrad": keras.optimizers.Adagrad,
        "adamax": keras.optimizers.Adamax,
        "nadam": keras.optimizers.Nadam,
        "lion": keras.optimizers.Lion,
    }
    settings: dict[str, Any] = {"learning_rate": _learning_rate(config, replicas, steps_per_epoch)}
    if options.name in {"sgd", "rmsprop"}:
        settings["momentum"] = options.momentum
    if options.weight_decay:
        settings["weight_decay"] = options.weight_decay
    if options.clip_norm:
        settings["clipnorm"] = options.clip_norm
    return classes[options.name](**settings)


def _learning_rate(config: RunConfig, replicas: int, steps_per_epoch: int) -> Any:
    """Return a number or one of Keras's own schedules, so that the saved model loads without this package."""
    options = config.optimizer
    peak = scaled_learning_rate(config, replicas)
    schedules = keras.optimizers.schedules
    warmup = round(options.warmup_epochs * steps_per_epoch)
    decay = max(1, config.epochs * steps_per_epoch - warmup)
    if options.schedule == "linear":
        return schedules.PolynomialDecay(peak, decay, end_learning_rate=peak * options.final_fraction)
    if options.schedule == "exponential":
        return schedules.ExponentialDecay(peak, decay, options.final_fraction)
    if options.schedule == "constant" and not warmup:
        return peak
    # A cosine that ends where it begins is a constant with a warm-up.
    alpha = options.final_fraction if options.schedule == "cosine" else 1.0
    if not warmup:
        return schedules.CosineDecay(peak, decay, alpha=alpha)
    return schedules.CosineDecay(0.0, decay, alpha=alpha, warmup_target=peak, warmup_steps=warmup)


def compile_model(model: Any, config: RunConfig, replicas: int, steps_per_epoch: int) -> None:
    """Compile a model for one step an execution; `engine.execution` decides on more."""
    model.compile(
        optimizer=make_optimizer(config, replicas, steps_per_epoch),
        loss=config.loss,
        metrics=list(config.metrics),
        # XLA is not asked for under a strategy: Keras's TPU and GPU builds fail in it (keras#19448).
        jit_compile=False if replicas > 1 else "auto",
    )


def describe(model: Any) -> ModelBuilt:
    """Say how large a model is."""
    sizes = [(math.prod(weight.shape), np.dtype(weight.dtype).itemsize) for weight in model.weights]
    return ModelBuilt(
        name=model.name,
        parameters=sum(count for count, _ in sizes),
        trainable_parameters=sum(math.prod(weight.shape) for weight in model.trainable_weights),
        weight_bytes=sum(count * size for count, size in sizes),
        layers=len(model.layers),
    )
