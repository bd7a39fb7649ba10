"""Compiles a model: optimizer, learning-rate schedule, loss and metrics; says what a compiled model has of these."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import keras
from msgspec.structs import replace

from ..compat.keras import build_from_shapes, compiled_metrics, direction_of, skip_build_in_fit
from ..config.options import OPTIMIZERS, SCHEDULES
from ..config.pieces import Piece, parse_piece
from ..config.user_code import find_user_code
from ..data.examples import Signature, Task
from ..data.vocabulary import PADDING
from ..runs.metrics import Metric, MetricKind, metric_called
from . import pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config.run_config import RunConfig
    from .outputs import Activation


def make_optimizer(config: RunConfig, replicas: int, steps_per_epoch: int) -> Any:
    """Return the optimizer with its learning-rate schedule; options in its name come before the table's."""
    piece = parse_piece(config.optimizer.name)
    settings: dict[str, Any] = {"learning_rate": _learning_rate(config, replicas, steps_per_epoch)}
    if config.optimizer.weight_decay:
        settings["weight_decay"] = config.optimizer.weight_decay
    given, optimizers = Piece(piece.name, {**settings, **piece.options}), keras.optimizers
    return pieces.make_piece("optimizer.name", given, optimizers, OPTIMIZERS, optimizers.Optimizer)


def _learning_rate(config: RunConfig, replicas: int, steps_per_epoch: int) -> Any:
    """Return a number or a schedule of Keras, with which the saved model loads without this package."""
    options, peak = config.optimizer, config.scaled_learning_rate(replicas)
    schedules = keras.optimizers.schedules
    warmup = round(options.warmup_epochs * steps_per_epoch)
    decay = max(1, config.epochs * steps_per_epoch - warmup)
    name, final = options.decay
    if name == "linear":
        return schedules.PolynomialDecay(peak, decay, end_learning_rate=peak * final)
    if name == "exponential":
        return schedules.ExponentialDecay(peak, decay, final)
    if name in {"constant", "cosine"}:
        # A cosine that ends at its start value is a constant with a warm-up.
        if warmup:
            return schedules.CosineDecay(0.0, decay, alpha=final, warmup_target=peak, warmup_steps=warmup)
        return peak if name == "constant" else schedules.CosineDecay(peak, decay, alpha=final)
    # Another of Keras's, or the user's: it gets the peak and the run's steps, under the names that it has for them.
    piece = parse_piece(options.schedule)
    made = find_user_code(piece.name) if piece.is_own else getattr(schedules, SCHEDULES[piece.name])
    known = dict.fromkeys(("learning_rate", "initial_learning_rate"), peak)
    known |= dict.fromkeys(("steps", "decay_steps", "first_decay_steps"), decay)
    settings = {name: known[name] for name in inspect.signature(made).parameters if name in known}
    given = Piece(piece.name, {**settings, **piece.options})
    return pieces.make_piece("optimizer.schedule", given, schedules, SCHEDULES, schedules.LearningRateSchedule, float)


def compile_model(
    model: Any,
    config: RunConfig,
    signature: Signature,
    replicas: int,
    steps_per_epoch: int,
    *,
    allows_xla: bool = True,
    activation: Activation = "",
) -> None:
    """Compile a model for one step per execution; one that the user's function has compiled keeps what it has.

    `activation` turns the model's outputs into probabilities if they are logits, as `logits_activation` returns it.
    """
    if is_compiled(model):
        model.jit_compile = model.jit_compile and allows_xla
        return
    if signature.task is Task.TRANSLATION:
        # Padding counts for nothing: the loss is a mean over the words of a batch, and its sample weight is 0.
        loss, metrics = keras.losses.SparseCategoricalCrossentropy(ignore_class=PADDING), "weighted_metrics"
    else:
        loss, metrics = pieces.make_loss(config, activation), "metrics"
    model.compile(
        optimizer=make_optimizer(config, replicas, steps_per_epoch),
        loss=loss,
        loss_weights=config.loss_weights or None,
        **{metrics: pieces.make_metrics(config, activation) or None},
        jit_compile="auto" if allows_xla else False,
    )
    model.tpu_console_compiled = True


def is_compiled(model: Any) -> bool:
    """Return whether the user's function compiled the model."""
    return bool(getattr(model, "compiled", False)) and not getattr(model, "tpu_console_compiled", False)


def with_measured_metrics(config: RunConfig, model: Any, *, has_labels: bool) -> RunConfig:
    """Return a configuration without metrics if a model does not measure them; its own ones have other names."""
    step = type(model).train_step
    names = getattr(getattr(step, "__code__", None), "co_names", ())
    # Keras fails if a training step does not update the metrics that its model is compiled with.
    updates = step is keras.Model.train_step or any("metrics" in name or name == "train_step" for name in names)
    is_measured = has_labels and updates and not is_compiled(model)
    return config if is_measured else config.model_copy(update={"metrics": ()})


