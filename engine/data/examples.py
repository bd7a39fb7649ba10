"""Examples in the form that the rest of the engine uses, whatever files they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Task(StrEnum):
    """What the model learns; it decides the form of the labels and the model's last layer.

    Labels are class numbers, shape ``()``; a probability for each class, shape ``(classes,)``; word numbers, shape
    ``(length,)``, 0 being padding; ratings, shape ``()``; or whatever a custom dataset returns.
    """

    CLASSES = "classes"
    PROBABILITIES = "probabilities"
    TRANSLATION = "translation"
    RATINGS = "ratings"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class Input:
    """One input of the model.

    Args:
        shape: Shape of one example, without the batch.
        dtype: What the model gets.
    """

    shape: tuple[int | None, ...]
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Signature:
    """What is needed to build a model, without any example.

    Args:
        task: What the model learns.
        inputs: The model's inputs by name. A single input is passed as a tensor, several as a dictionary.
        classes: Number of classes; 0 if there are none, or if a custom dataset leaves it to the model.
        sizes: Other sizes by name, such as ``vocabulary``, ``users`` or ``items``.
        label_mean: Mean of the training ratings, where a model's predictions start.
    """

    task: Task
    inputs: Mapping[str, Input]
    classes: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    label_mean: float = 0.0

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of the only input; empty if there are several."""
        return next(iter(self.inputs.values())).shape if len(self.inputs) == 1 else ()


@dataclass(frozen=True, slots=True)
class Examples:
    """Training and validation examples, unbatched.

    Args:
        train: A `tf.data.Dataset` of (inputs, label) pairs: a tensor, or a dictionary by input name.
        validation: Likewise, or None.
        train_count: Number of training examples; None if unknown.
        validation_count: Number of validation examples; None if unknown, 0 without validation.
        signature: What is needed to build a model for them.
        pixel_range: What pixels are divided by to scale them to 0…1; 0 if the examples are not images.
        class_names: Names of the classes in the order of their numbers; empty if unknown.
        record: What `tpu-console predict` needs to turn new data into inputs; saved as the run's
            ``inputs.json``.
        notices: What the user should know, such as skipped files.
        sift: Makes the same examples without those that cannot be decoded; None if nothing has to be decoded.
    """

    train: Any
    validation: Any
    train_count: int | None
    validation_count: int | None
    signature: Signature
    pixel_range: float = 0.0
    class_names: tuple[str, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    sift: Callable[[], Sifted] | None = None


@dataclass(frozen=True, slots=True)
class Sifted:
    """Examples without the files that cannot be decoded; which these are is known after one pass.

    Args:
        train: A `tf.data.Dataset`, as in `Examples`.
        validation: Likewise, or None.
        finish: Called with the `Examples` after a pass over both parts; returns them with the counts and the record of
            what is left, and notices about the rest. Raises a `DataError` if no file may be skipped.
    """

    train: Any
    validation: Any
    finish: Callable[[Examples], Examples]
