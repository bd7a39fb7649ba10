"""Finds layers and variables that a custom model uses but does not own: they are never trained or saved."""

from __future__ import annotations

import inspect
import linecache
import threading
import traceback
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import keras

from ..compat.keras import creating_variables
from ..errors import UserCodeError
from ..runs.failures import is_own_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

_LOCK = threading.Lock()  # held while `keras.Variable` is changed
_SOUND = ("keras.", "keras_hub.", "tpu_console.")  # packages whose layers own their weights
_EXAMPLES = 7  # Keras does not call a functional model's layers again for shapes that it has seen


class _Made(NamedTuple):
    """A variable that was created while a model was called."""

    variable: Any
    layer: str  # class of the layer that the user's code called; empty if that code created the variable itself
    code: CodeType  # the user's code
    line: int


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
    # A model that cannot be called is reported when it is built or trained.
    with _created_variables() as made, suppress(Exception):
        _call_symbolically(model, keras.tree.map_structure(_symbol, inputs))
    owned = {id(variable) for variable in model.variables}
    loose = [one for one in made if one.variable.trainable and id(one.variable) not in owned]
    if not loose:
        return
    first, more = loose[0], len({(one.code, one.line) for one in loose}) - 1
    if first.layer:
        name = f"self.{first.layer.lower()}"
        what, remedy = f"{first.layer} layer", f"as in {name} = {first.layer}(...), and call {name} in this line."
    else:
        what, remedy = "variable", "as in self.scale = self.add_weight(...), and use self.scale in this line."
    where, file = first.code.co_qualname.replace(".<locals>", ""), first.code.co_filename
    line = linecache.getline(file, first.line).strip()
    raise UserCodeError(
        f"The {what} in {where} is not part of the model, so {'its weights are' if first.layer else 'it is'} never "
        "trained or saved.",
        why=f"File {file}, line {first.line}: {line}{f' (and {more} more like it)' if more else ''}",
        remedy=f"Create it once in __init__, {remedy}",
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


@contextmanager
def _created_variables() -> Iterator[list[_Made]]:
    """Collect the variables that this thread creates while the `call` of user code runs."""
    made: list[_Made] = []
    thread = threading.get_ident()

    def create_noted(create: Callable[..., None], variable: Any, *arguments: Any, **options: Any) -> None:
        create(variable, *arguments, **options)
        if threading.get_ident() == thread and (place := _caller_of(inspect.currentframe())):
            made.append(_Made(variable, *place))

    with _LOCK, creating_variables(create_noted):
        yield made


def _caller_of(frame: FrameType | None) -> tuple[str, CodeType, int] | None:
    """Return the class of the layer that user code called, that code, and its line; None outside of user code."""
    layer = None
    for outer, line in traceback.walk_stack(frame):
        code, owner = outer.f_code, outer.f_locals.get("self")
        if is_own_file(code.co_filename) and code.co_name not in {"build", "__init__"}:
            is_called = layer is not None and layer is not owner  # else the code called its own `add_weight`
            return type(layer).__name__ if is_called else "", code, line
        layer = owner if isinstance(owner, keras.layers.Layer) else layer
    return None


def _has_own_code(layer: Any) -> bool:
    """Return whether a layer, or one in it, has a `call` that is not Keras's."""
    if not type(layer).__module__.startswith(_SOUND) or isinstance(layer, keras.layers.Lambda):
        return True
    inner = [getattr(layer, name, None) for name in ("layer", "cell")]
    return any(_has_own_code(one) for one in (*getattr(layer, "layers", ()), *inner) if one is not None)