def build_ahead(model: Any, batches: Any, batch_size: int, *, in_trace: bool, is_new: bool) -> Sequence[Any]:
    """Build a compiled model for a dataset of batches and the replica batch, as `fit` would; nothing is computed.

    On TensorFlow without a strategy, `fit` builds `in_trace`: a training step makes the layers that it calls, and its
    optimizers the variables for what they train. On JAX and under a strategy, `fit` would use up a batch for that, and
    runs on one and on several replicas would see the examples in different orders.

    Returns the variables that a training step may change, if it is to be timed.
    """
    import tensorflow as tf

    if model.run_eagerly and in_trace and is_new:
        return ()  # only its first step builds it
    spec = batches.element_spec
    if not in_trace or model.run_eagerly:
        if not all(part.shape[1:].is_fully_defined() for part in tf.nest.flatten(spec)):
            spec = next(iter(batches))  # as `fit` does
        of_batch = tf.nest.map_structure(lambda part: tf.TensorSpec([batch_size, *part.shape[1:]], part.dtype), spec)
        build_from_shapes(model, of_batch)
        skip_build_in_fit(model)
        return ()
    own_ways = (getattr(type(model), name) is not getattr(keras.Model, name) for name in ("train_step", "compute_loss"))
    if is_new and model.built and not any(own_ways):  # tracing takes seconds
        if not model.optimizer.built:  # a loss-scaling optimizer creates new variables when it is built again
            model.optimizer.build(model.trainable_variables)
        return [*model.variables, *model.optimizer.variables]
    step = tf.function(model.train_step, autograph=False).get_concrete_function(spec)
    return list(step.variables)


_SHARES = (
    *(keras.metrics.Accuracy, keras.metrics.BinaryAccuracy, keras.metrics.CategoricalAccuracy),
    *(keras.metrics.SparseCategoricalAccuracy, keras.metrics.TopKCategoricalAccuracy),
    *(keras.metrics.SparseTopKCategoricalAccuracy, keras.metrics.Precision, keras.metrics.Recall, keras.metrics.AUC),
    *(keras.metrics.PrecisionAtRecall, keras.metrics.RecallAtPrecision, keras.metrics.SensitivityAtSpecificity),
    *(keras.metrics.SpecificityAtSensitivity, keras.metrics.FBetaScore, keras.metrics.IoU),
)
_MISTAKES = (keras.metrics.FalsePositives, keras.metrics.FalseNegatives)


def metrics_of(model: Any) -> tuple[Metric, ...]:
    """Return what is known of the metrics that a compiled model reports in its logs, by class or else by name."""
    mean = keras.metrics.Mean
    found = []
    for name, metric in compiled_metrics(model).items():
        known = metric_called(name)
        if isinstance(metric, keras.metrics.Metric):
            direction = direction_of(metric)
            is_lower = known.lower_is_better or isinstance(metric, _MISTAKES)
            known = Metric(
                name,
                lower_is_better=direction == "down" if direction else is_lower,
                kind=MetricKind.SHARE if isinstance(metric, _SHARES) else known.kind,
                is_mean=isinstance(metric, mean) and type(metric).result is mean.result,
            )
        elif inspect.isfunction(metric):
            known = replace(known, is_mean=True)  # Keras takes the mean of what it returns
        found.append(known)
    return tuple(found)


def own_optimizers(model: Any) -> dict[str, Any]:
    """Return the optimizers of a model besides its `optimizer`, as a GAN has them, by their attributes."""
    others = {name: value for name, value in vars(model).items() if name not in {"optimizer", "_optimizer"}}
    return {name: value for name, value in others.items() if isinstance(value, keras.optimizers.Optimizer)}


def used_optimizers(model: Any) -> dict[str, Any]:
    """Return the optimizers that have trained a model by their attributes; all of them if none has."""
    every = {"optimizer": getattr(model, "optimizer", None), **own_optimizers(model)}
    inner = {name: getattr(one, "inner_optimizer", one) for name, one in every.items()}
    steps = {name: keras.ops.convert_to_numpy(getattr(one, "iterations", 0)) for name, one in inner.items()}
    return {name: one for name, one in every.items() if steps[name]} or every


def rate_of(optimizer: Any) -> float | None:
    """Return the learning rate of an optimizer now; None if it has none."""
    try:
        return float(keras.ops.convert_to_numpy(optimizer.learning_rate))
    except (AttributeError, TypeError, ValueError):
        return None
