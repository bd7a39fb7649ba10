"""Makes losses, metrics, optimizers, schedules and callbacks from what a configuration names."""

from __future__ import annotations

import inspect
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any

import keras

from ..config.catalog import is_user_reference
from ..config.options import CALLBACKS, LOSSES, METRICS, OPTIMIZERS, SCHEDULES
from ..config.pieces import Piece, parse_piece, split_output
from ..config.user_code import call_user_function, find_user_code, find_user_module
from ..errors import ConfigError, Problem, UserCodeError, one_line
from .outputs import Activation, activation_of, apply_activation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..config.run_config import RunConfig

BY_CLASS = {"auc", "f1_score", "fbeta_score", "precision", "precision_at_recall", "recall", "recall_at_precision"} | {
    f"{truth}_{kind}" for truth in ("true", "false") for kind in ("positives", "negatives")
}
"""Metrics that compare a value for each class."""


def make_loss(config: RunConfig, activation: Activation) -> Any:
    """Return a configuration's loss, or one for each output; `activation` says which outputs are logits."""
    made: dict[str, Any] = {}
    for output, text in config.losses.items():
        piece = parse_piece(text)
        if piece.is_own:
            made[output] = _of_own(piece, keras.losses.Loss)
            continue
        settings = dict(piece.options)
        if config.label_smoothing:
            settings["label_smoothing"] = config.label_smoothing
        if activation_of(activation, output):
            settings.setdefault("from_logits", True)
        name = config.effective_loss or piece.name
        made[output] = _made("loss", keras.losses, LOSSES[name], settings) if settings else name
    return made.get("", made)


def own_losses(config: RunConfig) -> dict[str, Any]:
    """Return the user's own losses of a configuration, by output."""
    pieces = {name: parse_piece(text) for name, text in config.losses.items()}
    return {name: _of_own(piece, keras.losses.Loss) for name, piece in pieces.items() if piece.is_own}


def make_metrics(config: RunConfig, activation: Activation) -> Any:
    """Return a configuration's metrics, or those of each output.

    `activation` makes probabilities for Keras's metrics; the user's own get the outputs unchanged.
    """
    made: dict[str, list[Any]] = {}
    for output, text in map(split_output, config.metrics):
        made.setdefault(output, []).append(_metric(parse_piece(text), activation_of(activation, output)))
    return made.get("", made)


def make_optimizer(config: RunConfig, settings: Mapping[str, Any]) -> Any:
    """Return a configuration's optimizer; its own options come before `settings`."""
    piece = parse_piece(config.optimizer.name)
    given = {**settings, **piece.options}
    if not piece.is_own:
        return _made("optimizer.name", keras.optimizers, OPTIMIZERS[piece.name], given)
    made = call_user_function(piece.name, **given)
    return _checked(made, keras.optimizers.Optimizer, piece.name)


def make_schedule(config: RunConfig, peak: float, steps: int) -> Any:
    """Return a schedule that is neither constant nor one of this program's; it gets the peak and the run's steps."""
    piece = parse_piece(config.optimizer.schedule)
    made = find_user_code(piece.name) if piece.is_own else getattr(keras.optimizers.schedules, SCHEDULES[piece.name])
    known = dict.fromkeys(("learning_rate", "initial_learning_rate"), peak)
    known |= dict.fromkeys(("steps", "decay_steps", "first_decay_steps"), steps)
    settings = {name: known[name] for name in inspect.signature(made).parameters if name in known}
    settings = {**settings, **piece.options}
    if not piece.is_own:
        return _made("optimizer.schedule", keras.optimizers.schedules, made.__name__, settings)
    return _checked(
        call_user_function(piece.name, **settings), (keras.optimizers.schedules.LearningRateSchedule, float), piece.name
    )


def make_callbacks(config: RunConfig) -> list[Any]:
    """Return a configuration's callbacks."""
    made = []
    for piece in map(parse_piece, config.callbacks):
        if piece.is_own:
            made.append(_checked(call_user_function(piece.name, **piece.options), keras.callbacks.Callback, piece.name))
        else:
            made.append(_made("callbacks", keras.callbacks, CALLBACKS[piece.name], piece.options))
    return made


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
        settings = dict(piece.options)
        if piece.name in {"f1_score", "fbeta_score"}:
            settings.setdefault("average", "macro")  # otherwise it is not a single number
        metric = _made("metrics", keras.metrics, METRICS[piece.name], settings)
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
        labels = _value_per_class(y_true, y_pred) if by_class else y_true
        return update(labels, apply_activation(activation, y_pred), sample_weight=sample_weight)

    metric.update_state = update_state
    return metric


def _value_per_class(y_true: Any, y_pred: Any) -> Any:
    if len(y_true.shape) != len(y_pred.shape) - 1:
        return y_true
    if (classes := y_pred.shape[-1]) == 1:
        return keras.ops.expand_dims(y_true, -1)
    return keras.ops.one_hot(keras.ops.cast(y_true, "int32"), classes)


def _of_own(piece: Piece, kind: type) -> Any:
    """Return the user's loss or metric: an object of a class, or a function of labels and outputs."""
    found = find_user_code(piece.name)
    if isinstance(found, type):
        return _checked(call_user_function(piece.name, **piece.options), kind, piece.name)
    return update_wrapper(partial(found, **piece.options), found) if piece.options else found


def _made(key: str, module: Any, name: str, settings: Mapping[str, Any]) -> Any:
    """Make one of Keras's objects; raise `ConfigError` if it does not take these options."""
    try:
        return getattr(module, name)(**settings)
    except (TypeError, ValueError) as error:
        options = ", ".join(settings)
        raise ConfigError(
            [Problem(key, f"keras {name} cannot be made with {options}: {one_line(error, 200)}")]
        ) from error


def _checked(made: Any, kind: Any, reference: str) -> Any:
    if isinstance(made, kind):
        return made
    wanted = kind[0] if isinstance(kind, tuple) else kind
    raise UserCodeError(
        f"{reference} made a {type(made).__name__}, not a keras {wanted.__name__}.",
        remedy="Name a class of that kind, or a function that returns one.",
    )
