"""Makes losses, metrics, optimizers, schedules and callbacks from what a configuration names."""

from __future__ import annotations

from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any

import keras

from ..config.catalog import is_user_reference
from ..config.options import CALLBACKS, LOSSES, METRICS
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
        made[output] = make_piece("loss", loss, keras.losses, LOSSES, keras.losses.Loss) if settings else name
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
    return [make_piece("callbacks", piece, callbacks, CALLBACKS, callbacks.Callback) for piece in pieces]


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
        metric = make_piece("metrics", given, keras.metrics, METRICS, keras.metrics.Metric)
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
