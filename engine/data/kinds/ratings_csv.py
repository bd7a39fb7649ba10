"""Ratings that users gave to items, as in MovieLens."""

from __future__ import annotations

import base64
import csv
import zlib
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ...config.pieces import listed
from ...config.values import Section
from ...storage.paths import user_path
from ..examples import Examples, Input, Signature, Task, of_arrays
from ..places import shown as shown_path
from ..predictions import NewData, Table, TrainedModel, number
from ..survey.skimming import (
    Survey,
    column_named,
    count_lines,
    first_rows,
    missing_columns,
    shown,
    text_lines,
    trouble,
)
from ..tables import (
    layout_of,
    open_table,
    read_table,
    read_text,
    refuse_class_options,
    refuse_missing,
    refuse_rows,
    require,
)
from .kind import Column, DatasetKind, FilePath, InputsRecord, Recognized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ...messages import Reporter

_LOSSES = ("mean_squared_error", "mean_absolute_error", "huber")
_METRICS = ("root_mean_squared_error", "mean_absolute_error", "mean_squared_error")
_USERS, _ITEMS, _RATINGS = ("userid", "user_id", "user"), ("movieid", "itemid", "item_id", "item"), ("rating",)
_AS_IT_IS = {"skipinitialspace": False}  # a user may begin with a space
_UNKNOWN = 0  # the number of all users and items without a training rating
_DESCRIBED_AT_ONCE, _PREDICTED_AT_ONCE = 1 << 16, 4096
_BEST = 10  # most items listed for a user
_LARGEST_SIZE, _LARGEST_EXPANSION = 64 << 20, 100
"""A text that unpacks to more than the first (bytes) and grows by more than the second (a factor) is refused: real
ratings only double in size."""


class RatingsCsvOptions(Section):
    """Options of `ratings-csv`: users, items and ratings; may be ``.gz``."""

    path: Annotated[FilePath, "The file; without a header, its columns must be user, item, rating, time."]
    columns: Annotated[
        tuple[Column, ...],
        BeforeValidator(listed),
        Field(min_length=3, max_length=3),
        "Columns of users, items and ratings.",
    ] = ("userId", "movieId", "rating")


class _Columns(BaseModel):
    model_config = ConfigDict(strict=True, defer_build=True)
    user: str
    item: str
    rating: str


class _Record(InputsRecord):
    columns: _Columns
    users: Annotated[list[str], Field(min_length=1)]
    items: Annotated[list[str], Field(min_length=1)]
    rated: str = ""


