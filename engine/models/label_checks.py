"""Checks before training that labels, loss and a custom model fit; the error names the loss that does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from ..config.pieces import of_output, parse_piece, split_output
from ..config.run_config import RunConfig, probabilities_by
from ..errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_OWN_WAYS = ("train_step", "compute_loss")
_NUMBERS = ("mean_squared_error", "mean_absolute_error", "huber")


def check_labels(config: RunConfig, model: Any, outputs: Mapping[str, Any], labels: Any) -> None:
    """Raise `DataError` if labels do not fit losses and outputs of a model that does not compute its loss itself."""
    if any(getattr(type(model), name, None) is not getattr(keras.Model, name, None) for name in _OWN_WAYS):
        return
    if not outputs or labels is None:
        return
    refuse_texts(labels)
    losses = {name: config.losses.get(name, config.losses.get("")) for name in outputs}
    trained = {name: loss for name, loss in losses.items() if loss}
    given = _by_name(labels, [*outputs], {*trained})
    for name, loss in trained.items():
        values = np.asarray(given[name]) if hasattr(given[name], "shape") else None
        shape = tuple(outputs[name].shape)
        if values is None or values.dtype.kind not in "biuf" or not shape or shape[-1] is None:
            continue
        width = values.shape[-1] if values.ndim == len(shape) else 1
        _check_output(config.effective_loss or parse_piece(loss).name, values, width, int(shape[-1]), name)


def _check_output(loss: str, labels: NDArray[Any], width: int, units: int, output: str) -> None:
    low, high, is_whole = labels.min(), labels.max(), bool((labels == np.round(labels)).all())
    is_share = low >= 0 and high <= 1
    fitting = {
        "sparse_categorical_crossentropy": is_whole and low >= 0 and high < units > 1 == width,
        "categorical_crossentropy": width == units > 1,
        "binary_crossentropy": is_share and width == units,
    }
    if fitting.get(loss, width == units or loss not in _NUMBERS):
        return
    kind = f"{'a' if width == 1 else f'{width:,}'} {'whole' if is_whole else 'decimal'} number"
    key = f"loss={output}=" if output else "loss="
    better = f"For numbers, give the model {width:,} linear output{'s' * (width > 1)} and set {key}mean_squared_error."
    found = next((name for name, fits in fitting.items() if fits), "")
    if found and is_share and (is_whole or width > 1):
        better = f"Set {key}{found}."
    elif is_whole:
        better = f"Number classes from 0, with an output per class and {key}sparse_categorical_crossentropy. {better}"
    where = f"Output {output}: " if output else ""
    raise DataError(
        f"{where}{loss} does not fit: a label is {kind}{'s' * (width > 1)} from {low:.4g} to {high:.4g}, and the model "
        f"gives {units:,} value{'s' * (units > 1)}.",
        remedy=better,
    )


def refuse_texts(labels: Any) -> None:
    """Raise `DataError` if labels, or their specification, are texts."""
    if getattr(getattr(labels, "dtype", None), "name", "") == "string":
        raise DataError(
            "Labels are texts, which no loss takes.",
            remedy="Number them in the dataset function: numpy.unique(labels, return_inverse=True)[1].",
        )


def _by_name(labels: Any, outputs: list[str], trained: set[str]) -> Mapping[str, Any]:
    """Return the labels of each output, or of those that are trained."""
    parts = list(labels.values()) if isinstance(labels, dict) else labels
    if not isinstance(parts, tuple | list):
        parts = [parts]
    elif isinstance(labels, dict) and labels.keys() >= trained:
        return labels
    if len(parts) == len(outputs) and not (isinstance(labels, dict) and len(outputs) > 1):
        return dict(zip(outputs, parts, strict=True))
    names = f" ({', '.join(map(str, labels))})" if isinstance(labels, dict) else ""
    gives = f"{len(outputs)} outputs ({', '.join(outputs)})" if len(outputs) > 1 else "one output"
    raise DataError(
        f"An example has {len(parts)} label{'s' if len(parts) > 1 else ''}{names}, but the model gives {gives}.",
        remedy="Return a label for each output from the dataset function, as a dictionary of the outputs' names.",
    )


def for_outputs(config: RunConfig, names: tuple[str, ...]) -> RunConfig:
    """Return a configuration whose losses and metrics name the outputs of a model, or none of them if there is one.

    A loss or metric without a name is that of every output; accuracy is only measured of outputs with a crossentropy.
    Raises `DataError` if the configuration names an output that the model does not have.
    """
    given = [*config.losses, *(split_output(metric)[0] for metric in config.metrics), *config.loss_weights]
    several = names if len(names) > 1 else ()
    if unknown := next((name for name in given if name and name not in several), None):
        has = f"Its outputs are {', '.join(several)}." if several else "It has one output."
        raise DataError(f"The model {config.model} has no output '{unknown}'.", why=has)
    if not several:
        return config
    losses = {name: config.losses.get(name, config.losses.get("")) for name in several}
    metrics = []
    for metric in config.metrics:
        output, text = split_output(metric)
        fitting = [name for name, loss in losses.items() if text != "accuracy" or probabilities_by(loss or "")]
        metrics += [metric] if output else [of_output(name, text) for name in fitting]
    loss = ", ".join(of_output(name, text) for name, text in losses.items() if text)
    weights = {name: config.loss_weights.get(name, 1.0) for name, text in losses.items() if text}
    changes = {"loss": loss, "metrics": tuple(metrics), "loss_weights": weights if config.loss_weights else {}}
    return config.model_copy(update=changes)
