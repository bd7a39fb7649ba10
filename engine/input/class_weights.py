"""Computes class weights, with which examples of rare classes count more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..data.examples import label_of
from ..errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..data.examples import Examples


def balanced_weights(counts: NDArray[Any]) -> NDArray[np.float32]:
    """Return the weight of each class that makes all classes count equally: ``n / (k · n_c)``, as in scikit-learn.

    Empty classes are not among the k.
    """
    present = counts > 0
    weights = np.zeros(len(counts), np.float32)
    weights[present] = counts.sum() / (present.sum() * counts[present])
    return weights


def has_class_labels(examples: Examples) -> bool:
    """Return whether labels are class numbers, or a probability for each class, of a known number of classes."""
    label, classes = label_of(examples.train), examples.signature.classes
    if label is None:
        return False
    is_number = label.shape.rank == 0 and label.dtype.is_integer
    return bool(classes) and (is_number or label.shape.as_list() == [classes])


def training_weights(examples: Examples) -> NDArray[np.float32]:
    """Return the weight of each class in the training data.

    The counts come from the dataset, or from one pass over the labels.

    Raises:
        DataError: There are no classes, or the number of examples is unknown.
    """
    if not has_class_labels(examples):
        raise DataError(
            "class_weight=balanced needs labels that are class numbers or a probability for each class.",
            remedy="Set class_weight=none.",
        )
    counted = examples.record.get("class_counts", {}).get("train")
    if counted is not None:
        return balanced_weights(np.asarray(counted, np.float64))
    if examples.train_count is None:
        raise DataError(
            "class_weight=balanced has to count the classes, but the dataset has an unknown number of examples.",
            remedy="Set the number with tf.data.experimental.assert_cardinality, or set class_weight=none.",
        )
    classes = examples.signature.classes
    labels = examples.train.map(lambda _, label, *__: label if label.shape.rank else tf.one_hot(label, classes))
    totals = labels.batch(4096).reduce(
        np.zeros(classes), lambda total, batch: total + tf.reduce_sum(tf.cast(batch, tf.float64), axis=0)
    )
    return balanced_weights(totals.numpy())


def sample_weights(labels: Any, weights: NDArray[np.float32]) -> Any:
    """Return the weight of each example of a batch, from its class number or its probability for each class."""
    if labels.dtype.is_integer and labels.shape.rank == 1:
        return tf.gather(tf.constant(weights), labels)
    return tf.linalg.matvec(tf.cast(labels, tf.float32), tf.constant(weights))
