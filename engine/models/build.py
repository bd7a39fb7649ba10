"""Builds the uncompiled model of a configuration, and splits its training into one or two phases.

The second phase also trains layers of a pretrained base, at a lower rate. Both are one run: epochs, steps and time
continue, and so do the best epoch and its checkpoint. Early stopping in the first phase ends that phase; in the second
it ends the run.
"""

import math
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np
from msgspec import Struct

from ..compat.keras import creating_variables, flat_layers
from ..config.run_config import RunConfig
from ..config.user_code import call_model_function
from ..data.examples import Signature
from ..data.places import locate
from ..errors import ConsoleError, DataError, UserCodeError, one_line
from ..runs.events import ModelBuilt
from ..runs.failures import is_own_file
from .compile import is_compiled
from .pretrained import unfreeze_layers
from .saved_code import read_architecture
from .table import MODELS

_SOUND = ("keras.", "keras_hub.", "tpu_console.")  # packages whose layers own their weights
_EXAMPLES = 7  # Keras does not call a built model's layers again for shapes that it has seen


def build_model(
    config: RunConfig, signature: Signature, saved_model: Path | None = None, *, loads_weights: bool = True
) -> Any:
    """Return the uncompiled model of a configuration; `saved_model` is that of `BuiltinModel.build`.

    A built-in model may do without its pretrained weights, if their values do not matter: not `loads_weights`.

    Raises:
        DataError: The model does not fit the examples.
        UserCodeError: The user's function failed or returned the wrong thing.
    """
    if config.model in MODELS:
        kind = MODELS[config.model]
        config = config if loads_weights else kind.without_weights(config)
        return kind.model_validate(config.model_options).build(config, signature, saved_model)
    shapes = signature.shape if signature.structure is None else signature.structure
    model = call_model_function(config.model, shapes, signature.classes, config.model_options)
    if not isinstance(model, keras.Model):
        what = f"{config.model} returned a {type(model).__name__}, not a keras.Model."
        raise UserCodeError(what, remedy="Return an uncompiled Keras model.")
    return model


def load_start(model: Any, config: RunConfig, inputs: Any) -> None:
    """Load the weights that the model starts with, if the configuration names a file; nothing in it is run.

    A model that has no variables before its first batch is built for the inputs: anything with the structure, shapes
    and types of a batch. Raises `DataError` if the file cannot be read or is of another model, and the errors of
    `refuse_loose_weights`.
    """
    if not config.weights:
        return
    path = locate(config.weights)
    if not model.built:
        refuse_loose_weights(model, inputs)
    if not model.built:  # the check may have built it
        try:
            _call_symbolically(model, inputs)
        except Exception as error:  # the user's code
            what = f"weights={config.weights} cannot be loaded, because {config.model} cannot be called."
            remedy = "Give the model a call() that takes the dataset's inputs."
            raise DataError(what, why=one_line(error, 300), remedy=remedy) from error
    try:
        if path.endswith(".keras") and read_architecture(Path(path)).has_pickled_weights:
            raise ValueError("its weights are pickled, which can run code")
        model.load_weights(path)
    except ConsoleError:
        raise
    except Exception as error:  # Keras and h5py raise many kinds of errors for a bad file
        what = f"{path} has no weights of the model {config.model}."
        remedy = "Name a .keras or .weights.h5 file that such a model was saved to."
        raise DataError(what, why=one_line(error, 300), remedy=remedy) from error


