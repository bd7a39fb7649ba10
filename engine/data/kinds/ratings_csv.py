"""Ratings that users gave to items, as in MovieLens."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ...config.values import Section, listed
from ..examples import Examples, Input, Signature, Task, of_arrays
from ..labels import deviation_notice, random_split
from ..places import shown
from ..predictions import NewData, Table, TrainedModel, number
from ..tables import open_table, read_table, refuse_lines, refuse_missing
from .kind import FileKind, InputsRecord, Name, Recognized, check_label
from .skimming import Survey, column_named, count_classes, first_rows

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ...messages import Reporter

_USERS, _ITEMS, _RATINGS = ("userid", "user_id", "user"), ("movieid", "itemid", "item_id", "item"), ("rating",)
_UNKNOWN = 0  # the number of all users and items without a training rating
_AT_ONCE = 4096  # pairs that are predicted in a batch
_BEST = 10  # most items listed for a user
_TIME = "timestamp"  # the fourth column of a table without a header
_LARGEST = 256 << 20  # bytes of packed ratings


class RatingsCsvOptions(Section):
    """Options of `ratings-csv`: users, items and ratings; may be ``.gz``."""

    path: Annotated[Name, "The file; without a header, its columns must be user, item, rating, time."]
    columns: Annotated[
        tuple[Name, ...],
        BeforeValidator(listed),
        Field(min_length=3, max_length=3),
        "Columns of users, items and ratings.",
    ] = ("userId", "movieId", "rating")


class _Record(InputsRecord):
    columns: Annotated[dict[Literal["user", "item", "rating"], str], Field(min_length=3)]
    users: Annotated[list[str], Field(min_length=1)]
    items: Annotated[list[str], Field(min_length=1)]
    rated: str = ""


class RatingsCsv(FileKind[RatingsCsvOptions]):
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
        heading, _ = first_rows(place)
        user, item, rating = (column_named(heading, names) for names in (_USERS, _ITEMS, _RATINGS))
        found = {"path": str(place), "columns": [user, item, rating]}
        return Recognized(found, sure=0.9) if user and item and rating else None

    def survey_files(self, path: Path, options: RatingsCsvOptions) -> Survey:
        wanted = dict.fromkeys(options.columns, "columns")
        return count_classes(path, wanted, [], (*options.columns, _TIME), filled=options.columns)

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        import numpy as np

        options = self.options(config)
        check_label(config, "number", self.model)
        on_fetch(f"reading {shown(options.path)}")
        table = _read(options)
        user, item, rating = options.columns
        ratings = table[rating].to_numpy(np.float32)
        parts = train, validation = random_split(len(table), "ratings", config)
        columns = {"user": table[user], "item": table[item]}
        ids = {name: column.iloc[train].unique().tolist() for name, column in columns.items()}
        inputs = {name: _numbers(column, ids[name]) for name, column in columns.items()}
        mean, notices = float(ratings[train].mean()), [deviation_notice(ratings[validation])]
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

    def describe_files(self, config: RunConfig, reporter: Reporter, note: Callable[[str], None]) -> dict[str, Any]:
        """Count the ratings, also of each user and item, and the share of all pairs that is rated, ``density``."""
        from ..describing import histogram, spread

        table, (user, item, rating) = _read(self.options(config)), self.options(config).columns
        by_user, by_item = (table[name].value_counts().to_numpy() for name in (user, item))
        described = {
            "ratings": len(table),
            "users": len(by_user),
            "items": len(by_item),
            "density": len(table) / (len(by_user) * len(by_item)),
            "by_user": spread(by_user),
            "by_item": spread(by_item),
            "mean": float(table[rating].mean()),
            "histogram": histogram(table[rating].to_numpy()),
        }
        return {"ratings": described}

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict the rating of each pair in a table, or each user's best items if the table has users only.

        Unknown users and items get an average rating; what a user rated in the run's data is not among the best.
        """
        path, record = request.only(), trained.record
        user, item, rating = (record["columns"][name] for name in ("user", "item", "rating"))
        table = open_table(path, [user])
        wanted = [user, *([item] if item in table.columns else [])]
        refuse_missing(path, table, wanted)
        users = _known(table[user], record["users"], "user", reporter)
        model = trained.load_model()
        if len(wanted) == 1:
            found = _best(trained, model, [*zip(table[user], users, strict=True)], reporter)
            return Table((user, "rank", item, rating), found)
        items = _known(table[item], record["items"], "item", reporter)
        starts = range(0, len(users), _AT_ONCE)
        batches = ({"user": users[at : at + _AT_ONCE], "item": items[at : at + _AT_ONCE]} for at in starts)
        outputs = trained.outputs_of(model, batches, len(users), reporter)
        pairs = table[wanted].itertuples(index=False, name=None)
        rows = ((*pair, number(output.item())) for pair, output in zip(pairs, outputs, strict=True))
        return Table((*wanted, rating), rows)


