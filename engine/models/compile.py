"""Compiles a model with the pieces that a configuration names, and says what a compiled model has of them."""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial, update_wrapper
from typing import Any

import keras
from msgspec.structs import replace

from ..compat.keras import build_from_shapes, compiled_metrics, direction_of, skip_build_in_fit
from ..config import options
from ..config.catalog import is_user_reference
from ..config.run_config import RunConfig
from ..config.user_code import call_user_function, find_user_code, find_user_module
from ..config.values import Piece, parse_piece, split_output
from ..data.examples import Signature, Task
from ..data.vocabulary import PADDING
from ..errors import ConfigError, Problem, UserCodeError, one_line
from ..runs.metrics import Metric, MetricKind, metric_called
from .outputs import Activation, activation_of, apply_activation

BY_CLASS = {"auc", "f1_score", "fbeta_score", "precision", "precision_at_recall", "recall", "recall_at_precision"} | {
    f"{truth}_{kind}" for truth in ("true", "false") for kind in ("positives", "negatives")
}
"""Metrics that compare a value for each class."""


def make_loss(config: RunConfig, activation: Activation) -> Any:
    """Return a configuration's loss, or one for each output; `activation` says which outputs are logits."""
    made: dict[str, Any] = own_losses(config)
    for output, text in config.losses.items():
        if output in made:
            continue
        piece = parse_piece(text)
        settings = dict(piece.options)
        if config.label_smoothing:
            settings["label_smoothing"] = config.label_smoothing
        if activation_of(activation, output):
            settings.setdefault("from_logits", True)
        name = config.effective_loss or piece.name
        loss = Piece(name, settings)
        made[output] = make_piece("loss", loss, keras.losses, options.LOSSES, keras.losses.Loss) if settings else name
    return made.get("", made)


def own_losses(config: RunConfig) -> dict[str, Any]:
    """Return the user's own losses of a configuration, by output."""
    pieces = {name: parse_piece(text) for name, text in config.losses.items()}
    return {name: _of_own(piece, keras.losses.Loss) for name, piece in pieces.items() if piece.is_own}


def make_metrics(config: RunConfig, activation: Activation) -> Any:
    """Return a configuration's metrics, or those of each output; Keras's get probabilities, the user's the outputs."""
    made: dict[str, list[Any]] = {}
    for output, text in map(split_output, config.metrics):
        made.setdefault(output, []).append(_metric(parse_piece(text), activation_of(activation, output)))
    return made.get("", made)


def make_callbacks(config: RunConfig) -> list[Any]:
    """Return a configuration's callbacks."""
    callbacks = keras.callbacks
    pieces = map(parse_piece, config.callbacks)
    return [make_piece("callbacks", piece, callbacks, options.CALLBACKS, callbacks.Callback) for piece in pieces]


def custom_objects(config: RunConfig) -> dict[str, Any]:
    """Import the user's objects that saved models name: `custom_objects`, and classes in the file of the model."""
    objects = {name.rpartition(":")[2]: find_user_code(name) for name in config.custom_objects}
    if is_user_reference(config.model):
        beside = find_user_module(config.model)
        kinds = (keras.layers.Layer, keras.initializers.Initializer, keras.regularizers.Regularizer)
        objects |= {
            name: value for name, value in vars(beside).items() if isinstance(value, type) and issubclass(value, kinds)
        }
    return objects


