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


_NUMBERS = (
    "To predict numbers, set loss=mean_squared_error and metrics=mean_absolute_error, and give the model one linear "
    "output per number."
)
_Found = tuple[str, str] | None
_OWN_WAYS = ("train_step", "compute_loss")


def check_labels(config: RunConfig, model: Any, outputs: Mapping[str, Any], labels: Any) -> None:
    """Check a batch of labels against the losses and the model's outputs, as `outputs_by_name` returned them.

    Nothing is checked if the model computes its loss itself.

    Raises:
        DataError: They do not fit.
    """
    if any(getattr(type(model), name, None) is not getattr(keras.Model, name, None) for name in _OWN_WAYS):
        return
    if not outputs or labels is None:
        return
    refuse_texts(labels)
    losses = {name: config.losses.get(name, config.losses.get("")) for name in outputs}
    trained = {name: loss for name, loss in losses.items() if loss}
    given = _by_name(labels, [*outputs], {*trained})
    for name, loss in trained.items():
        check = _CHECKS.get(config.effective_loss or parse_piece(loss).name)
        values = np.asarray(given[name]) if hasattr(given[name], "shape") else None
        shape = tuple(outputs[name].shape)
        if check is None or values is None or values.dtype.kind not in "biuf" or not shape or shape[-1] is None:
            continue
        if (found := check(values, int(shape[-1]), values.ndim == len(shape))) is not None:
            what, remedy = found
            if name:
                remedy = f"{remedy} A loss for each output is written loss={name}=mean_squared_error, …"
            raise DataError(f"Output {name}: {what}" if name else what, remedy=remedy)


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


def _sparse(labels: NDArray[Any], units: int, has_row: bool) -> _Found:
    loss = "sparse_categorical_crossentropy"
    if has_row and labels.shape[-1] == units > 1:
        return f"{loss} needs a class number, but a label has {units:,} values.", _use("categorical_crossentropy")
    if not _is_whole(labels):
        example = float(labels[labels != np.round(labels)].flat[0])
        return f"{loss} needs class numbers, but labels are decimal numbers, such as {example:.4g}.", _NUMBERS
    if units == 1:
        what = f"{loss} needs one output per class, but the model has a single one."
        return what, f"For two classes, {_use('binary_crossentropy', 'set')} {_NUMBERS}"
    if (outside := labels.max()) >= units or (outside := labels.min()) < 0:
        what = f"A label is {outside:g}, but {_gives(units)}: classes 0 to {units - 1:,}."
        return what, "Number the classes from 0, or give the model one output per class."
    return None


def _categorical(labels: NDArray[Any], units: int, has_row: bool) -> _Found:
    if has_row and labels.shape[-1] == units > 1:
        return None
    what = "categorical_crossentropy needs a value per class, but "
    what += f"labels have shape {labels.shape[1:]}, and {_gives(units)}."
    better = "binary" if units == 1 else "sparse_categorical"
    return what, _use(f"{better}_crossentropy") if _is_whole(labels) else _NUMBERS


def _binary(labels: NDArray[Any], units: int, has_row: bool) -> _Found:
    low, high = labels.min(), labels.max()
    if low < 0 or high > 1:
        what = f"binary_crossentropy needs labels from 0 to 1, but they go from {low:g} to {high:g}."
        return what, _use("sparse_categorical_crossentropy") if _is_whole(labels) and low >= 0 else _NUMBERS
    if units > 1 and not (has_row and labels.shape[-1] == units):
        what = "binary_crossentropy needs as many labels as outputs, but "
        what += f"labels have shape {labels.shape[1:]}, and {_gives(units)}."
        return what, f"Give the model a single output, or {_use('sparse_categorical_crossentropy', 'set')}"
    return None


def _numbers(labels: NDArray[Any], units: int, has_row: bool) -> _Found:
    width = labels.shape[-1] if has_row else 1
    if width == units:
        return None
    what = f"A label has {width:,} number{'s' if width > 1 else ''}, but {_gives(units)}."
    classes = f" If labels are classes, {_use('sparse_categorical_crossentropy', 'set')}" if _is_whole(labels) else ""
    return what, f"Give the model one output per number.{classes}"


_CHECKS = {
    "sparse_categorical_crossentropy": _sparse,
    "categorical_crossentropy": _categorical,
    "binary_crossentropy": _binary,
    "mean_squared_error": _numbers,
    "mean_absolute_error": _numbers,
    "huber": _numbers,
}


def _is_whole(labels: NDArray[Any]) -> bool:
    return bool((labels == np.round(labels)).all())


def _gives(units: int) -> str:
    return f"the model gives {units:,} value{'s' if units > 1 else ''} per example"


def _use(loss: str, verb: str = "Set") -> str:
    return f"{verb} loss={loss}."


def for_outputs(config: RunConfig, names: tuple[str, ...]) -> RunConfig:
    """Return a configuration whose losses and metrics name the outputs of a model, or none of them if there is one.

    A loss or metric without a name is that of every output; accuracy is only measured of outputs with a crossentropy.

    Raises:
        DataError: The configuration names an output that the model does not have.
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
