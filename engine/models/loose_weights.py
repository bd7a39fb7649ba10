"""Finds layers and variables that a custom model uses but does not own: they are never trained or saved."""

from __future__ import annotations

import threading
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import keras

from ..compat.keras import creating_variables
from ..errors import UserCodeError
from ..runs.failures import is_own_file

if TYPE_CHECKING:
    from collections.abc import Callable

_SOUND = ("keras.", "keras_hub.", "tpu_console.")  # packages whose layers own their weights
_EXAMPLES = 7  # Keras does not call a functional model's layers again for shapes that it has seen


class _Caller(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Calls a model.

    `compute_output_spec` of the model itself would not call the model's layers that state their output's shape.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def call(self, inputs: Any) -> Any:
        return self.model(inputs)


def refuse_loose_weights(model: Any, inputs: Any) -> None:
    """Check that the layers and variables that a model's own code uses belong to the model. Nothing is computed.

    The usual mistake is a layer that is created in `call`.
    On JAX its weights stay random, and on TensorFlow the first step fails. The model is built afterwards. A model of
    Keras's own layers is not called.

    Args:
        model: A Keras model, built or not.
        inputs: One input, or a tuple or dictionary of them: anything with a shape, batch included, and a dtype.

    Raises:
        UserCodeError: A layer or variable does not belong to it.
    """
    if not _has_own_code(model):
        return
    made: list[tuple[Any, traceback.FrameSummary]] = []  # variables, and the lines of the user's code that made them
    thread = threading.get_ident()

    def create_noted(create: Callable[..., None], variable: Any, *arguments: Any, **options: Any) -> None:
        create(variable, *arguments, **options)
        own = [one for one in traceback.extract_stack() if is_own_file(one.filename)]
        calls = [one for one in own if one.name not in {"build", "__init__"}]
        if calls and threading.get_ident() == thread:
            made.append((variable, calls[-1]))

    # A model that cannot be called is reported when it is built or trained.
    with creating_variables(create_noted), suppress(Exception):
        _call_symbolically(model, keras.tree.map_structure(_symbol, inputs))
    owned = {id(variable) for variable in model.variables}
    for variable, frame in made:
        if variable.trainable and id(variable) not in owned:
            raise UserCodeError(
                f"{variable.path} is not part of the model, so it is never trained or saved.",
                why=f"File {frame.filename}, line {frame.lineno}: {frame.line}",
                remedy="Create the layer or variable once in __init__, as in self.dense = layers.Dense(...), and use "
                "it in this line.",
            )


def build_from_inputs(model: Any, inputs: Any) -> None:
    """Build a model that has no variables before its first batch. Nothing is computed.

    Args:
        model: A Keras model.
        inputs: As for `refuse_loose_weights`.

    Raises:
        UserCodeError: A layer or variable does not belong to it.
        Exception: Anything that its code raises.
    """
    refuse_loose_weights(model, inputs)
    if not model.built:
        _call_symbolically(model, keras.tree.map_structure(lambda part: _symbol(part, part.shape[0]), inputs))


def _call_symbolically(model: Any, symbols: Any) -> None:
    _Caller(model).compute_output_spec(symbols)


def _symbol(part: Any, examples: int | None = _EXAMPLES) -> Any:
    return keras.KerasTensor((examples, *part.shape[1:]), keras.backend.standardize_dtype(part.dtype))


def _has_own_code(layer: Any) -> bool:
    """Return whether a layer, or one in it, has a `call` that is not Keras's."""
    if not type(layer).__module__.startswith(_SOUND) or isinstance(layer, keras.layers.Lambda):
        return True
    inner = [getattr(layer, name, None) for name in ("layer", "cell")]
    return any(_has_own_code(one) for one in (*getattr(layer, "layers", ()), *inner) if one is not None)
