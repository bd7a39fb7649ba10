"""Reads the user's text files and CSV tables; errors name the line. Nothing loads pandas before a table is read."""

from __future__ import annotations

import csv
import io
import math
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.catalog import is_user_reference
from ..config.options import METRICS
from ..config.pieces import parse_piece
from ..errors import DataError, did_you_mean, one_line
from .places import is_remote, locate, shown
from .row_files import UTF_8, decoded, is_row_file

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ..config.run_config import RunConfig

UNNAMED = "Unnamed: "
"""The beginning of the names that columns without one get."""
LOOKED_AT = 100
"""Rows of a table that show whether it has a header."""
_FIRST_NAMES = {0.0, *map(float, range(1800, 2200))}  # numbers that begin a series of names
_SEPARATORS = ("::", "\t", ";", ",")
# In tables separated by `;`, a comma begins the decimals, as in many languages.
DECIMAL_COMMA, DECIMAL_POINT = r"^\s*([+-]?\d+),(\d+)\s*$", r"\1.\2"


def first_of(items: Sequence[str], most: int = 10, separator: str = ", ") -> str:
    """Write the first items of a list and say how many more there are, such as ``a, b and 3 more``."""
    more = len(items) - most
    text = separator.join(items[:most])
    return f"{text}{separator.rstrip(', ')} and {more:,} more" if more > 0 else text


def short_name(name: str, most: int = 60) -> str:
    """Shorten a long file name in its middle; its beginning and its ending say the most."""
    kept = max(2, most - 1)
    return name if len(name) <= most else f"{name[: kept - kept // 3]}…{name[-(kept // 3) :]}"


def layout_of(first_line: str) -> tuple[str, bool]:
    """Return what separates a table's columns (``::``, a tab, ``;`` or ``,``), and whether it has a header.

    A first line of numbers alone is not a header.
    """
    first = first_line.strip()
    separator = next((mark for mark in _SEPARATORS if mark in first), ",")
    return separator, not all(is_number(cell) for cell in first.split(separator))


def separator_of(text: str) -> str:
    """Return what separates the columns of a table: a tab or a comma if its first line has one."""
    first = text.partition("\n")[0]
    return next((mark for mark in "\t," if mark in first), layout_of(first)[0])


def heading_of(rows: Sequence[Sequence[str]]) -> tuple[list[str], bool]:
    """Return the names of a table's columns, given its first rows, and whether its first row has them.

    It has not if a cell is a number, or if at least half of its words are in the rows below too, each in its column.
    Years, and numbers from 0 on, are names.
    """
    first = rows[0] if rows else []
    numbers = [float(cell) for cell in first if is_number(cell)]
    is_series = len(numbers) > 1 and ({1.0} == {b - a for a, b in pairwise(numbers)}) and numbers[0] in _FIRST_NAMES
    is_index = len(numbers) == 1 and not any(cell for cell in first if not is_number(cell))
    words = [(place, cell) for place, cell in enumerate(first) if cell.strip() and not is_number(cell)]
    others = [row for row in rows[1:] if row != first]
    repeated = sum(any(row[place : place + 1] == [cell] for row in others) for place, cell in words)
    is_value = 0 < repeated >= len(words) / 2
    if len(first) > 1 and (is_value or (numbers and not (is_series or is_index))):
        return [f"column_{number}" for number, _ in enumerate(first, 1)], False
    # As pandas names columns that have no name, such as the index that it writes.
    return [name or f"{UNNAMED}{place}" for place, name in enumerate(first)], True


def is_number(text: str) -> bool:
    """Return whether a cell holds a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def class_order(name: str) -> tuple[float, str]:
    """Return the sort key of a class: numbers by value, before names in alphabetical order."""
    value = float(name) if is_number(name) else math.inf
    return (value if math.isfinite(value) else math.inf), name


_LOOKED_THROUGH = 1 << 20  # characters in which these rows are


def require(config: RunConfig, model: str, losses: tuple[str, ...], metrics: Collection[str] = METRICS) -> None:
    """Raise `DataError` if a configuration's model, loss or metrics do not fit its dataset; custom ones always do."""
    if config.model != model and not is_user_reference(config.model):
        raise DataError(
            f"{config.dataset} does not work with model = '{config.model}'.",
            remedy=f"Set model = '{model}', or use a custom model.",
        )
    if config.loss_name not in losses and not is_user_reference(config.loss_name):
        raise DataError(
            f"{config.dataset} does not work with loss = '{config.loss}'.", remedy=f"Set loss to {' or '.join(losses)}."
        )
    for name in config.metrics:
        if (plain := parse_piece(name)).name not in metrics and not plain.is_own:
            raise DataError(
                f"{config.dataset} does not work with the metric '{name}'.",
                remedy=f"Set metrics to some of: {', '.join(metrics)}.",
            )


def refuse_class_options(config: RunConfig) -> None:
    """Raise a `DataError` if a dataset without classes is configured with options that need them."""
    asked = {"label_smoothing": config.label_smoothing > 0, "class_weight": config.class_weight != "none"}
    for key, is_asked in asked.items():
        if is_asked:
            raise DataError(f"{config.dataset} has no classes, which {key} needs.", remedy=f"Remove {key}.")