def _read(options: RatingsCsvOptions) -> pd.DataFrame:
    """Read the table; ratings become numbers."""
    import numpy as np
    import pandas as pd

    place, rating = shown(options.path), options.columns[2]
    table = read_table(options.path, dict.fromkeys(options.columns, "columns"), names=(*options.columns, _TIME))
    refuse_missing(options.path, table, options.columns[:2])
    table[rating] = pd.to_numeric(table[rating], errors="coerce").astype(np.float64)
    refuse_lines(place, table.index[~np.isfinite(table[rating])], f"no number in column '{rating}'")
    return table


def _numbers(column: pd.Series[str], names: Sequence[str]) -> NDArray[np.int32]:
    """Return the number of each row's name: from 1 in the order of the names, or 0 for an unknown one."""
    numbers = {name: index for index, name in enumerate(names, _UNKNOWN + 1)}
    return column.map(numbers).fillna(_UNKNOWN).to_numpy().astype("int32")


def _known(column: pd.Series[str], known: Sequence[str], what: str, reporter: Reporter) -> NDArray[np.int32]:
    numbers = _numbers(column, known)
    if unknown := int((numbers == _UNKNOWN).sum()):
        reporter.note(f"{unknown:,} of {len(column):,} rows have a {what} that was not in the training data.")
    return numbers


def _best(
    trained: TrainedModel, model: Any, users: Sequence[tuple[str, int]], reporter: Reporter
) -> Iterator[tuple[str, ...]]:
    """Yield the best items of each user, given by name and number, that the run's data has no rating of."""
    import numpy as np

    items, count = trained.record["items"], len(trained.record["users"])
    rated: list[Any] = [()] * (count + 1)  # by the user's number; 0 stands for unknown users
    if "rated" in trained.record:
        try:
            rated[1:] = unpacked(trained.record["rated"], count)
        except ValueError as error:
            raise trained.damaged("it does not say what was rated") from error
    else:
        reporter.note("This run has no record of what its users rated, so their best items may include rated ones.")
    every = np.arange(1, len(items) + 1, dtype=np.int32)
    parts = np.array_split(every, -(-len(every) // _AT_ONCE))
    batches = ({"user": np.full(len(part), user, np.int32), "item": part} for _, user in users for part in parts)
    outputs = trained.outputs_of(model, batches, len(users) * len(items), reporter)
    for name, user in users:
        ratings = np.array([next(outputs).item() for _ in items])
        order = np.argsort(-ratings, kind="stable")
        unrated = order[~np.isin(every[order], rated[user])]
        for rank, index in enumerate(unrated[:_BEST], 1):
            yield name, str(rank), items[index], number(ratings[index])


def packed(users: NDArray[np.int32], items: NDArray[np.int32]) -> str:
    """Pack the number of ratings of each user, and the rated items user by user, in two bytes each; 0 means unknown."""
    import numpy as np

    known = (users > 0) & (items > 0)
    users, items = users[known], items[known]
    numbers = np.concatenate([np.bincount(users)[1:], items[np.lexsort((items, users))]])
    return base64.b64encode(zlib.compress(numbers.astype("<i4").tobytes())).decode("ascii")


def unpacked(text: str, users: int) -> list[NDArray[np.int32]]:
    """Return the items that each user rated, starting with user 1; raise `ValueError` if `packed` did not write it."""
    import numpy as np

    try:
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(base64.b64decode(text, validate=True), _LARGEST)
        numbers = np.frombuffer(content, "<i4")
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from error
    ends, items = np.cumsum(numbers[:users]), numbers[users:]
    if not unpacking.eof or len(ends) != users or ends[-1] != len(items):
        raise ValueError(f"it is cut off, or not about {users} users")
    return np.split(items, ends[:-1])
