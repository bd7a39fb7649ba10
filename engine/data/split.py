"""Splits examples into training and validation, class by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from .tables import class_names, first_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from ..config.run_config import RunConfig


@dataclass(frozen=True, slots=True)
class Split:
    """Which examples are used for training and for validation."""

    train: NDArray[np.intp]  # indices of the training examples, in random order
    validation: NDArray[np.intp]  # indices of the validation examples; may be empty
    class_counts: dict[str, list[int]]  # number of examples of each class in each part
    notices: tuple[str, ...]  # what to report about classes that are too small to split


def split_by_label(
    column: pd.Series[str], path: str, config: RunConfig, parts: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None
) -> tuple[tuple[str, ...], NDArray[np.int32], Split]:
    """Return the classes in a column of labels, the class number of each row, and which rows are for what.

    Rows are split class by class, unless both `parts` are given. `path` is the table, for errors.

    Raises:
        DataError: The labels are no classes.
    """
    names = class_names(column, path)
    labels = column.str.strip().map({name: number for number, name in enumerate(names)}).to_numpy().astype("int32")
    if parts is not None:
        return names, labels, Split(*parts, counts_by_class(labels[parts[0]], labels[parts[1]], len(names)), ())
    data = config.data
    return names, labels, stratified_split(labels, names, data.validation_fraction, config.seed, data.train_limit)


def random_split(count: int, what: str, config: RunConfig) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return which of some examples without classes are for training and for validation, in random order.

    Raises:
        DataError: They are too few to split.
    """
    order = np.random.default_rng(config.seed).permutation(count)
    held_out = max(1, round(count * config.data.validation_fraction))
    if held_out >= count:
        raise DataError(
            f"{count:,} {what} are too few to split into training and validation data with "
            f"data.validation_fraction={config.data.validation_fraction}."
        )
    return order[held_out:][: config.data.train_limit or None], order[:held_out]


def stratified_split(
    labels: NDArray[Any], class_names: Sequence[str], fraction: float, seed: int, train_limit: int = 0
) -> Split:
    """Split examples so that each class has about the same share of both parts.

    A class with one example is used for training; every other class has at least one example in each part. `labels` are
    class numbers; a `train_limit` of 0 means no limit.
    """
    from sklearn.model_selection import train_test_split

    classes = len(class_names)
    counts = np.bincount(labels, minlength=classes)
    indices = np.arange(len(labels))
    divisible = indices[counts[labels] > 1]
    kinds = int((counts > 1).sum())
    # scikit-learn needs room for every class in both parts.
    held_out = min(max(round(fraction * len(labels)), kinds), len(divisible) - kinds)
    validation = divisible[:0]
    if held_out:
        kept, validation = train_test_split(
            divisible, test_size=held_out, random_state=seed, stratify=labels[divisible]
        )
        # scikit-learn's rounding can drop small classes: single examples are swapped until each is in both parts.
        for mine, other in ((kept, validation), (validation, kept)):
            for number in np.setdiff1d(labels[mine], labels[other]):
                largest = np.bincount(labels[other]).argmax()
                given, taken = np.argmax(labels[mine] == number), np.argmax(labels[other] == largest)
                mine[given], other[taken] = other[taken], mine[given]
    train = np.random.default_rng(seed).permutation(np.setdiff1d(indices, validation))
    train = train[: train_limit or None]
    single = [class_names[number] for number in np.flatnonzero(counts == 1).tolist()]
    what = f"The class '{first_of(single)}' has one example: it is used for training only."
    if len(single) > 1:
        what = f"{len(single):,} classes have one example each, used for training only: {first_of(single)}."
    by_class = counts_by_class(labels[train], labels[validation], classes)
    return Split(train, validation, by_class, (what,) if single else ())


def counts_by_class(train: NDArray[Any], validation: NDArray[Any], classes: int) -> dict[str, list[int]]:
    """Count the examples of each class in both parts."""
    parts = {"train": train, "validation": validation}
    return {name: np.bincount(labels, minlength=classes).tolist() for name, labels in parts.items()}
