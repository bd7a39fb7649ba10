"""Builds the uncompiled model of a configuration."""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from ..config.user_code import call_user_function
from ..errors import UserCodeError
from ..runs.events import ModelBuilt

if TYPE_CHECKING:
    from pathlib import Path

    from ..config.run_config import RunConfig
    from ..data.examples import Signature

# Module and function of each built-in model; the function takes the configuration and the signature.
_BUILDERS = {
    "cnn": ("basic", "cnn"),
    "vgg": ("basic", "vgg"),
    "mlp": ("basic", "mlp"),
    "application": ("applications", "application"),
    "hub": ("hub", "hub"),
    "transformer": ("transformer", "transformer"),
    "text": ("text", "text"),
    "recommender": ("recommender", "recommender"),
}


def build_model(config: RunConfig, signature: Signature, saved_model: Path | None = None) -> Any:
    """Return the uncompiled model of a configuration.

    `hub` saves the SavedModel that its model always needs in `saved_model`, or in a temporary folder if that is None.

    Raises:
        DataError: The model does not fit the examples.
        UserCodeError: The user's function failed or returned the wrong thing.
    """
    if config.model in _BUILDERS:
        module, function = _BUILDERS[config.model]
        build = getattr(import_module(f"..{module}", __name__), function)
        return build(config, signature, saved_model) if config.model == "hub" else build(config, signature)
    shapes = signature.shape if signature.structure is None else signature.structure
    model = call_user_function(config.model, shapes, signature.classes, **config.model_options)
    if not isinstance(model, keras.Model):
        raise UserCodeError(
            f"{config.model} returned a {type(model).__name__}, not a keras.Model.",
            remedy="Return an uncompiled Keras model.",
        )
    return model


def model_built(model: Any) -> ModelBuilt:
    """Return the event that reports a model's size."""
    sizes = [(math.prod(weight.shape), np.dtype(weight.dtype).itemsize) for weight in model.weights]
    return ModelBuilt(
        name=model.name,
        parameters=sum(count for count, _ in sizes),
        trainable_parameters=sum(math.prod(weight.shape) for weight in model.trainable_weights),
        weight_bytes=sum(count * size for count, size in sizes),
        layers=len(model.layers),
    )
