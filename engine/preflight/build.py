"""Builds and compiles a model from shapes, without values: no weight is created, downloaded or read.

Inside a `keras.StatelessScope`, Keras creates no values for variables; a training step is traced from their shapes. A
model whose code needs a value is built for real on the CPU.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import jax
import keras

from ..compat.keras import build_from_shapes, file_utils
from ..config.batch import global_batch
from ..errors import ConsoleError
from ..models.build import build_model
from ..models.compile import compile_model
from ..models.fine_tuning import training_phases, unfreeze
from ..models.label_checks import check_labels
from ..models.loose_weights import refuse_loose_weights
from ..models.outputs import logits_activation, outputs_by_name
from ..planning.example_count import train_examples_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..config.run_config import RunConfig
    from .inputs import Batch

_IS_TENSORFLOW = keras.backend.backend() == "tensorflow"
_ANY_STEPS = 100  # if the dataset's length is unknown: the length of the schedule is a number in the program


def build(config: RunConfig, batch: Batch, devices: int) -> Any:
    """Return the compiled model of a configuration, with its optimizer's and metrics' variables, without values.

    For a run in two phases it is the model of the second, which trains more layers and so needs more memory.

    Raises:
        ConsoleError: The model does not fit the examples, or the user's function failed.
        Exception: Anything that custom layers raise.
    """
    settings = _without_weights(config)
    with _no_downloads():
        model = _built(settings, batch) if _IS_TENSORFLOW else _built_from_shapes(settings, batch)
    _check_shape(model, batch)
    phase = training_phases(config)[-1]
    if phase.is_fine_tuning:
        unfreeze(model, config)
    examples = train_examples_of(config)
    steps = examples // global_batch(config.batch_size, devices) if examples else _ANY_STEPS
    outputs = outputs_by_name(model)
    if len(outputs) > 1:
        check_labels(config, model, outputs, (batch.label,))
    activation = logits_activation(model, config, outputs)
    compile_model(model, phase.config, batch.signature, devices, max(1, steps), activation=activation)
    x, y, *weights = specification(batch, global_batch(config.batch_size, devices))
    with abstract():
        refuse_loose_weights(model, x)
        build_from_shapes(model, (x, y, *weights))
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
    return model


def _check_shape(model: Any, batch: Batch) -> None:
    """Check that a model is built for the dataset's examples."""
    inputs = getattr(model, "inputs", None) or []
    if len(inputs) > 1 == len(batch.inputs):
        raise ConsoleError(
            f"The model takes {len(inputs)} inputs, and the dataset gives one.",
            remedy="Build it with one keras.Input.",
        )
    if len(inputs) != 1 or len(batch.inputs) != 1:
        return
    built, given = tuple(inputs[0].shape[1:]), tuple(next(iter(batch.inputs.values())).shape)
    differ = any(None not in pair and pair[0] != pair[1] for pair in zip(built, given, strict=False))
    if differ and abs(len(built) - len(given)) != 1:  # Keras adds or removes a last axis of 1
        raise ConsoleError(
            f"The model is built for examples of shape {built}, and the dataset's have {given}.",
            remedy="Build it with the input_shape that your function is given.",
        )


def augmentation_names(model: Any, config: RunConfig) -> frozenset[str]:
    """Return the names of the layers that the configuration's augmentation put at the start of a built model."""
    options = config.augmentation
    if not options.is_active or options.placement != "model":
        return frozenset()
    from ..input.augmentation.placement import augmentation_layers

    count = len(augmentation_layers(options, 1.0, config.seed))
    layers = [layer.name for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    return frozenset(layers[:count])


def abstract() -> contextlib.AbstractContextManager[Any]:
    """Return a scope in which variables have only shapes; an empty one on TensorFlow, which traces real variables."""
    if _IS_TENSORFLOW:
        return contextlib.nullcontext()
    scope: contextlib.AbstractContextManager[Any] = keras.StatelessScope(initialize_variables=False)
    return scope


def specification(batch: Batch, size: int, sharding: Any = None, *, is_training: bool = True) -> tuple[Any, ...]:
    """Return the inputs, labels and weights, if any, of `size` examples over all devices, as `jax.ShapeDtypeStruct`."""

    def of(shape: Any, dtype: str) -> Any:
        return jax.ShapeDtypeStruct((size, *shape), dtype, sharding=sharding)

    inputs = {name: of(given.shape, given.dtype) for name, given in batch.inputs.items()}
    x = inputs if len(inputs) > 1 else next(iter(inputs.values()))
    weight = batch.weight if is_training else batch.validation_weight
    weights = () if weight is None else (of(weight, "float32"),)
    return (x, of(batch.label.shape, batch.label.dtype), *weights)


def _built_from_shapes(config: RunConfig, batch: Batch) -> Any:
    # Layers that create values fail in many ways. The second try is outside the handler, so that its errors do not
    # carry those of the first.
    with contextlib.suppress(Exception):
        return _built(config, batch, abstract)
    return _built(config, batch)


def _built(config: RunConfig, batch: Batch, scope: Callable[[], Any] = contextlib.nullcontext) -> Any:
    # So that layers get the names that they have in the run. Before the scope, which it would end.
    keras.utils.clear_session(free_memory=False)
    with scope():
        return _built_in_scope(config, batch)


def _built_in_scope(config: RunConfig, batch: Batch) -> Any:
    keras.config.set_dtype_policy(config.precision)
    model = build_model(config, batch.signature)
    options = config.augmentation
    # On a TPU `auto` means the pipeline.
    if options.is_active and options.placement == "model":
        from ..input.augmentation.placement import choose_placement, with_augmentation

        choose_placement(options, "tpu")
        model = with_augmentation(model, options, batch.largest_pixel, config.seed)
    return model


def _without_weights(config: RunConfig) -> RunConfig:
    """Drop pretrained weights: the program does not depend on their values."""
    if config.model != "application":
        return config
    return config.model_copy(update={"model_options": config.model_options | {"weights": "none"}})


@contextlib.contextmanager
def _no_downloads() -> Iterator[None]:
    """Keep the user's function from downloading and reading weights, which a program does not depend on."""

    def nothing(*_arguments: object, **_options: object) -> str:
        return ""

    places = (
        (file_utils(), "get_file"),
        (keras.utils, "get_file"),
        (keras.Model, "load_weights"),
        (keras.Model, "set_weights"),
        (keras.layers.Layer, "set_weights"),
    )
    before = [getattr(place, name) for place, name in places]
    for place, name in places:
        setattr(place, name, nothing)
    try:
        yield
    finally:
        for (place, name), value in zip(places, before, strict=True):
            setattr(place, name, value)
