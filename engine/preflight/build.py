"""Builds and compiles a model from shapes, without values: no weight is created, downloaded or read.

Inside a `keras.StatelessScope`, Keras creates no values for variables; a training step is traced from their shapes. The
values of a weight that the model's code reads are made for that moment. A model that cannot be built so is built for
real on the CPU, as every model on TensorFlow is. Neither may take more memory than this machine has.
"""

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import keras
from msgspec.structs import replace

from ..accelerators.backend import loaded_framework
from ..accelerators.framework import NotPossibleError
from ..compat.keras import build_from_shapes, creating_variables, without_downloads
from ..config.run_config import RunConfig
from ..data.examples import Input, Nested, map_nested, named_parts
from ..data.kinds.table import train_examples_of
from ..errors import ConsoleError, one_line
from ..machine.environment import free_memory_bytes
from ..models.build import build_model, bytes_of, refuse_loose_weights, size_of, training_phases, unfreeze
from ..models.compile import compile_model, is_compiled, with_measured_metrics
from ..models.outputs import check_labels, for_outputs, logits_activation, outputs_by_name
from ..runs.failures import is_own_file, own_line
from .choice import Batch, refuse_texts
from .result import Memory

_ANY_STEPS = 100  # if the dataset's length is unknown: the length of the schedule is a number in the program
_WITHOUT_IT = "Take that line out, and no weights are made."
_SMALL = 2**20  # bytes of a weight that always fits
_WHILE_MADE = 4
"""How many times its size a weight takes while its random values are made: as measured on JAX; on TensorFlow 3."""