class RatingsCsv(DatasetKind[RatingsCsvOptions]):
    """A table of ratings."""

    name = "ratings-csv"
    title = "a CSV of user, item and rating"
    Options = RatingsCsvOptions
    model, loss = "recommender", "mean_squared_error"
    metrics = ("root_mean_squared_error", "mean_absolute_error")
    most_per_step = 1024
    Record = _Record
    new_data = "a table with the columns {columns[user]} and {columns[item]}, or {columns[user]} alone"

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        """Recognize a CSV by the names of its columns."""
        heading, _ = first_rows(place)
        user, item, rating = (column_named(heading, names) for names in (_USERS, _ITEMS, _RATINGS))
        found = {"path": str(place), "columns": [user, item, rating]}
        return Recognized(found, sure=0.9) if user and item and rating else None

    def survey(self, path: Path, options: RatingsCsvOptions) -> Survey:
        """Count the ratings."""
        first = next(text_lines(path), "").strip()
        separator, has_heading = layout_of(first)
        heading = [shown(name) for name in next(_rows([first], separator), [])]
        wanted = dict.fromkeys(options.columns, "columns")
        if has_heading and (problems := missing_columns(path, heading, wanted)):
            return Survey(problems=problems)
        total = count_lines(path) - has_heading
        return Survey(total=total) if total > 0 else trouble("path", f"{user_path(path)} has no rows")

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        """Read the ratings, hold some out, and number the users and items of the rest."""
        import numpy as np

        from ..split import random_split

        options = self.options(config)
        require(config, self.model, _LOSSES, _METRICS)
        refuse_class_options(config)
        on_fetch(f"reading {shown_path(options.path)}")
        table = _read(options)
        user, item, rating = options.columns
        ratings = table[rating].to_numpy(np.float32)
        parts = train, validation = random_split(len(table), "ratings", config)
        ids, inputs = {}, {}
        for name, column in (("user", user), ("item", item)):
            ids[name] = table[column].iloc[train].unique().tolist()
            inputs[name] = _numbers(table[column], ids[name])
        mean, deviation = float(ratings[train].mean()), float(ratings[validation].std())
        what = "the error of always predicting the mean"
        notices = [f"The validation ratings have a standard deviation of {deviation:.3f}, {what}."]
        for name, numbers in inputs.items():
            if unknown := float((numbers[validation] == _UNKNOWN).mean()):
                notices.append(f"{unknown:.1%} of the validation ratings have a {name} without training ratings.")
        return of_arrays(
            *(({name: numbers[part] for name, numbers in inputs.items()}, ratings[part]) for part in parts),
            signature=Signature(
                Task.RATINGS,
                {name: Input((), "int32") for name in inputs},
                sizes={f"{name}s": len(known) + 1 for name, known in ids.items()},
                label_mean=mean,
            ),
            record={
                "kind": config.dataset,
                "columns": {"user": user, "item": item, "rating": rating},
                "users": ids["user"],
                "items": ids["item"],
                "rated": packed(inputs["user"], inputs["item"]),
                "mean": mean,
            },
            notices=tuple(notices),
        )

    def describe(self, examples: Examples) -> dict[str, Any]:
        """Describe ratings, training and validation together; user or item 0 means no training ratings.

        Returns:
            ``ratings``: how many ``ratings``, ``users`` and ``items``; the share of all pairs that is rated,
            ``density``; the number of ratings per user and per item, ``by_user`` and ``by_item``; the ``mean`` rating,
            and a ``histogram``.
        """
        import numpy as np

        from ..describing import histogram, spread

        parts = [part for part in (examples.train, examples.validation) if part is not None]
        batches = [(inputs["user"].numpy(), inputs["item"].numpy(), ratings.numpy())
                   for part in parts for inputs, ratings, *_ in part.batch(_DESCRIBED_AT_ONCE)]  # fmt: skip
        users, items, ratings = (np.concatenate(column) for column in zip(*batches, strict=True))
        by_user, by_item = (np.bincount(numbers)[1:] for numbers in (users, items))
        by_user, by_item = by_user[by_user > 0], by_item[by_item > 0]
        described = {
            "ratings": len(ratings),
            "users": len(by_user),
            "items": len(by_item),
            "density": len(ratings) / (len(by_user) * len(by_item)),
            "by_user": spread(by_user),
            "by_item": spread(by_item),
            "mean": float(ratings.mean()),
            "histogram": histogram(ratings),
        }
        return {"ratings": described}

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict the rating of each pair in a table, or the best items if the table has users only.

        Users and items that were not in the training data get an average rating. Items that a user rated in the run's
        data, for training or validation, are not among the best.
        """
        columns, path = trained.record["columns"], request.only()
        table = open_table(path, [columns["user"]], **_AS_IT_IS)
        wanted = [columns["user"], *([columns["item"]] if columns["item"] in table.columns else [])]
        refuse_missing(path, table, wanted)
        users = _known(table[columns["user"]], trained.record["users"], "user", reporter)
        model = trained.load_model()
        if len(wanted) == 1:
            names, rated = table[columns["user"]].tolist(), _rated(trained, reporter)
            found = _best(trained, model, zip(names, users, strict=True), rated, reporter)
            return Table((columns["user"], "rank", columns["item"], columns["rating"]), found)
        items = _known(table[columns["item"]], trained.record["items"], "item", reporter)
        parts = (slice(start, start + _PREDICTED_AT_ONCE) for start in range(0, len(users), _PREDICTED_AT_ONCE))
        batches = ({"user": users[part], "item": items[part]} for part in parts)
        outputs = trained.outputs_of(model, batches, len(users), reporter)
        rows = (
            (*pair, number(rating.item()))
            for pair, rating in zip(table[wanted].itertuples(index=False, name=None), outputs, strict=True)
        )
        return Table((*wanted, columns["rating"]), rows)


def _rows(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Split lines into cells; `csv` itself takes only single characters as separators."""
    if separator == "::":
        lines, separator = (line.replace("::", "\t") for line in lines), "\t"
    return csv.reader(lines, delimiter=separator)


