"""Finds out what a custom model's outputs are: probabilities, or logits, which a crossentropy loss has to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from ..compat.keras import producer_of
from ..config.catalog import is_user_reference
from ..config.pieces import parse_piece
from ..config.run_config import probabilities_by
from ..data.function_record import note_outputs
from ..errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..config.run_config import RunConfig

Activation = str | dict[str, str]
"""What makes probabilities of logits, ``softmax`` or ``sigmoid``, or nothing; by output if there are several."""

_PROBED = 32  # examples of a batch that a model is tried on
_NOT_EXACT = 0.01  # by how much the probabilities of an example may miss 1 in 16 bits


def outputs_by_name(model: Any, inputs: Any = None) -> dict[str, Any]:
    """Return a model's outputs by name: symbolic tensors, or arrays for a batch; empty if there are none.

    The name of a single output is empty.

    Args:
        model: The model.
        inputs: A batch to try a model on whose last layers do not say what they give; None not to try it.

    Raises:
        DataError: There are several outputs without names.
    """
    try:
        outputs = model.outputs if isinstance(model, keras.Sequential) else model.output
    except (AttributeError, ValueError):
        outputs = None
    flat = keras.tree.flatten(outputs)
    if inputs is not None and (outputs is None or not all(map(_last_activation, flat))):
        tried = _tried(model, inputs)
        outputs, flat = (outputs, flat) if tried is None else (tried, keras.tree.flatten(tried))
    if outputs is None or len(flat) < 2:
        return {} if outputs is None else {"": flat[0]}
    names = list(outputs) if isinstance(outputs, dict) else getattr(model, "output_names", None) or ()
    if len(names) != len(flat):
        raise DataError(
            f"The model gives {len(flat)} outputs without names.",
            remedy='Return a dictionary from call(), as in {"price": …, "kind": …}.',
        )
    return dict(zip(names, outputs.values() if isinstance(outputs, dict) else flat, strict=True))


def logits_activation(model: Any, config: RunConfig, outputs: Mapping[str, Any]) -> Activation:
    """Return the activation that makes probabilities of a model's logits, for each output on its own.

    Args:
        model: The model, compiled or not.
        config: The configuration, whose losses decide what the outputs mean.
        outputs: What `outputs_by_name` returned.
    """
    if getattr(model, "compiled", False):  # by the user's function, with losses that say it
        found = {name: _of_compiled(loss) for name, loss in _compiled_losses(model).items()}
    else:
        found = {name: _of_output(config, name, output) for name, output in (outputs or {"": None}).items()}
        if is_user_reference(config.model) and config.takes_probabilities:
            logits = [name for name, activation in found.items() if activation]
            note_outputs(config, f"logits {', '.join(logits)}".strip() if logits else "probabilities")
    return found if len(found) > 1 else next(iter(found.values()))


def are_unknown(config: RunConfig, outputs: Mapping[str, Any]) -> bool:
    """Return whether nobody knows if a model gives logits: its last layer does not say it, and it was not tried."""
    if config.outputs != "auto" or not config.takes_probabilities or not is_user_reference(config.model):
        return False
    return not outputs or not all(isinstance(one, np.ndarray) or _last_activation(one) for one in outputs.values())


def prepared(model: Any, inputs: Any) -> Any:
    """Return inputs as a model's call takes them: a task of KerasHub preprocesses them in `fit` and not in a call."""
    return model.preprocess_samples(inputs) if hasattr(model, "preprocess_samples") else inputs


def activation_of(activation: Activation, output: str) -> str:
    """Return the activation of an output."""
    return activation.get(output, "") if isinstance(activation, dict) else activation


def apply_activation(activation: str, outputs: Any) -> Any:
    """Return probabilities, in float32; an empty activation leaves the outputs as they are."""
    return getattr(keras.ops, activation)(keras.ops.cast(outputs, "float32")) if activation else outputs


def _compiled_losses(model: Any) -> dict[str, Any]:
    losses = getattr(model, "loss", None)
    if isinstance(losses, list | tuple):
        return dict(zip(getattr(model, "output_names", range(len(losses))), losses, strict=False))
    return losses if isinstance(losses, dict) and losses else {"": losses}


def _of_compiled(loss: Any) -> str:
    settings = loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
    is_binary = type(loss).__name__.startswith("Binary")
    return ("sigmoid" if is_binary else "softmax") if settings.get("from_logits") else ""


def _of_output(config: RunConfig, name: str, output: Any) -> str:
    loss = config.losses.get(name, config.losses.get("", ""))
    activation, given = probabilities_by(loss), parse_piece(loss).options.get("from_logits")
    if not activation or config.outputs == "probabilities" or given is False:
        return ""
    if config.outputs == "logits" or given:
        return activation
    if not is_user_reference(config.model):
        return ""
    if isinstance(output, np.ndarray):
        return "" if _are_probabilities(output, activation) else activation
    return activation if _last_activation(output) == "linear" else ""


def _last_activation(output: Any) -> str:
    """Return ``softmax``, ``sigmoid`` or ``linear`` by an output's last layer; empty if that does not say it."""
    layer = producer_of(output)
    while isinstance(layer, keras.Model):
        if isinstance(layer, keras.Sequential) and layer.layers:
            layer = layer.layers[-1]
        elif isinstance(getattr(layer, "output", None), keras.KerasTensor):
            layer = producer_of(layer.output)
        else:
            return ""
    name = getattr(getattr(layer, "activation", None), "__name__", type(layer).__name__.lower())
    return name if name in {"softmax", "sigmoid", "linear"} else ""


def _are_probabilities(outputs: Any, activation: str) -> bool:
    """Return whether the outputs for a batch may be probabilities."""
    if not np.isfinite(outputs).all():
        return True  # what Keras assumes
    values = outputs.astype(np.float64)
    is_share = bool((values >= 0).all() and (values <= 1).all())
    return is_share and (activation == "sigmoid" or np.allclose(values.sum(axis=-1), 1, atol=_NOT_EXACT))


def _tried(model: Any, inputs: Any) -> Any:
    """Return a model's outputs for the first examples of a batch; None if it cannot be called with them."""
    few = keras.tree.map_structure(lambda part: part[:_PROBED], inputs)
    try:
        return keras.tree.map_structure(keras.ops.convert_to_numpy, model(prepared(model, few), training=False))
    except Exception:  # noqa: BLE001  a model that only trains, such as a GAN, has no outputs
        return None
