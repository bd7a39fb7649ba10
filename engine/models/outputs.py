"""Finds out what a custom model's outputs are: probabilities, or logits, which a crossentropy loss has to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from ..compat.keras import producer_of
from ..config.catalog import is_user_reference
from ..data.function_record import note_outputs

if TYPE_CHECKING:
    from ..config.run_config import RunConfig

_PROBED = 32  # examples of a batch that a model is tried on
_NOT_EXACT = 0.01  # by how much the probabilities of an example may miss 1 in 16 bits


def logits_activation(model: Any, config: RunConfig, inputs: Any = None) -> str:
    """Return the activation that makes probabilities of a model's logits; empty if it gives probabilities.

    Args:
        model: The model, compiled or not.
        config: The configuration, whose loss decides what the outputs mean.
        inputs: A batch to try a model on whose last layer does not say what it gives; None not to try it.
    """
    activation = config.probabilities_by
    if getattr(model, "compiled", False):  # by the user's function, with a loss that says it
        loss = getattr(model, "loss", None)
        settings = loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
        is_binary = type(loss).__name__.startswith("Binary")
        return ("sigmoid" if is_binary else "softmax") if settings.get("from_logits") else ""
    if not activation or config.outputs == "probabilities":
        return ""
    if config.outputs == "logits":
        return activation
    if not is_user_reference(config.model):
        return ""
    found = _last_activation(model)
    is_logits = found == "linear" if found else not _are_probabilities(model, inputs, activation)
    note_outputs(config, "logits" if is_logits else "probabilities")
    return activation if is_logits else ""


def apply_activation(activation: str, outputs: Any) -> Any:
    """Return probabilities, in float32; an empty activation leaves the outputs as they are."""
    return getattr(keras.ops, activation)(keras.ops.cast(outputs, "float32")) if activation else outputs


def try_model(model: Any, inputs: Any) -> Any:
    """Return a model's outputs for the first examples of a batch; None if it cannot be called with them."""
    few = keras.tree.map_structure(lambda part: part[:_PROBED], inputs)
    try:
        return keras.tree.map_structure(keras.ops.convert_to_numpy, model(few, training=False))
    except Exception:  # noqa: BLE001  a model that only trains, such as a GAN, has no outputs
        return None


def _last_activation(model: Any) -> str:
    """Return ``softmax``, ``sigmoid`` or ``linear`` by the last layer; empty if that does not say it."""
    layer = model
    while isinstance(layer, keras.Model):
        if isinstance(layer, keras.Sequential) and layer.layers:
            layer = layer.layers[-1]
        elif isinstance(getattr(layer, "output", None), keras.KerasTensor):
            layer = producer_of(layer.output)
        else:
            return ""
    name = getattr(getattr(layer, "activation", None), "__name__", type(layer).__name__.lower())
    return name if name in {"softmax", "sigmoid", "linear"} else ""


def _are_probabilities(model: Any, inputs: Any, activation: str) -> bool:
    """Return whether the model's outputs for a batch may be probabilities."""
    outputs = None if inputs is None else try_model(model, inputs)
    if not isinstance(outputs, np.ndarray) or not np.isfinite(outputs).all():
        return True  # what Keras assumes
    values = outputs.astype(np.float64)
    is_share = bool((values >= 0).all() and (values <= 1).all())
    return is_share and (activation == "sigmoid" or np.allclose(values.sum(axis=-1), 1, atol=_NOT_EXACT))