def _metric(piece: Piece, activation: str) -> Any:
    if piece.name == "accuracy" and not piece.options:
        # Keras chooses the accuracy that fits the labels; only that for two classes needs probabilities.
        if activation != "sigmoid":
            return piece.name
        metric = keras.metrics.BinaryAccuracy()
    elif piece.is_own:
        metric = _of_own(piece, keras.metrics.Metric)
    else:
        # Without an average, these two are not a single number.
        usual = {"average": "macro"} if piece.name in {"f1_score", "fbeta_score"} else {}
        given = Piece(piece.name, {**usual, **piece.options})
        metric = make_piece("metrics", given, keras.metrics, options.METRICS, keras.metrics.Metric)
    if not isinstance(metric, keras.metrics.Metric):
        metric = keras.metrics.MeanMetricWrapper(metric)
    metric.name = piece.label
    if piece.is_own or piece.options.get("from_logits"):
        activation = ""
    by_class, update = piece.name in BY_CLASS, metric.update_state
    if not activation and not by_class:
        return metric

    def update_state(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Update the metric with probabilities, and with a value for each class if it compares those."""
        ops, classes = keras.ops, y_pred.shape[-1]
        if by_class and len(y_true.shape) == len(y_pred.shape) - 1:
            y_true = ops.expand_dims(y_true, -1) if classes == 1 else ops.one_hot(ops.cast(y_true, "int32"), classes)
        return update(y_true, apply_activation(activation, y_pred), sample_weight=sample_weight)

    metric.update_state = update_state
    return metric


def _of_own(piece: Piece, kind: type) -> Any:
    """Return the user's loss or metric: an object of a class, or a function of labels and outputs."""
    found = find_user_code(piece.name)
    if isinstance(found, type):
        return _called(piece, kind)
    return update_wrapper(partial(found, **piece.options), found) if piece.options else found


def make_piece(key: str, piece: Piece, module: Any, names: Mapping[str, str], *kinds: type) -> Any:
    """Make an object of one of some kinds: with a class in a module of Keras, or with the user's class or function.

    Raises `ConfigError` for the key if Keras's class does not take these options, or `UserCodeError`.
    """
    if piece.is_own:
        return _called(piece, *kinds)
    try:
        return getattr(module, names[piece.name])(**piece.options)
    except (TypeError, ValueError) as error:
        what = f"keras {names[piece.name]} cannot be made with {', '.join(piece.options)}: {one_line(error, 200)}"
        raise ConfigError([Problem(key, what)]) from error


def _called(piece: Piece, *kinds: type) -> Any:
    made = call_user_function(piece.name, **piece.options)
    if isinstance(made, kinds):
        return made
    what = f"{piece.name} made a {type(made).__name__}, not a keras {kinds[0].__name__}."
    raise UserCodeError(what, remedy="Name a class of that kind, or a function that returns one.")


def make_optimizer(config: RunConfig, replicas: int, steps_per_epoch: int) -> Any:
    """Return the optimizer with its learning-rate schedule; options in its name come before the table's."""
    piece = parse_piece(config.optimizer.name)
    settings: dict[str, Any] = {"learning_rate": _learning_rate(config, replicas, steps_per_epoch)}
    if config.optimizer.weight_decay:
        settings["weight_decay"] = config.optimizer.weight_decay
    given, optimizers = Piece(piece.name, {**settings, **piece.options}), keras.optimizers
    return make_piece("optimizer.name", given, optimizers, options.OPTIMIZERS, optimizers.Optimizer)


def _learning_rate(config: RunConfig, replicas: int, steps_per_epoch: int) -> Any:
    """Return a number or a schedule of Keras, with which the saved model loads without this package."""
    optimizer, peak = config.optimizer, config.scaled_learning_rate(replicas)
    schedules = keras.optimizers.schedules
    warmup = round(optimizer.warmup_epochs * steps_per_epoch)
    decay = max(1, config.epochs * steps_per_epoch - warmup)
    name, final = optimizer.decay
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
    piece = parse_piece(optimizer.schedule)
    made = find_user_code(piece.name) if piece.is_own else getattr(schedules, options.SCHEDULES[piece.name])
    known = dict.fromkeys(("learning_rate", "initial_learning_rate"), peak)
    known |= dict.fromkeys(("steps", "decay_steps", "first_decay_steps"), decay)
    settings = {name: known[name] for name in inspect.signature(made).parameters if name in known}
    given = Piece(piece.name, {**settings, **piece.options})
    return make_piece("optimizer.schedule", given, schedules, options.SCHEDULES, schedules.LearningRateSchedule, float)


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
        loss, metrics = make_loss(config, activation), "metrics"
    model.compile(
        optimizer=make_optimizer(config, replicas, steps_per_epoch),
        loss=loss,
        loss_weights=config.loss_weights or None,
        **{metrics: make_metrics(config, activation) or None},
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