def build(
    config: RunConfig, batch: Batch, devices: int, adapt: Callable[[Any], None] | None = None
) -> tuple[Any, Batch]:
    """Return the compiled model with its optimizer's and metrics' variables, and the batch that its steps get.

    For a run in two phases it is the model of the second, which trains more layers and so needs more memory. `adapt`
    changes the model before it is compiled.

    Raises:
        ConsoleError: The model does not fit the examples, or the user's function failed.
        NotPossibleError: This machine has too little memory for weights whose values have to be made.
        Exception: Anything that custom layers raise.
    """
    framework = loaded_framework()
    model = built_from_shapes(config, batch) if framework.builds_from_shapes else _built(config, batch, abstract)
    batch = as_trained(model, config, batch)
    _check_shape(model, batch)
    phase = training_phases(config)[-1]
    if phase.is_fine_tuning:
        unfreeze(model, config)
    if adapt is not None:
        adapt(model)
    examples, size = train_examples_of(config), config.batch_size * devices
    steps = max(1, examples // size) if examples else _ANY_STEPS
    outputs, settings = outputs_by_name(model), phase.config
    if len(outputs) > 1 and not is_compiled(model):
        settings = for_outputs(settings, tuple(outputs))
        check_labels(settings, model, outputs, batch.train[1] if len(batch.train) > 1 else None)
    settings = with_measured_metrics(settings, model, has_labels=len(batch.train) > 1)
    activation = logits_activation(model, settings, outputs)
    xla = framework.allows_xla(in_scope=False)
    compile_model(model, settings, batch.signature, devices, steps, allows_xla=xla, activation=activation)
    data = specification(batch, size)
    with abstract():
        refuse_loose_weights(model, data[0] if isinstance(data, tuple) else data)
        build_from_shapes(model, data)
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
    return model, batch


def as_trained(model: Any, config: RunConfig, batch: Batch) -> Batch:
    """Return the batch that a model's steps get; raise `UnknownShapesError` if they would get texts."""
    if hasattr(model, "preprocess_samples"):  # a task of KerasHub prepares in `fit` what the dataset gives
        prepared = [_prepared(model, element) for element in (batch.train, batch.validation)]
        batch = replace(batch, train=prepared[0], validation=prepared[1])
    refuse_texts(config.dataset, batch.train)
    return batch


def _prepared(model: Any, element: tuple[Nested, ...]) -> Any:
    """Return what a task of KerasHub makes of an example: only traced, without data."""
    import tensorflow as tf

    given = map_nested(lambda part: tf.TensorSpec((None, *part.shape), part.dtype), element)
    made = tf.data.Dataset.from_generator(lambda: iter(()), output_signature=given).map(model.preprocess_samples)
    found = tf.nest.map_structure(lambda spec: Input(tuple(spec.shape[1:]), spec.dtype.name), made.element_spec)
    return found if isinstance(found, tuple) else (found,)


def _check_shape(model: Any, batch: Batch) -> None:
    """Check that a model is built for the dataset's examples."""
    inputs, example = getattr(model, "inputs", None) or [], batch.train[0]
    if not isinstance(example, Input):
        return
    if len(inputs) > 1:
        raise ConsoleError(
            f"The model takes {len(inputs)} inputs, and the dataset gives one.", remedy="Build it with one keras.Input."
        )
    built, given = tuple(inputs[0].shape[1:]) if inputs else example.shape, example.shape
    differ = any(None not in pair and pair[0] != pair[1] for pair in zip(built, given, strict=False))
    if differ and abs(len(built) - len(given)) != 1:  # Keras adds or removes a last axis of 1
        raise ConsoleError(
            f"The model is built for examples of shape {built}, and the dataset's have {given}.",
            remedy="Build it with the input_shape that your function is given.",
        )


def abstract() -> contextlib.AbstractContextManager[Any]:
    """Return a scope for variables that are only traced. TensorFlow traces real ones, if this machine can hold them."""
    if loaded_framework().builds_from_shapes:
        return only_shapes()
    return _limited_weights("On TensorFlow all weights are made", "With backend=jax none are, if the model allows it.")


def only_shapes() -> contextlib.AbstractContextManager[Any]:
    """Return a scope in which variables have only shapes."""
    scope: contextlib.AbstractContextManager[Any] = keras.StatelessScope(initialize_variables=False)
    return scope


def specification(batch: Batch, size: int, sharding: Any = None, *, is_training: bool = True) -> Any:
    """Return the inputs, labels and weights, if any, of `size` examples over all devices, as `jax.ShapeDtypeStruct`.

    A single input without labels is not in a tuple, as `engine.input.pipeline` gives it.
    """
    import jax

    def of(part: Input) -> Any:
        return jax.ShapeDtypeStruct((size, *part.shape), part.dtype, sharding=sharding)

    data = map_nested(of, batch.train if is_training else batch.validation)
    return data[0] if len(data) == 1 and not isinstance(data[0], tuple) else data


def built_from_shapes(config: RunConfig, batch: Batch) -> Any:
    """Return the model without values for its weights, if its code allows that; raise as `build` does."""
    # Layers that create values fail in many ways. The second try is outside the handler, so that its errors do not
    # carry those of the first.
    try:
        with _limited_weights("A weight is read while the model is built", _WITHOUT_IT, are_kept=False):
            return _built(config, batch, only_shapes)
    except NotPossibleError:
        raise
    except Exception as error:  # noqa: BLE001
        line = own_line(error.__cause__ or error) or one_line(error, 200).rstrip(".")
    why = f"All weights are made, because the model cannot be built from shapes alone ({line})"
    return _built(config, batch, lambda: _limited_weights(why, _WITHOUT_IT))


@contextlib.contextmanager
def _limited_weights(why: str, remedy: str, *, are_kept: bool = True) -> Iterator[None]:
    """Refuse to make the values of weights that this machine has too little memory for.

    `why` values are made begins the sentence about it; those that the user's code only reads are not kept in memory.
    The refusal is raised at the end, too, whatever Keras and the user's code made of it.
    """
    free, kept = free_memory_bytes(), 0
    refusals: list[NotPossibleError] = []

    def create_limited(
        create: Callable[..., None], variable: Any, initializer: Any, *arguments: Any, **options: Any
    ) -> None:
        make = keras.initializers.get(initializer) if isinstance(initializer, str) else initializer

        @functools.wraps(make)
        def limited(shape: Any, *arguments: Any, **options: Any) -> Any:
            nonlocal kept
            size = size_of(shape, options.get("dtype"))
            if size >= _SMALL and not _is_traced():
                if (needed := kept + _WHILE_MADE * size) > free:
                    who = f"{variable.path} and those before it take" if kept else f"{variable.path} takes"
                    has = f"{needed / 1e9:,.1f} GB of memory, and this machine has {free / 1e9:,.1f} GB free."
                    place = "" if are_kept else _line_being_run()
                    refusals.append(NotPossibleError(f"{why}: {who} {has}", why=place, remedy=remedy))
                    raise refusals[-1]
                kept += size if are_kept else 0
            return make(shape, *arguments, **options)

        create(variable, limited if callable(make) else make, *arguments, **options)

    try:
        with creating_variables(create_limited):
            yield
    finally:
        if refusals:
            raise refusals[-1]


def _line_being_run() -> str:
    """Return the innermost line of the user's code, as a sentence; empty if there is none."""
    frames = [frame for frame in traceback.extract_stack() if is_own_file(frame.filename) and frame.line]
    return next((f"File {one.filename}, line {one.lineno}: `{one.line}`." for one in reversed(frames)), "")


def _is_traced() -> bool:
    """Return whether operations are only traced, so that none takes memory."""
    try:
        float(keras.ops.zeros(()))
    except Exception:  # noqa: BLE001  JAX and TensorFlow raise different ones
        return True
    return False


def least_memory(model: Any, slots: int, batch: Batch, replica_batch: int, limit: int) -> Memory:
    """Return the memory that a step is given on each device, the least that it needs; `slots` is the optimizer's."""
    parameters = bytes_of(model.variables)
    given = replica_batch * sum(size_of(part.shape, part.dtype) for _, part in named_parts(batch.train, ""))
    return Memory(parameters, slots, given, 0, parameters + slots + given, limit, is_lower_bound=True)


def _built(config: RunConfig, batch: Batch, scope: Callable[[], Any]) -> Any:
    # So that layers get the names that they have in the run. Before the scope, which it would end.
    keras.utils.clear_session(free_memory=False)
    with without_downloads(), scope():
        keras.config.set_dtype_policy(config.precision)
        model = build_model(config, batch.signature, loads_weights=False)  # the program does not depend on their values
        options = config.augmentation
        if options.is_active and options.placement == "model":  # on a TPU `auto` means the pipeline
            from ..input.augment import choose_placement, with_augmentation

            choose_placement(options, "tpu")
            model = with_augmentation(model, options, batch.largest_pixel, config.seed)
        return model
