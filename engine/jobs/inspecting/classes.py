"""Counts the examples of each class in the two parts of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.examples import Task

if TYPE_CHECKING:
    from ...data.examples import Examples

_BATCH = 4096


def class_balance(examples: Examples) -> list[dict[str, Any]]:
    """Return the name of each class and its examples per part, in the order of their numbers; empty without classes.

    If the record of the examples holds the counts, nothing is read.
    """
    classes = examples.signature.classes
    if not classes or examples.signature.task not in {Task.CLASSES, Task.PROBABILITIES, Task.OWN}:
        return []
    known = examples.record.get("class_counts")
    if known is None:
        known = {"train": _count(examples.train, classes), "validation": _count(examples.validation, classes)}
    names = examples.class_names or tuple(str(number) for number in range(classes))
    return [
        {"name": names[number], "train": int(known["train"][number]), "validation": int(known["validation"][number])}
        for number in range(classes)
    ]


def _count(dataset: Any, classes: int) -> list[int]:
    counts = np.zeros(classes, np.int64)
    if dataset is not None:
        # Labels only: their batches are small, whatever the examples are.
        for batch in dataset.map(lambda _, label, *_weight: label).batch(_BATCH):
            labels = batch.numpy()
            numbers = labels.argmax(axis=-1) if labels.ndim > 1 else labels.astype(np.int64)
            counts += np.bincount(numbers.ravel(), minlength=classes)[:classes]
    return [int(count) for count in counts]
