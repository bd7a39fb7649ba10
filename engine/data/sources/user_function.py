"""Loads datasets from the user's function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ...config.user_code import call_user_function
from ...errors import UserCodeError
from ...storage.keyed_store import today
from ..examples import Examples, Input, Signature, Task
from ..function_record import FunctionRecord, save_function_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...config.run_config import RunConfig


def load(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:  # noqa: ARG001  fetches nothing itself
    """Call the user's function; raise `UserCodeError` if it failed or returned the wrong thing."""
    name = config.dataset
    returned = call_user_function(name, **config.data.options)
    pair = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    for part, dataset in zip(("training", "validation"), pair, strict=True):
        if not isinstance(dataset, tf.data.Dataset) and not (part == "validation" and dataset is None):
            raise UserCodeError(
                f"{name} returned a {type(dataset).__name__} as its {part} data instead of a tf.data.Dataset.",
                remedy="Return (train, validation), unbatched datasets of (example, label); validation may be None.",
            )
    train, validation = pair
    spec = train.element_spec
    if not (isinstance(spec, tuple) and len(spec) in {2, 3} and hasattr(spec[0], "shape")):
        raise UserCodeError(
            f"{name} returned a dataset of {spec} instead of (example, label) pairs.",
            remedy="Map each element to (example, label), unbatched.",
        )
    shape = tuple(spec[0].shape) if spec[0].shape.rank is not None else ()
    if shape[:1] == (None,) and shape[:2] != (None, None):  # not images whose height and width vary
        raise UserCodeError(
            f"{name} returned examples of shape {spec[0].shape}, whose first size varies: they look batched.",
            remedy="Return unbatched datasets; they are batched for the replicas.",
        )
    if not any(True for _ in train.take(1)):
        raise UserCodeError(f"{name} returned a training dataset without examples.")
    examples = Examples(
        train=train,
        validation=validation,
        train_count=_count(train),
        validation_count=0 if validation is None else _count(validation),
        signature=Signature(Task.OWN, {"example": Input(shape)}, _count_classes(train, spec[1])),
    )
    save_function_record(config, _record_of(examples))
    return examples


def _record_of(examples: Examples) -> FunctionRecord:
    """Describe what the function returned, for code that must not call it."""
    example, label, *weight = examples.train.element_spec
    validation = () if examples.validation is None else tuple(examples.validation.element_spec)[2:]
    return FunctionRecord(
        example=_described(example),
        label=_described(label),
        classes=examples.signature.classes,
        train_count=examples.train_count,
        validation_count=examples.validation_count,
        day=today(),
        weight=_described(weight[0]).shape if weight else None,
        validation_weight=_described(validation[0]).shape if validation else None,
        whole_labels=_are_whole(examples.train, label),
    )


def _are_whole(dataset: Any, spec: Any) -> bool | None:
    """Return whether the first labels are whole numbers; None if they are not numbers."""
    if not (spec.dtype.is_integer or spec.dtype.is_floating):
        return None
    return all(bool((label == np.round(label)).all()) for _, label, *_ in dataset.take(32).as_numpy_iterator())


def _described(spec: Any) -> Input:
    return Input((None,) if spec.shape.rank is None else tuple(spec.shape), spec.dtype.name)


def _count(dataset: Any) -> int | None:
    count = int(dataset.cardinality())
    return count if count >= 0 else None


def _count_classes(dataset: Any, spec: Any) -> int:
    """Take the width of a one-hot label, or the largest integer label plus one, from up to 10,000 examples."""
    if spec.shape.rank == 1 and spec.shape[0]:
        return int(spec.shape[0])
    if spec.shape.rank == 0 and spec.dtype.is_integer:
        return (
            int(dataset.take(10_000).reduce(np.int64(0), lambda top, pair: tf.maximum(top, tf.cast(pair[1], tf.int64))))
            + 1
        )
    return 0