def read_table(path: str, wanted: Mapping[str, str], text: str = "", **settings: Any) -> pd.DataFrame:
    """Read a CSV table whose cells are all text, given the option that names each column that it has to have.

    `text` is what is in the file, if it was read already. What separates the columns, and the encoding, are kept in
    the table's `attrs`.

    Raises:
        DataError: It is not a table, has no rows, or a column is missing.
    """
    import pandas as pd

    place = shown(path)
    is_plain = not text and not is_row_file(place)
    text, encoding = (text, UTF_8) if text else decoded(path)
    separator = separator_of(text)
    names = _own_names(text, separator) if is_plain else []
    named = {"header": None, "names": names, "index_col": False} if names else {}
    plain = {"dtype": str, "keep_default_na": False, "na_values": [""], "skipinitialspace": True}
    settings = {"sep": separator, **plain, **named, **settings}
    try:
        table: pd.DataFrame = pd.read_csv(io.StringIO(text), **settings)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise DataError(f"{place} is not a CSV table.", why=one_line(error)) from error
    for name, option in wanted.items():
        if name not in table.columns:
            nearest = did_you_mean(name, [str(column) for column in table.columns])
            end = "" if nearest.endswith("?") else "."
            remedy = f"Set data.options.{option}." if option else "The run was trained on it."
            raise DataError(f"{place} has no column '{name}'; {nearest}{end}", remedy=remedy)
    if table.empty:
        raise DataError(f"{place} has a header but no rows.")
    if settings["sep"] == ";":
        table = table.replace(DECIMAL_COMMA, DECIMAL_POINT, regex=True)
    table.attrs.update({"separator": settings["sep"], "encoding": encoding, "nameless": len(names)})
    return table


def _own_names(text: str, separator: str) -> list[str]:
    """Return the names of the columns of a table without a header; nothing if it has one."""
    lines = csv.reader(io.StringIO(text[:_LOOKED_THROUGH], newline=""), delimiter=separator, skipinitialspace=True)
    rows: list[list[str]] = []
    with suppress(csv.Error):  # of a very long cell
        rows += islice(filter(None, lines), LOOKED_AT)
    names, has_heading = heading_of(rows)
    return [] if has_heading else names


def noted(table: pd.DataFrame) -> dict[str, Any]:
    """Return what a run's record says about how a table is written, if it is not as usual."""
    usual = {"separator": ",", "encoding": UTF_8, "nameless": 0}
    return {name: value for name, plain in usual.items() if (value := table.attrs.get(name, plain)) != plain}


def refuse_lines(place: str, lines: Collection[int], what: str, remedy: str) -> None:
    """Raise a `DataError` that names some lines of a table, if there are any; the header is line 1."""
    if len(lines):
        named = first_of([f"{line:,}" for line in lines])
        subject = f"line {named}" if len(lines) == 1 else f"{len(lines):,} lines: {named}"
        raise DataError(f"{place}, {subject}: {what}.", remedy=remedy)


def refuse_rows(
    path: str, broken: NDArray[np.bool_], what: str, separator: str = "", *, has_header: bool | None = None
) -> None:
    """Raise a `DataError` that names the lines of some rows of a table, if there are any.

    Rows of Parquet and JSON Lines, which have no header, are numbered from 1.
    """
    if not broken.any():
        return
    lines = [*range(1, len(broken) + 1)]
    if not is_row_file(path):  # a row may span lines, and there may be blank ones
        text = decoded(path)[0]
        separator = separator or separator_of(text)
        if has_header is None:
            has_header = not _own_names(text, separator)
        if separator == "::":
            text, separator = text.replace("::", "\t"), "\t"
        rows, starts, before = csv.reader(io.StringIO(text, newline=""), delimiter=separator), list[int](), 0
        limit = csv.field_size_limit(len(text) + 1)
        for row in rows:
            if len(row) > 1 or (row and row[0].strip()):
                starts.append(before + 1)
            before = rows.line_num
        csv.field_size_limit(limit)
        lines = starts[has_header:]
    numbers = [line for line, is_broken in zip(lines, broken, strict=False) if is_broken]
    refuse_lines(shown(path), numbers, what, "Fill in or remove these lines.")


def refuse_missing(path: str, table: pd.DataFrame, columns: Collection[str]) -> None:
    """Raise a `DataError` that names the lines of a table with nothing in one of the columns, if there are any."""
    for column in columns:
        missing = (table[column].isna() | (table[column].str.strip() == "")).to_numpy()
        refuse_rows(path, missing, f"nothing in column '{column}'")


def check_there(path: str) -> None:
    """Check that a file exists; raise `DataError` if it does not."""
    place = locate(path)
    if not is_remote(place) and not Path(place).is_file():
        what = "is a folder, not a file" if Path(place).is_dir() else "does not exist"
        raise DataError(f"{shown(path)} {what}.")


def open_table(path: str, columns: Sequence[str], **settings: Any) -> pd.DataFrame:
    """Read a table to predict; raise `DataError` if it cannot be read, or lacks one of these columns of training."""
    check_there(path)
    return read_table(path, dict.fromkeys(columns, ""), **settings)


def kept_columns(table: pd.DataFrame, used: Collection[str]) -> pd.DataFrame:
    """Return the columns of new rows that a model does not see; without any, the numbers of the rows from 1."""
    kept = table.drop(columns=[name for name in used if name in table.columns]).fillna("")
    return kept if len(kept.columns) else kept.assign(row=range(1, len(table) + 1)).astype(str)


def class_names(column: pd.Series[str], path: str) -> tuple[str, ...]:
    """Return the classes in the column of labels in order: numbers by value, then names.

    Raises:
        DataError: There is only one, or there are too many.
    """
    names = column.str.strip().unique().tolist()
    if len(names) == 1:
        raise DataError(
            f"{shown(path)}: all {len(column):,} labels in column '{column.name}' are '{names[0]}'.",
            remedy="Training needs at least two classes; set data.options.label to another column.",
        )
    if len(names) > len(column) // 2:
        raise DataError(
            f"{shown(path)}: column '{column.name}' has {len(names):,} different labels in "
            f"{len(column):,} rows, too many for a classification.",
            remedy="Set data.options.label to the column with the classes.",
        )
    return tuple(sorted(names, key=class_order))
