"""Predicts ratings: of pairs of a user and an item, or the best items of each user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.datasets.tables import shown
from engine.errors import DataError
from engine.predicting.table import Table, number, outputs_of
from engine.predicting.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from engine.job import Reporter
    from engine.predicting.table import Request
    from engine.predicting.trained import TrainedRun

BEST = 10
"""Items listed for a user."""

_AT_ONCE = 4096
_UNKNOWN = 0


def predict(trained: TrainedRun, request: Request, reporter: Reporter) -> Table:
    """Predict the rating of each pair in a table, or the best items where it has users only.

    Users and items that were not in the training data get what is usual.

    Args:
        trained: The run.
        request: What is to be predicted.
        reporter: Told how far it is.

    Raises:
        DataError: The table cannot be read, or has no column of users.
    """
    columns, path = trained.record["columns"], request.only()
    table = open_table(path, [columns["user"]])
    wanted = [columns["user"], *([columns["item"]] if columns["item"] in table.columns else [])]
    for column in wanted:
        empty = np.flatnonzero(table[column].isna().to_numpy())
        if len(empty):
            raise DataError(f"{shown(path)}: row {empty[0] + 1:,} has nothing in column '{column}'.")
    users = _numbered(table[columns["user"]], trained.record["users"], "user", reporter)
    model = trained.load_model()
    if len(wanted) == 1:
        found = _best(model, table[columns["user"]].tolist(), users, trained.record["items"], reporter)
        return Table((columns["user"], "rank", columns["item"], columns["rating"]), found)
    items = _numbered(table[columns["item"]], trained.record["items"], "item", reporter)
    outputs = outputs_of(model, _pairs(users, items), len(users), reporter)
    rows = (
        (*pair, number(rating.item()))
        for pair, rating in zip(table[wanted].itertuples(index=False, name=None), outputs, strict=True)
    )
    return Table((*wanted, columns["rating"]), rows)


def _numbered(column: pd.Series[str], known: Sequence[str], what: str, reporter: Reporter) -> NDArray[np.int32]:
    numbers = column.map({name: index for index, name in enumerate(known, _UNKNOWN + 1)}).fillna(_UNKNOWN)
    unknown = int((numbers == _UNKNOWN).sum())
    if unknown:
        reporter.note(f"{unknown:,} of {len(column):,} rows have a {what} that was not in the training data.")
    return np.asarray(numbers, np.int32)


def _pairs(users: NDArray[np.int32], items: NDArray[np.int32]) -> Iterator[dict[str, Any]]:
    for start in range(0, len(users), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        yield {"user": users[part], "item": items[part]}


def _best(
    model: Any, names: Sequence[str], users: NDArray[np.int32], items: Sequence[str], reporter: Reporter
) -> Iterator[tuple[str, ...]]:
    every = np.arange(1, len(items) + 1, dtype=np.int32)
    parts = np.array_split(every, -(-len(every) // _AT_ONCE))
    batches = ({"user": np.full(len(part), user, np.int32), "item": part} for user in users for part in parts)
    outputs = outputs_of(model, batches, len(users) * len(items), reporter)
    for name in names:
        ratings = np.array([next(outputs).item() for _ in items])
        for rank, index in enumerate(np.argsort(-ratings, kind="stable")[:BEST], 1):
            yield name, str(rank), items[index], number(ratings[index])
