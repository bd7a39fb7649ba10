"""Reads the labels in the columns of an image table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError, did_you_mean
from ..plain_text import class_order
from ..tables import refuse_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

_SUM_TOLERANCE = 1e-3


def class_labels(
    column: pd.Series[str], classes: Sequence[str], place: str
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the class number of each line of a column, indexed by line number, and the names of the classes.

    `classes` are in the order of their numbers; without them, those that occur are taken in their usual order.

    Raises:
        DataError: A label is missing or unknown, or there is only one class.
    """
    _refuse_empty(column, place)
    names = tuple(classes) or tuple(sorted(column.unique(), key=class_order))
    unknown = column[~column.isin(names)]
    if len(unknown):
        first = str(unknown.iloc[0])
        refuse_lines(
            place,
            unknown.index,
            f"the label '{first}' is not in data.options.classes; {did_you_mean(first, names)}",
            "Correct it or add it to data.options.classes.",
        )
    if len(names) < 2:
        raise DataError(
            f"{place}: every label in column '{column.name}' is '{names[0]}'; training needs at least two classes.",
            remedy="Set data.options.label_columns to the column with the classes.",
        )
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers[name] for name in column], np.int32), names


def share_labels(table: pd.DataFrame, place: str) -> NDArray[np.float32]:
    """Read the probability of each class from one column per class, indexed by line number: ``(lines, classes)``.

    Raises:
        DataError: One is missing or not between 0 and 1, or a line does not add up to 1.
    """
    import pandas as pd

    for name in table.columns:
        column = table[name]
        _refuse_empty(column, place)
        numbers = pd.to_numeric(column, errors="coerce")
        wrong = column[numbers.isna() | ~numbers.between(0, 1)]
        if len(wrong):
            refuse_lines(
                place,
                wrong.index,
                f"'{wrong.iloc[0]}' in column '{name}' is not a probability between 0 and 1",
                f"The columns {', '.join(table.columns)} are read as one column per class. If they are not, set "
                "data.options.label_columns to the label column or to the columns of the classes.",
            )
    shares = table.astype(np.float64).to_numpy()
    sums = shares.sum(axis=1)
    wrong_sum = np.abs(sums - 1) > _SUM_TOLERANCE
    if wrong_sum.any():
        refuse_lines(
            place,
            table.index[wrong_sum],
            f"the probabilities of the classes add up to {sums[wrong_sum][0]:g}, not 1",
            "Correct them: the probabilities of each image must add up to 1.",
        )
    return shares.astype(np.float32)


def refuse_sparse(loss: str, place: str) -> None:
    """Raise a `DataError` if the loss is sparse, which cannot learn a probability for each class."""
    if loss.startswith("sparse_"):
        raise DataError(
            f"{place} gives some images a probability for each class, which loss = '{loss}' cannot learn.",
            remedy="Set loss = 'categorical_crossentropy'.",
        )


def for_loss(shares: NDArray[np.float32], loss: str, place: str) -> NDArray[Any]:
    """Return class numbers for a sparse loss, else probabilities; raise `DataError` if an image has several classes."""
    if not loss.startswith("sparse_"):
        return shares
    if not np.isin(shares, (0.0, 1.0)).all():
        refuse_sparse(loss, place)
    return np.asarray(shares.argmax(axis=1), np.int32)


def _refuse_empty(column: pd.Series[str], place: str) -> None:
    what = f"no label in column '{column.name}'"
    refuse_lines(place, column.index[column.isna()], what, "Fill it in or remove the line.")
