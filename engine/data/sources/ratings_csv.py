"""Loads ratings that users gave to items, as in MovieLens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ...config.data_options import RatingsCsvOptions
from ...errors import DataError
from ..examples import Examples, Input, Signature, Task
from ..plain_text import layout_of
from ..rated import packed
from ..tables import read_table, read_text, refuse_class_options, refuse_rows, require, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from numpy.typing import NDArray

    from ...config.run_config import RunConfig

_LOSSES = ("mean_squared_error", "mean_absolute_error", "huber")
_METRICS = ("root_mean_squared_error", "mean_absolute_error", "mean_squared_error")
_UNKNOWN = 0  # the number of all users and items without a training rating


def load(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    """Read the ratings, hold some out, and number the users and items of the rest.

    Raises:
        DataError: The file cannot be used, or the model or loss does not fit it.
    """
    options = RatingsCsvOptions.model_validate(config.data.options)
    require(config, "recommender", _LOSSES, _METRICS)
    refuse_class_options(config)
    on_fetch(f"reading {shown(options.path)}")
    table = _read(options)
    ratings = table[options.rating_column].to_numpy(np.float32)
    train, validation = _split(table, options, config)
    ids, inputs = {}, {}
    for name, column in (("user", options.user_column), ("item", options.item_column)):
        ids[name], inputs[name] = _numbered(table[column], train)
    parts = [({name: numbers[part] for name, numbers in inputs.items()}, ratings[part]) for part in (train, validation)]
    mean = float(ratings[train].mean())
    return Examples(
        train=tf.data.Dataset.from_tensor_slices(parts[0]),
        validation=tf.data.Dataset.from_tensor_slices(parts[1]),
        train_count=len(train),
        validation_count=len(validation),
        signature=Signature(
            Task.RATINGS,
            {name: Input((), "int32") for name in inputs},
            sizes={f"{name}s": len(known) + 1 for name, known in ids.items()},
            label_mean=mean,
        ),
        record={
            "kind": config.dataset,
            "columns": {"user": options.user_column, "item": options.item_column, "rating": options.rating_column},
            "users": ids["user"],
            "items": ids["item"],
            "rated": packed(inputs["user"], inputs["item"]),
            "mean": mean,
        },
        notices=_notices(inputs, validation, float(ratings[validation].std())),
    )


def _read(options: RatingsCsvOptions) -> pd.DataFrame:
    """Read the table, with any separator, with or without a header; ratings and times become numbers."""
    import pandas as pd

    text = read_text(options.path)
    separator, has_header = layout_of(text.partition("\n")[0])
    columns = {
        "user_column": options.user_column,
        "item_column": options.item_column,
        "rating_column": options.rating_column,
    }
    if options.split == "time":
        columns["time_column"] = options.time_column
    settings: dict[str, Any] = {"sep": separator, "index_col": False}  # even if lines are longer than the header
    if separator == "::":  # pandas reads single characters much faster
        text, settings["sep"] = text.replace("::", "\t"), "\t"
    if not has_header:
        names = [options.user_column, options.item_column, options.rating_column, options.time_column]
        settings |= {"header": None, "names": names[: text.partition("\n")[0].count(settings["sep"]) + 1]}
    table = read_table(options.path, text, columns, **settings)
    for key, name in columns.items():
        if key in {"rating_column", "time_column"}:
            table[name] = pd.to_numeric(table[name], errors="coerce").astype(np.float64)
            broken, what = ~np.isfinite(table[name]), "no number"
        else:
            broken, what = table[name].isna(), "nothing"
        refuse_rows(options.path, broken.to_numpy(), f"{what} in column '{name}'", separator, has_header=has_header)
    return table


def _split(
    table: pd.DataFrame, options: RatingsCsvOptions, config: RunConfig
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the training rows, in random order, and the validation rows."""
    random = np.random.default_rng(config.seed)
    fraction, count = config.data.validation_fraction, len(table)
    if options.split == "random":
        order = random.permutation(count)
        held_out = max(1, round(count * fraction))
        train, validation = order[held_out:], order[:held_out]
    else:
        by_user = table.sort_values(options.time_column, kind="stable").groupby(options.user_column, sort=False)
        place = by_user.cumcount(ascending=False).sort_index().to_numpy()  # 0 is a user's last rating
        given = table.groupby(options.user_column)[options.user_column].transform("size").to_numpy()
        is_held_out = place < np.floor(given * fraction)
        train, validation = random.permutation(np.flatnonzero(~is_held_out)), np.flatnonzero(is_held_out)
    if not len(train) or not len(validation):
        raise DataError(
            f"{count:,} ratings are too few to split into training and validation data with "
            f"data.validation_fraction={fraction}."
        )
    return train[: config.data.train_limit or None], validation


def _numbered(column: pd.Series[str], train: NDArray[np.intp]) -> tuple[list[str], NDArray[np.int32]]:
    """Number a column's names in the training rows from 1; return the names and the number of every row."""
    names = column.iloc[train].unique().tolist()
    numbers = {name: number for number, name in enumerate(names, _UNKNOWN + 1)}
    return names, column.map(numbers).fillna(_UNKNOWN).to_numpy(np.int32)


def _notices(inputs: dict[str, NDArray[np.int32]], validation: NDArray[np.intp], deviation: float) -> tuple[str, ...]:
    notices = [
        f"The validation ratings have a standard deviation of {deviation:.3f}, the error of always predicting the mean."
    ]
    for name, numbers in inputs.items():
        unknown = float(np.mean(numbers[validation] == _UNKNOWN))
        if unknown:
            notices.append(f"{unknown:.1%} of the validation ratings have a {name} without training ratings.")
    return tuple(notices)