def _read(options: RatingsCsvOptions) -> pd.DataFrame:
    """Read the table, with any separator, with or without a header; ratings become numbers."""
    import numpy as np
    import pandas as pd

    text = read_text(options.path)
    separator, has_header = layout_of(text.partition("\n")[0])
    settings: dict[str, Any] = {
        "sep": separator,
        "index_col": False,  # even if lines are longer than the header
        **_AS_IT_IS,
    }
    if separator == "::":  # pandas reads single characters much faster
        text, settings["sep"] = text.replace("::", "\t"), "\t"
    if not has_header:
        names = (*options.columns, "timestamp")
        settings |= {"header": None, "names": names[: text.partition("\n")[0].count(settings["sep"]) + 1]}
    table = read_table(options.path, dict.fromkeys(options.columns, "columns"), text, **settings)
    for name in options.columns:
        if name == options.columns[2]:
            table[name] = pd.to_numeric(table[name], errors="coerce").astype(np.float64)
            broken, what = ~np.isfinite(table[name]), "no number"
        else:
            broken, what = table[name].isna(), "nothing"
        refuse_rows(options.path, broken.to_numpy(), f"{what} in column '{name}'", separator, has_header=has_header)
    return table


def _numbers(column: pd.Series[str], names: Sequence[str]) -> NDArray[np.int32]:
    """Return the number of each row's name: from 1 in the order of the names, or 0 for an unknown one."""
    numbers = {name: index for index, name in enumerate(names, _UNKNOWN + 1)}
    return column.map(numbers).fillna(_UNKNOWN).to_numpy().astype("int32")


def _known(column: pd.Series[str], known: Sequence[str], what: str, reporter: Reporter) -> NDArray[np.int32]:
    numbers = _numbers(column, known)
    unknown = int((numbers == _UNKNOWN).sum())
    if unknown:
        reporter.note(f"{unknown:,} of {len(column):,} rows have a {what} that was not in the training data.")
    return numbers


def _rated(trained: TrainedModel, reporter: Reporter) -> list[NDArray[np.int32]]:
    """Return what each user rated, by the user's number; nothing for 0, which stands for unknown users."""
    import numpy as np

    nothing, users = np.empty(0, np.int32), len(trained.record["users"])
    if "rated" not in trained.record:
        reporter.note("This run has no record of what its users rated, so their best items may include rated ones.")
        return [nothing] * (users + 1)
    try:
        return [nothing, *unpacked(trained.record["rated"], users)]
    except ValueError as error:
        raise trained.damaged("it does not say what was rated") from error


def _best(
    trained: TrainedModel,
    model: Any,
    users: Iterable[tuple[str, int]],
    rated: Sequence[NDArray[np.int32]],
    reporter: Reporter,
) -> Iterator[tuple[str, ...]]:
    import numpy as np

    users, items = list(users), trained.record["items"]
    every = np.arange(1, len(items) + 1, dtype=np.int32)
    parts = np.array_split(every, -(-len(every) // _PREDICTED_AT_ONCE))
    batches = ({"user": np.full(len(part), user, np.int32), "item": part} for _, user in users for part in parts)
    outputs = trained.outputs_of(model, batches, len(users) * len(items), reporter)
    for name, user in users:
        ratings = np.array([next(outputs).item() for _ in items])
        order = np.argsort(-ratings, kind="stable")
        unrated = order[~np.isin(every[order], rated[user])]
        for rank, index in enumerate(unrated[:_BEST], 1):
            yield name, str(rank), items[index], number(ratings[index])


def packed(users: NDArray[np.int32], items: NDArray[np.int32]) -> str:
    """Pack the number of ratings of each user, followed by the rated items, user by user; 0 means unknown.

    The text takes about two bytes per rating.
    """
    import numpy as np

    known = (users > 0) & (items > 0)
    users, items = users[known], items[known]
    counts = np.bincount(users)[1:]
    numbers = np.concatenate([counts, items[np.lexsort((items, users))]])
    return base64.b64encode(zlib.compress(numbers.astype("<i4").tobytes())).decode("ascii")


def unpacked(text: str, users: int) -> list[NDArray[np.int32]]:
    """Return the items that each user rated, starting with user 1; raise `ValueError` if `packed` did not write it."""
    import numpy as np

    try:
        given = base64.b64decode(text, validate=True)
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(given, max(_LARGEST_SIZE, _LARGEST_EXPANSION * len(given)))
        if not unpacking.eof:
            raise ValueError("it is cut off, or larger than ratings are")
        numbers = np.frombuffer(content, "<i4")
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from error
    ends, items = np.cumsum(numbers[:users]), numbers[users:]
    if len(ends) != users or ends[-1] != len(items):
        raise ValueError(f"it is not about {users} users")
    return np.split(items, ends[:-1])
