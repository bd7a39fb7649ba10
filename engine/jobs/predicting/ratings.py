"""Predicts ratings of user-item pairs, or the best items that each user has not rated yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.rated import unpacked
from ...errors import DataError
from ...storage.paths import user_path
from .table import Table, number, outputs_of
from .texts import open_table, refuse_empty

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from ...messages import Reporter
    from .table import Request
    from .trained import TrainedRun

BEST = 10  # most items listed for a user
_AT_ONCE = 4096
_UNKNOWN = 0


def predict_ratings(trained: TrainedRun, request: Request, reporter: Reporter) -> Table:
    """Predict the rating of each pair in a table, or the best items if the table has users only.

    Users and items that were not in the training data get an average rating. Items that a user rated in the run's data,
    for training or validation, are not among the best.

    Raises:
        DataError: The table cannot be read, or has no column of users.
    """
    columns, path = trained.record["columns"], request.only()
    table = open_table(path, [columns["user"]])
    wanted = [columns["user"], *([columns["item"]] if columns["item"] in table.columns else [])]
    for column in wanted:
        refuse_empty(table, column, path)
    users = _numbered(table[columns["user"]], trained.record["users"], "user", reporter)
    model = trained.load_model()
    if len(wanted) == 1:
        names, rated = table[columns["user"]].tolist(), _rated(trained, reporter)
        found = _best(model, names, users, trained.record["items"], rated, reporter)
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


def _rated(trained: TrainedRun, reporter: Reporter) -> list[NDArray[np.int32]]:
    """Return what each user rated, by the user's number; nothing for 0, which stands for unknown users."""
    nothing, users = np.empty(0, np.int32), len(trained.record["users"])
    if "rated" not in trained.record:
        reporter.note("This run has no record of what its users rated, so their best items may include rated ones.")
        return [nothing] * (users + 1)
    try:
        return [nothing, *unpacked(trained.record["rated"], users)]
    except ValueError as error:
        raise DataError(f"{user_path(trained.run.inputs)} is damaged: it does not say what was rated.") from error


def _best(
    model: Any,
    names: Sequence[str],
    users: NDArray[np.int32],
    items: Sequence[str],
    rated: Sequence[NDArray[np.int32]],
    reporter: Reporter,
) -> Iterator[tuple[str, ...]]:
    every = np.arange(1, len(items) + 1, dtype=np.int32)
    parts = np.array_split(every, -(-len(every) // _AT_ONCE))
    batches = ({"user": np.full(len(part), user, np.int32), "item": part} for user in users for part in parts)
    outputs = outputs_of(model, batches, len(users) * len(items), reporter)
    for name, user in zip(names, users, strict=True):
        ratings = np.array([next(outputs).item() for _ in items])
        order = np.argsort(-ratings, kind="stable")
        unrated = order[~np.isin(every[order], rated[user])]
        for rank, index in enumerate(unrated[:BEST], 1):
            yield name, str(rank), items[index], number(ratings[index])