class _Caller(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Calls a model: its own `compute_output_spec` would not call layers that state their output's shape."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def call(self, inputs: Any) -> Any:
        return self.model(inputs)


def _call_symbolically(model: Any, inputs: Any) -> None:
    def symbol(part: Any) -> Any:
        examples = _EXAMPLES if model.built else part.shape[0]
        return keras.KerasTensor((examples, *part.shape[1:]), keras.backend.standardize_dtype(part.dtype))

    _Caller(model).compute_output_spec(keras.tree.map_structure(symbol, inputs))


def refuse_loose_weights(model: Any, inputs: Any) -> None:
    """Build a custom model; raise `UserCodeError` if a layer or variable that its code uses does not belong to it.

    A common mistake creates a layer during `call`: on JAX its weights stay random, and on TensorFlow the first step
    fails. Nothing is computed, and a model that cannot be called is left to what builds or trains it. The inputs are
    those of `load_start`.
    """
    layers = (model, *flat_layers(model))
    if all(type(one).__module__.startswith(_SOUND) and not isinstance(one, keras.layers.Lambda) for one in layers):
        return
    made: list[tuple[Any, traceback.FrameSummary]] = []  # variables, and the lines of the user's code that made them

    def create_noted(create: Callable[..., None], variable: Any, *arguments: Any, **options: Any) -> None:
        create(variable, *arguments, **options)
        calls = [one for one in traceback.extract_stack() if one.name not in {"build", "__init__"}]
        made.extend((variable, one) for one in [one for one in calls if is_own_file(one.filename)][-1:])

    with creating_variables(create_noted), suppress(Exception):
        _call_symbolically(model, inputs)
    owned = {id(variable) for variable in model.variables}
    for variable, line in made:
        if variable.trainable and id(variable) not in owned:
            what = f"{variable.path} is not part of the model, so it is never trained or saved."
            remedy = "Create it once in __init__, as in self.dense = layers.Dense(...), and use it in this line."
            raise UserCodeError(what, why=f"File {line.filename}, line {line.lineno}: {line.line}", remedy=remedy)


class TrainingPhase(Struct, frozen=True):
    """One call of `fit`."""

    config: RunConfig  # the run's configuration with the optimizer and number of epochs of this phase
    last_epoch: int  # the run's epoch, counted from 1, that ends the phase
    is_fine_tuning: bool = False  # whether layers of the base are trained too


def training_phases(config: RunConfig, schedule_epochs: int = 0) -> list[TrainingPhase]:
    """Return the phases of a run, each with a whole learning-rate schedule, for `schedule_epochs` or all epochs."""
    config = config.model_copy(update={"epochs": schedule_epochs or config.epochs})
    first = config.fine_tuning.after_epochs
    if not first:
        return [TrainingPhase(config, config.epochs)]
    gentle = config.optimizer.model_copy(update={"learning_rate": config.fine_tuning.learning_rate})
    second = config.model_copy(update={"epochs": config.epochs - first, "optimizer": gentle})
    return [
        TrainingPhase(config.model_copy(update={"epochs": first}), first),
        TrainingPhase(second, config.epochs, is_fine_tuning=True),
    ]


def unfreeze(model: Any, config: RunConfig) -> str:
    """Make the base trainable from `fine_tuning.from_layer` on; return a sentence. The model must be compiled again."""
    base = _base(model, config.model)
    if isinstance(base, keras.Model):
        unfreeze_layers(base, config.fine_tuning.from_layer, "fine_tuning.from_layer")
        trained = sum(layer.trainable for layer in base.layers)
        what = f"{trained} of the {len(base.layers)} layers of {base.name} are"
    else:
        base.trainable = True
        what = f"the {len(base.trainable_weights)} weights of the SavedModel are"
    return f"Fine-tuning begins: {what} now trained too, at a learning rate of {config.fine_tuning.learning_rate:g}."


def _base(model: Any, name: str) -> Any:
    """Return the base: the model or SavedModel inside the model of that name."""
    inner = [layer for layer in model.layers if isinstance(layer, (keras.Model, keras.layers.TFSMLayer))]
    same = [layer for layer in inner if layer.name == name]  # behind augmentation layers
    return _base(same[0], name) if same else inner[0]


def model_built(model: Any) -> ModelBuilt:
    """Return the event that reports a model's size."""
    return ModelBuilt(
        name=model.name,
        parameters=sum(math.prod(weight.shape) for weight in model.weights),
        trainable_parameters=sum(math.prod(weight.shape) for weight in model.trainable_weights),
        weight_bytes=bytes_of(model.weights),
        layers=len(model.layers),
        is_compiled=is_compiled(model),
    )


def bytes_of(variables: Iterable[Any]) -> int:
    """Return the bytes of variables, without padding."""
    return sum(size_of(variable.shape, variable.dtype) for variable in variables)


def size_of(shape: Sequence[int | None], dtype: Any) -> int:
    """Return the bytes of an array, without padding; an unknown side counts as 1."""
    item: int = np.dtype(keras.backend.standardize_dtype(dtype)).itemsize
    return math.prod(side or 1 for side in shape) * item
