"""Inspects a dataset: its examples, their classes and sizes, bad files, and the speed of the pipeline."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.reading import parse_config
from ..data.cached_facts import save_input_speed
from ..data.describing import small_picture
from ..data.download import reporting
from ..data.examples import Examples, Task
from ..data.kinds.table import KINDS, load_examples
from ..errors import ConsoleError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ..messages import Reporter

_PICTURES = 12


def inspect_dataset(reporter: Reporter, config: Mapping[str, Any], speed: bool = False) -> dict[str, Any]:
    """Inspect the dataset of a configuration.

    Files that cannot be used are reported, and so is anything that would keep a run from starting.

    Returns:
        ``task``, ``train`` and ``validation`` (how many), ``inputs`` and ``sizes``, ``classes``, ``pictures``,
        ``unknown_words``, ``notices``, what the kind of dataset tells (``images``, ``bad``, ``texts``, ``ratings``),
        ``speed`` if requested, and ``trouble``: why the dataset cannot be loaded, or None.
    """
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # not needed here, and a run may be using it
    settings = parse_config(config)
    kind = KINDS.get(settings.dataset)
    found: dict[str, Any] = {"trouble": None}
    note = cache(reporter.note)  # once for each text: files are checked more than once
    try:
        if kind is not None:
            found |= kind.describe_files(settings, reporter, note)
        loaded = settings
        if kind is not None and "skip_bad" in kind.Options.model_fields:  # since they are reported here
            options = settings.data.options | {"skip_bad": True}
            loaded = settings.model_copy(update={"data": settings.data.model_copy(update={"options": options})})
        examples = load_examples(loaded, reporting(reporter, note))
        signature = examples.signature
        inputs = {name: {"shape": list(part.shape), "dtype": part.dtype} for name, part in signature.inputs.items()}
        found |= {
            "task": signature.task.value,
            "train": examples.train_count,
            "validation": examples.validation_count,
            "inputs": inputs,
            "sizes": dict(signature.sizes),
            "classes": class_balance(examples),
            "pictures": picture_samples(examples, _PICTURES),
            "unknown_words": {},
            "notices": [notice for notice in examples.notices if notice not in examples.skipped],
        }
        found |= {} if kind is None else kind.describe(examples)
        if speed:
            from .input_speed import measure

            found["speed"] = measure(settings, examples, reporter)
            save_input_speed(settings, found["speed"]["parts"])
    except ConsoleError as error:
        return found | {"trouble": {"what": error.what, "why": error.why, "remedy": error.remedy}}
    return found


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


_LOOKED_AT = 40
"""Examples to search per image, to find one of every class."""


def picture_samples(examples: Examples, count: int) -> list[dict[str, Any]]:
    """Return some training examples as in `small_picture`, of as many classes as a short search finds."""
    shape = examples.signature.shape
    if len(shape) != 3 or shape[-1] not in {1, 3}:
        return []
    by_class: dict[str, list[NDArray[Any]]] = {}
    most = min(count * _LOOKED_AT, examples.train_count or count * _LOOKED_AT)
    wanted = min(examples.signature.classes or 1, count)
    for image, label, *_ in examples.train.take(most):
        by_class.setdefault(_caption(label.numpy(), examples), []).append(image.numpy())
        if len(by_class) >= wanted and sum(map(len, by_class.values())) >= count:
            break
    # One of each class, then a second one of each class, and so on.
    rounds = max(map(len, by_class.values()), default=0)
    taken = [(name, by_class[name][turn]) for turn in range(rounds) for name in sorted(by_class)
             if turn < len(by_class[name])]  # fmt: skip
    return [small_picture(name, image, examples.pixel_range) for name, image in taken[:count]]


def _caption(label: NDArray[Any], examples: Examples) -> str:
    if label.ndim > 1 or not examples.signature.classes:
        return ""
    number = int(label.argmax()) if label.ndim == 1 else int(label)
    return examples.class_names[number] if number < len(examples.class_names) else str(number)
