"""Checks before training that labels, loss and a custom model fit; the error names the loss that does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from ..errors import DataError
from .outputs import try_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..config.run_config import RunConfig

_NUMBERS = (
    "To predict numbers, set loss=mean_squared_error and metrics=mean_absolute_error, and give the model one linear "
    "output per number."
)
_OWN_WAYS = ("train_step", "compute_loss")


def check_labels(config: RunConfig, model: Any, inputs: Any, labels: Any) -> None:
    """Check a batch of labels against the loss and the model's output.

    Nothing is checked if the model computes its loss itself, or has several outputs.

    Raises:
        DataError: They do not fit.
    """
    if any(getattr(type(model), name, None) is not getattr(keras.Model, name, None) for name in _OWN_WAYS):
        return
    if isinstance(labels, dict | tuple | list):
        raise DataError(
            "There are several labels per example, but the model is not compiled with a loss for each.",
            remedy='Compile the model in its function, as in model.compile("adam", {"price": "mse", …}).',
        )
    shape = _output_shape(model, inputs)
    values = np.asarray(labels) if hasattr(labels, "shape") else None
    if values is None or values.dtype.kind not in "biuf" or not shape or shape[-1] is None:
        return
    found = label_problem(config.effective_loss, values, shape)
    if found is not None:
        raise DataError(*found[:1], remedy=found[1])


def label_problem(loss: str, labels: NDArray[Any], shape: tuple[int | None, ...]) -> tuple[str, str] | None:
    """Return what is wrong with labels for a loss, and what to do; None if they fit.

    Args:
        loss: The loss's name.
        labels: A batch of labels.
        shape: The shape of the model's output, the batch included.
    """
    check = _CHECKS.get(loss)
    return check(labels, int(shape[-1] or 0), labels.ndim == len(shape)) if check is not None else None


_Found = tuple[str, str] | None


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


def _output_shape(model: Any, inputs: Any) -> tuple[int | None, ...] | None:
    """Return the shape of a model's only output, the batch included; None if there is none or it is unknown."""
    try:
        shape = model.output_shape
    except (AttributeError, ValueError):
        outputs = try_model(model, inputs)
        shape = getattr(outputs, "shape", None)
    return shape if isinstance(shape, tuple) and all(isinstance(side, int | None) for side in shape) else None
