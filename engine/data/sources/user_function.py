"""Loads datasets from the user's function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ...config.user_code import call_user_function
from ...errors import UserCodeError
from ...storage.keyed_store import today
from ..cached_facts import FunctionRecord, save_function_record
from ..examples import Examples, Input, PassCalls, known_length, label_of, own_signature
from .structures import hub_classes, read_part, split_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...config.run_config import RunConfig

_LABELS = 32  # that are looked at to find out what they are


def load(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    """Call the user's function; raise `UserCodeError` if it failed or returned the wrong thing."""
    try:
        return _load(config, on_fetch)
    except tf.errors.OpError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise UserCodeError(f"{config.dataset} cannot be read: {lines[0].rpartition('}} ')[2]}") from error


def _load(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    name = config.dataset
    returned = call_user_function(name, **config.data.options)
    parts = split_parts(returned)
    is_asked = config.batch_size > 0
    train = read_part(parts[0], name, on_fetch, count=config.steps_per_epoch == "all", new_batches=is_asked)
    validation = None if parts[1] is None else read_part(parts[1], name, on_fetch)
    if not any(True for _ in train.dataset.take(1)):
        raise UserCodeError(f"{name} returned a training dataset without examples.")
    labels = []  # the first ones; none without labels, or if an example has several
    if label_of(train.dataset) is not None:
        labels = [np.asarray(label) for _, label, *_ in train.dataset.take(_LABELS).as_numpy_iterator()]
    # The first are those of keras.utils.image_dataset_from_directory.
    class_names = tuple(map(str, getattr(parts[0], "class_names", ()) or hub_classes(parts[0])))
    keeps = train.batches is not None and not (is_asked and train.has_one_size)
    notices = [part.notice for part in (train, validation) if part is not None and part.notice]
    if keeps and is_asked:
        what = f"the examples of {name} differ in size, so no other batches can be made of them"
        notices.append(f"batch_size={config.batch_size} has no effect: {what}.")
    forms = [part and ("kept" if is_kept and part.form == "batches" else part.form)
             for part, is_kept in ((train, keeps), (validation, True))]  # fmt: skip
    examples = Examples(
        train=train.dataset,
        validation=validation and validation.dataset,
        train_count=train.count,
        validation_count=0 if validation is None else validation.count,
        signature=own_signature(
            tf.nest.map_structure(_described, train.dataset.element_spec[0]), _count_classes(train.dataset, labels)
        ),
        class_names=class_names,
        record={"returned": forms[:1] if parts[0] is returned else forms}
        | ({"class_names": class_names} if class_names else {}),
        notices=tuple(notices),
        is_fixed=train.is_fixed,
        pass_calls=(train.pass_calls, PassCalls() if validation is None else validation.pass_calls),
        batches=(train.batches if keeps else None, validation and validation.batches),
        batch=train.batch,
    )
    elements = [() if part is None else tf.nest.map_structure(_described, part.element_spec)
                for part in (examples.train, examples.validation)]  # fmt: skip
    are_whole = all(label.dtype.kind in "iuf" and bool((label == np.round(label)).all()) for label in labels)
    record = FunctionRecord(
        train=elements[0],
        validation=elements[1],
        classes=examples.signature.classes,
        train_count=examples.train_count,
        validation_count=examples.validation_count,
        day=today(),
        whole_labels=are_whole if labels and labels[0].dtype.kind in "iuf" else None,
        batch=train.batch,
        batches=None if train.batches is None else known_length(train.batches),
        has_one_size=train.has_one_size,
    )
    save_function_record(config, record)
    return examples


def _described(spec: Any) -> Input:
    return Input((None,) if spec.shape.rank is None else tuple(spec.shape), spec.dtype.name)


def _count_classes(dataset: Any, labels: list[Any]) -> int:
    """Take the width of labels with a share per class, or the largest class number plus one of 10,000 or fewer.

    `labels` are the first ones: rows of other numbers, such as the tokens of a text, are no classes.
    """
    if not labels:
        return 0
    first = labels[0]
    if first.ndim == 1 and first.size > 1:
        are_shares = first.dtype.kind in "biuf" and all(0 <= one.min() <= one.max() <= 1 for one in labels)
        return first.size if are_shares else 0
    if first.dtype.kind in "iu" and first.size == 1:  # also of shape (1,), as in keras.datasets.cifar10
        counted = dataset.take(10_000 if dataset.cardinality() >= 0 else 1_000).map(
            lambda _, label, *__: tf.reshape(label, ())
        )
        return int(counted.reduce(np.int64(0), lambda top, label: tf.maximum(top, tf.cast(label, tf.int64)))) + 1
    return 0
