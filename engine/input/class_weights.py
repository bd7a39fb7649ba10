"""Computes class weights, with which examples of rare classes count more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..data.examples import Examples, label_of
from ..errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LABELS = 4096  # in a batch


def has_class_labels(examples: Examples) -> bool:
    """Return whether labels are class numbers, or a probability for each class, of a known number of classes."""
    label, classes = label_of(examples.train), examples.signature.classes
    if label is None:
        return False
    is_number = label.shape.as_list() in ([], [1]) and label.dtype.is_integer
    return bool(classes) and (is_number or label.shape.as_list() == [classes])


def training_weights(examples: Examples, asked: str | Mapping[str, float]) -> NDArray[np.float32] | None:
    """Return the weight of each class as ``class_weight`` asks for it; None for ``none``.

    Balanced classes count equally: ``n / (k · n_c)`` for k classes with examples, as in scikit-learn. The counts are in
    the dataset's record, or need a pass over the labels. Raises `DataError` without class labels or a known length.
    """
    if asked == "none":
        return None
    label, classes = label_of(examples.train), examples.signature.classes
    if not isinstance(asked, str):
        if label is None or label.dtype == tf.string or len(label.shape) > 1:
            raise DataError("class_weight needs one label for each example, a class.", remedy="Set class_weight=none.")
        if classes and (unknown := [number for number in asked if int(number) >= classes]):
            raise DataError(f"class_weight names class {unknown[0]}, but the data has classes 0 to {classes - 1:,}.")
        # One more than the classes: that of labels beyond the table.
        weights = np.ones(1 + max(classes, *(int(number) + 1 for number in asked), *label.shape), np.float32)
        for number, weight in asked.items():
            weights[int(number)] = weight
        return weights
    if not has_class_labels(examples):
        what = "class_weight=balanced needs labels that are class numbers or a probability for each class."
        raise DataError(what, remedy="Set class_weight=none.")
    counted = examples.record.get("class_counts", {}).get("train")
    if counted is None and examples.train_count is None:
        what = "class_weight=balanced has to count the classes, but the dataset has an unknown number of examples."
        remedy = "Set the number with tf.data.experimental.assert_cardinality, or set class_weight=none."
        raise DataError(what, remedy=remedy)
    counts = class_totals(examples.train, classes) if counted is None else np.asarray(counted, np.float64)
    present = counts > 0
    weights = np.zeros(len(counts), np.float32)
    weights[present] = counts.sum() / (present.sum() * counts[present])
    return weights


def class_totals(dataset: Any, classes: int) -> NDArray[np.float64]:
    """Count the examples of each class in one pass over the labels; probabilities count in part for each class."""

    def shares(_: Any, label: Any, *__: Any) -> Any:
        is_number = label.dtype.is_integer and label.shape != [classes]
        return tf.one_hot(tf.reshape(label, ()), classes) if is_number else label

    batches = [] if dataset is None else dataset.map(shares).batch(_LABELS)  # small, whatever the examples are
    totals: NDArray[np.float64] = sum((batch.numpy().sum(axis=0, dtype=float) for batch in batches), np.zeros(classes))
    return totals


def class_numbers(labels: Any) -> Any:
    """Return a batch of class numbers without the axis that a column of them has."""
    return labels[:, 0] if labels.shape.rank == 2 and labels.shape[1] == 1 else labels


def sample_weights(labels: Any, weights: NDArray[np.float32]) -> Any:
    """Return the weight of each example of a batch, from its class number or its probability for each class."""
    numbers = class_numbers(labels)
    if numbers.shape.rank == 1:
        numbers = tf.cast(tf.round(numbers), tf.int32)
        return tf.gather(tf.constant(weights), tf.minimum(numbers, len(weights) - 1))
    return tf.linalg.matvec(tf.cast(labels, tf.float32), tf.constant(weights[: labels.shape[-1]]))
