"""Examples in the form that the rest of the engine uses, whatever files they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct, field
from typing_extensions import TypeAliasType


class Task(StrEnum):
    """What the model learns; it decides the form of the labels and the model's last layer.

    Labels are class numbers, shape ``()``; a probability for each class, shape ``(classes,)``; word numbers, shape
    ``(length,)``, 0 being padding; ratings or other numbers, shape ``()``; or whatever a custom dataset returns.
    """

    CLASSES = "classes"
    PROBABILITIES = "probabilities"
    TRANSLATION = "translation"
    RATINGS = "ratings"
    NUMBER = "number"
    OWN = "own"


class Input(Struct, frozen=True):
    """One input of the model."""

    shape: tuple[int | None, ...]  # shape of one example, without the batch
    dtype: str = "float32"  # what the model gets


Nested = TypeAliasType("Nested", "Input | tuple[Nested, ...] | dict[str, Nested]")
"""Inputs, labels or sample weights as an example nests them."""


def nested_from(plain: Any) -> Nested:
    """Return a structure that was saved as plain values; raise `ValueError` if it is damaged."""
    if isinstance(plain, list):
        return tuple(map(nested_from, plain))
    if isinstance(plain, dict) and not isinstance(plain.get("dtype"), str):
        return {name: nested_from(part) for name, part in plain.items()}
    return msgspec.convert(plain, Input)


def map_nested(function: Callable[[Input], Any], nested: Nested) -> Any:
    """Return the same structure with what a function returns for each part."""
    if isinstance(nested, dict):
        return {name: map_nested(function, part) for name, part in nested.items()}
    return tuple(map_nested(function, part) for part in nested) if isinstance(nested, tuple) else function(nested)


def named_parts(nested: Nested, name: str) -> Iterator[tuple[str, Input]]:
    """Yield the parts of a structure with their names: its keys, or such as ``input 1`` in a tuple."""
    if isinstance(nested, dict):
        for key, part in nested.items():
            yield from named_parts(part, key)
    elif isinstance(nested, tuple):
        for number, part in enumerate(nested, 1):
            yield from named_parts(part, f"{name} {number}")
    else:
        yield name, nested


def in_words(element: tuple[Nested, ...]) -> str:
    """Describe inputs, labels and sample weights, such as ``inputs age (float32), city (string); label (int64)``."""
    described = []
    for what, nested in zip(("input", "label", "sample weight"), element, strict=False):
        parts = []
        for name, part in named_parts(nested, what):
            size = "×".join("?" if side is None else str(side) for side in part.shape)
            parts.append(" ".join(word for word in ("" if name == what else name, size, f"({part.dtype})") if word))
        described.append(f"{what}{'s' if len(parts) > 1 else ''} {', '.join(parts)}")
    return "; ".join(described)


class Signature(Struct, frozen=True):
    """What is needed to build a model, without any example."""

    task: Task
    # The model's inputs by name. A single input is passed as a tensor, several as a dictionary.
    inputs: Mapping[str, Input]
    classes: int = 0  # number of classes; 0 if there are none, or if a custom dataset leaves it to the model
    # Other sizes by name, such as ``vocabulary``, ``users`` or ``items``.
    sizes: Mapping[str, int] = field(default_factory=dict)
    label_mean: float = 0.0  # mean of the training labels that are numbers, where a model's predictions start
    label_deviation: float = 1.0  # their standard deviation; of ratings, 1
    structure: Any = None  # the inputs' shapes as a custom dataset nests them; None for a single input

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of the only input; empty if there are several."""
        return next(iter(self.inputs.values())).shape if len(self.inputs) == 1 else ()


def own_signature(inputs: Nested, classes: int) -> Signature:
    """Return the signature of a custom dataset; its only input is called ``example``."""
    if isinstance(inputs, Input):
        return Signature(Task.OWN, {"example": inputs}, classes)
    shapes = map_nested(lambda part: part.shape, inputs)
    return Signature(Task.OWN, dict(named_parts(inputs, "input")), classes, structure=shapes)


class PassCalls(Struct, frozen=True):
    """What is called around each pass over a dataset: methods of the user's PyDataset."""

    begin: Callable[[], object] | None = None  # before its first example is read; None for nothing
    end: Callable[[], object] | None = None  # after its last example was read; None for nothing


class Examples(Struct, frozen=True):
    """Training and validation examples, unbatched."""

    train: Any  # a `tf.data.Dataset` of (inputs, label) pairs: a tensor, or a dictionary by input name
    validation: Any  # likewise, or None
    train_count: int | None  # number of training examples; None if unknown
    validation_count: int | None  # number of validation examples; None if unknown, 0 without validation
    signature: Signature
    pixel_range: float = 0.0  # what pixels are divided by to scale them to 0…1; 0 if the examples are not images
    class_names: tuple[str, ...] = ()  # names of the classes in the order of their numbers; empty if unknown
    # What `tpu-console predict` needs to turn new data into inputs; saved as the run's ``inputs.json``.
    record: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()  # what the user should know, such as skipped files
    skipped: tuple[str, ...] = ()  # those of the notices that name skipped files
    is_fixed: bool = True  # whether each pass gives the same examples; a PyDataset may change them
    # What is called around each pass over the training and the validation examples.
    pass_calls: tuple[PassCalls, PassCalls] = (PassCalls(), PassCalls())
    # The training and the validation examples as the user batched them, to be trained on as they are; None for any that
    # are batched by the pipeline.
    batches: tuple[Any, Any] = (None, None)
    batch: int = 0  # examples in the first batch of training data as the user batched it; 0 for single examples
    # Decodes all image files, reports the progress, and returns the examples that are left, with notices about the
    # rest; raises a `DataError` that names the damaged files if they may not be skipped. None if there are no files.
    without_damaged: Callable[[Callable[[str], None]], Examples] | None = None


def of_arrays(train: Any, validation: Any, **facts: Any) -> Examples:
    """Return examples in memory; both parts nest arrays as the model gets their rows, and validation may have none."""
    import tensorflow as tf

    count, held_out = (len(tf.nest.flatten(part)[0]) for part in (train, validation))
    slices = tf.data.Dataset.from_tensor_slices
    return Examples(slices(train), slices(validation) if held_out else None, count, held_out, **facts)


def label_of(dataset: Any) -> Any:
    """Return the specification of a dataset's labels; None without labels, or if there are several."""
    spec = dataset.element_spec
    return spec[1] if isinstance(spec, tuple) and len(spec) > 1 and hasattr(spec[1], "shape") else None


def known_length(dataset: Any) -> int | None:
    """Return the number of elements of a dataset; None if it is unknown or infinite."""
    length = int(dataset.cardinality())
    return length if length >= 0 else None
