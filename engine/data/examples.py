"""Examples as the rest of the engine sees them, whatever files they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Task(StrEnum):
    """What is to be learnt from the examples; it decides the labels' form and the model's last layer.

    Labels are class numbers, shape ``()``; a share for each class, shape ``(classes,)``; word numbers, shape
    ``(length,)``, 0 being padding; ratings, shape ``()``; or whatever a person's own dataset gives.
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
        shape: Of one example, without the batch.
        dtype: As the model gets it.
    """

    shape: tuple[int | None, ...]
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model has to know of the examples to be built, without seeing one.

    Args:
        task: What is to be learnt.
        inputs: The model's inputs by name. A single one is handed over as it is, several as a dictionary.
        classes: Number of classes; 0 where there are none, or where a person's own dataset leaves it to the model.
        sizes: Other sizes by name, such as ``vocabulary``, ``users`` or ``items``.
        label_mean: Mean of the training labels, where they are ratings; a model begins there.
    """

    task: Task
    inputs: Mapping[str, Input]
    classes: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    label_mean: float = 0.0

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of the only input; empty where there are several."""
        return next(iter(self.inputs.values())).shape if len(self.inputs) == 1 else ()


@dataclass(frozen=True, slots=True)
class Examples:
    """Training and validation examples, unbatched.

    Args:
        train: A `tf.data.Dataset` of (inputs, label) pairs: a tensor, or a dictionary by input name.
        validation: Likewise, or None.
        train_count: Training examples; None when the dataset does not tell.
        validation_count: Validation examples; None likewise, 0 without validation.
        signature: What a model has to know of them.
        pixel_range: What pixels are divided by to come between 0 and 1; 0 when they are not pixels.
        class_names: Names of the classes in the order of their numbers; empty where only the numbers are known.
        record: Plain values that turn new data of the same kind into inputs again, for `tpu-console predict`; it
            is kept as the run's ``inputs.json``.
        notices: What a person should know, such as files that were left out.
        sift: Makes the same examples without those that turn out to be damaged when they are decoded; None where
            nothing is left to be decoded, or nothing tells which of them fail.
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
    """Examples of files of which those are left out that cannot be decoded; which, is known after one pass.

    Args:
        train: A `tf.data.Dataset` like that of `Examples`.
        validation: Likewise, or None.
        judge: Called after a whole pass over both, with the `Examples`; returns them with the counts and the record of
            what is left, and as notices what was left out. Raises a `DataError` where nothing may be left out.
    """

    train: Any
    validation: Any
    judge: Callable[[Examples], Examples]
