"""Loads datasets from the user's function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ...config.user_code import call_user_function
from ...errors import UserCodeError
from ...storage.keyed_store import today
from ..examples import Examples, Input, PassCalls, Signature, Task, label_of
from ..function_record import FunctionRecord, save_function_record
from .structures import split_parts, unbatched

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...config.run_config import RunConfig


def load(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:  # noqa: ARG001  fetches nothing itself
    """Call the user's function; raise `UserCodeError` if it failed or returned the wrong thing."""
    try:
        return _load(config)
    except tf.errors.OpError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise UserCodeError(f"{config.dataset} cannot be read: {lines[0].rpartition('}} ')[2]}") from error


def _load(config: RunConfig) -> Examples:
    name = config.dataset
    returned = call_user_function(name, **config.data.options)
    parts = split_parts(returned)
    train = unbatched(parts[0], name)
    validation = None if parts[1] is None else unbatched(parts[1], name)
    if not any(True for _ in train.dataset.take(1)):
        raise UserCodeError(f"{name} returned a training dataset without examples.")
    spec = train.dataset.element_spec
    class_names = tuple(map(str, getattr(parts[0], "class_names", ())))  # of keras.utils.image_dataset_from_directory
    forms = [train.form] if parts[0] is returned else [train.form, validation and validation.form]
    examples = Examples(
        train=train.dataset,
        validation=validation and validation.dataset,
        train_count=train.count,
        validation_count=0 if validation is None else validation.count,
        signature=Signature(
            Task.OWN,
            _inputs(spec[0]),
            _count_classes(train.dataset, label_of(train.dataset)),
            structure=tf.nest.map_structure(_shape, spec[0]) if tf.nest.is_nested(spec[0]) else None,
        ),
        class_names=class_names,
        record={"returned": forms} | ({"class_names": class_names} if class_names else {}),
        notices=tuple(part.notice for part in (train, validation) if part is not None and part.notice),
        is_fixed=train.is_fixed,
        pass_calls=(train.pass_calls, PassCalls() if validation is None else validation.pass_calls),
    )
    save_function_record(config, _record_of(examples, train.was_batched))
    return examples


def _shape(spec: Any) -> tuple[int | None, ...]:
    return tuple(spec.shape) if spec.shape.rank is not None else (None,)


def _inputs(spec: Any) -> dict[str, Input]:
    """Return the inputs by name; the only one is called ``example``."""
    if not tf.nest.is_nested(spec):
        return {"example": Input(() if spec.shape.rank is None else tuple(spec.shape), spec.dtype.name)}
    return {name: _described(part) for name, part in _named(spec, "input")}


def _named(spec: Any, name: str) -> list[tuple[str, Any]]:
    """Return the tensors of a structure with their names, such as ``input 1`` in a tuple."""
    if isinstance(spec, dict):
        return [named for key, part in spec.items() for named in _named(part, str(key))]
    if isinstance(spec, tuple | list):
        return [named for number, part in enumerate(spec, 1) for named in _named(part, f"{name} {number}")]
    return [(name, spec)]


def _in_words(spec: Any) -> str:
    """Describe what an element holds, such as ``inputs age (float32), city (string); labels 3 (float32)``."""
    parts = []
    for what, part in zip(("input", "label", "sample weight"), spec, strict=False):
        named = _named(part, what)
        sizes = ["×".join("?" if side is None else str(side) for side in _shape(one)) for _, one in named]
        written = [
            f"{'' if len(named) == 1 and name == what else f'{name} '}{size}{' ' if size else ''}({one.dtype.name})"
            for (name, one), size in zip(named, sizes, strict=True)
        ]
        parts.append(f"{what}{'s' if len(written) > 1 else ''} {', '.join(written)}")
    return "; ".join(parts)


def _record_of(examples: Examples, was_batched: bool) -> FunctionRecord:
    """Describe what the function returned, for code that must not call it."""
    spec = examples.train.element_spec
    label = label_of(examples.train)
    weights = [part.element_spec[2] if part is not None and len(part.element_spec) > 2 else None
               for part in (examples.train, examples.validation)]  # fmt: skip
    shapes = [None if one is None or tf.nest.is_nested(one) else _shape(one) for one in weights]
    return FunctionRecord(
        example=_described(tf.nest.flatten(spec[0])[0]),
        label=Input(()) if label is None else _described(label),
        classes=examples.signature.classes,
        train_count=examples.train_count,
        validation_count=examples.validation_count,
        day=today(),
        weight=shapes[0],
        validation_weight=shapes[1],
        whole_labels=None if label is None else _are_whole(examples.train, label),
        structure=_in_words(spec) + ("; batches were taken apart" if was_batched else ""),
        is_nested=label is None or tf.nest.is_nested(spec[0]),
    )


def _are_whole(dataset: Any, spec: Any) -> bool | None:
    """Return whether the first labels are whole numbers; None if they are not numbers."""
    if not (spec.dtype.is_integer or spec.dtype.is_floating):
        return None
    return all(bool((label == np.round(label)).all()) for _, label, *_ in dataset.take(32).as_numpy_iterator())


def _described(spec: Any) -> Input:
    return Input((None,) if spec.shape.rank is None else tuple(spec.shape), spec.dtype.name)


def _count_classes(dataset: Any, spec: Any) -> int:
    """Take the width of a one-hot label, or the largest integer label plus one of 10,000 examples or fewer."""
    if spec is None:
        return 0
    if spec.shape.rank == 1 and (spec.shape[0] or 0) > 1:
        return int(spec.shape[0])
    if spec.dtype.is_integer and spec.shape.num_elements() == 1:  # also of shape (1,), as in keras.datasets.cifar10
        first = dataset.take(10_000 if dataset.cardinality() >= 0 else 1_000).map(
            lambda _, label, *__: tf.reshape(label, ())
        )
        return int(first.reduce(np.int64(0), lambda top, label: tf.maximum(top, tf.cast(label, tf.int64)))) + 1
    return 0
