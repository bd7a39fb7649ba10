"""Reads the user's tables, which may be Parquet and JSON Lines; errors name the line.

The plan reads rows with `open_rows`, a run all of them with `read_table`, which alone loads pandas.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Struct

from ..config.catalog import is_user_reference
from ..config.options import METRICS
from ..config.values import parse_piece
from ..errors import DataError, did_you_mean
from .places import is_remote, locate, not_there, shown
from .row_files import LONGEST_LINE, UTF_8, cells_of, encoding_of, is_row_file, lines_of, reading

if TYPE_CHECKING:
    import pandas as pd

    from ..config.run_config import RunConfig

UNNAMED = "Unnamed: "  # the beginning of the names that columns without one get
_LOOKED_AT = 100  # rows of a table that show whether it has a header
_AT_ONCE = 10_000  # rows that are in memory as lists, which take several times as much
_FIRST_NAMES = {0.0, *map(float, range(1800, 2200))}  # numbers that begin a series of names
_SEPARATORS = ("\t", ",", "::", ";")  # the first of these that is in the first line separates the columns
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


def _heading_of(rows: Sequence[Sequence[str]]) -> tuple[list[str], bool]:
    """Return the names of a table's columns, given its first rows, and whether its first row has them.

    It does not if a cell is a number, or if at least half of its words appear again below, each in its column. Years,
    and numbers that count from 0, are names.
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


def require(config: RunConfig, model: str, losses: tuple[str, ...], metrics: Collection[str] = METRICS) -> None:
    """Raise `DataError` if a configuration's model, loss or metrics do not fit its dataset; custom ones always do."""
    for key, value, valid in (("model", config.model, (model,)), ("loss", config.loss_name, losses)):
        if value not in valid and not is_user_reference(value):
            what = f"{config.dataset} does not work with {key} = '{value}'."
            raise DataError(what, remedy=f"Set {key} to {' or '.join(valid)}, or to a function of yours.")
    for name in config.metrics:
        if (plain := parse_piece(name)).name not in metrics and not plain.is_own:
            what = f"{config.dataset} does not work with the metric '{name}'."
            raise DataError(what, remedy=f"Set metrics to some of: {', '.join(metrics)}.")


def refuse_class_options(config: RunConfig) -> None:
    """Raise a `DataError` if a dataset without classes is configured with options that need them."""
    asked = {"label_smoothing": config.label_smoothing > 0, "class_weight": config.class_weight != "none"}
    for key, is_asked in asked.items():
        if is_asked:
            raise DataError(f"{config.dataset} has no classes, which {key} needs.", remedy=f"Remove {key}.")


class Rows(Struct, frozen=True):
    """A table that is read row by row, whose cells are text."""

    heading: list[str]  # the names of the columns; empty if the file is
    rows: Iterator[tuple[int, list[str]]]  # with the line that each begins on, or its number in Parquet and JSON Lines
    separator: str = ","
    encoding: str = UTF_8
    is_named: bool = True  # whether the file names its columns


def open_rows(file: BinaryIO, name: str, names: Sequence[str] = ()) -> Rows:
    """Read a table from an open file; without a header, its first columns get the `names`.

    Raises `DataError` if it is not text, is damaged, or cannot be read without another package.
    """
    if is_row_file(name):
        cells = cells_of(file, name)
        return Rows(next(cells, []), enumerate(cells, 1))
    encoding = encoding_of(file, name)
    text = lines_of(file, name, encoding)
    first = next(text, "")
    separator = next((mark for mark in _SEPARATORS if mark in first), ",")
    rows = split_rows(chain([first], text), separator)
    looked_at = [*islice(rows, _LOOKED_AT)]
    heading, is_named = _heading_of([row for _, row in looked_at])
    if not is_named:
        heading[: len(names)] = names[: len(heading)]
    return Rows(heading, chain(looked_at[is_named:], rows), separator, encoding, is_named)


def split_rows(text: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the cells of each row; blank lines are no rows."""
    if separator == "::":
        text, separator = (line.replace("::", "\t") for line in text), "\t"
    cells, before = csv.reader(text, delimiter=separator, skipinitialspace=True), 0
    limit = csv.field_size_limit(LONGEST_LINE)  # for all readers of this process
    try:
        for row in cells:
            if len(row) > 1 or (row and row[0].strip()):
                whole = [re.sub(DECIMAL_COMMA, DECIMAL_POINT, cell) for cell in row] if separator == ";" else row
                yield before + 1, whole
            before = cells.line_num
    finally:
        csv.field_size_limit(limit)


def read_table(
    path: str, wanted: Mapping[str, str], empty: Sequence[str] = ("",), names: Sequence[str] = ()
) -> pd.DataFrame:
    """Read a table as text, with NaN for the cells that are `empty`; its index has the line numbers.

    Its `attrs` have the separator, the encoding, and the number of columns if these have no names. `wanted` maps each
    required column to the option that names it, or to an empty string if a run was trained on it; `names` are for a
    table without a header. Raises `DataError` if it is not a table, has no rows, or lacks a column.
    """
    import pandas as pd

    place, frames, lines = shown(path), [], list[int]()
    with reading(path) as file:
        found = open_rows(file, place, names)
        width = len(found.heading)
        for name, option in wanted.items() if width else ():
            if name not in found.heading:
                nearest = did_you_mean(name, found.heading)
                end = "" if nearest.endswith("?") else "."
                remedy = f"Set data.options.{option}." if option else "The run was trained on it."
                raise DataError(f"{place} has no column '{name}'; {nearest}{end}", remedy=remedy)
        columns = [f"{name}.{number}" if name in found.heading[:number] else name
                   for number, name in enumerate(found.heading)]  # fmt: skip

        def whole_rows() -> Iterator[list[str]]:
            for line, row in found.rows:
                lines.append(line)
                if len(row) != width:
                    if any(row[width:]):
                        raise DataError(f"{place}, line {line:,}: {len(row)} cells, but there are {width} columns.")
                    row[:] = [*row[:width], *[""] * (width - len(row))]
                yield row

        rows = whole_rows()
        while some := [*islice(rows, _AT_ONCE)]:
            frames.append(pd.DataFrame(some, columns=columns))
    if not frames:
        raise DataError(f"{place} has a header but no rows." if width else f"{place} is empty.")
    table = pd.concat(frames).set_axis(lines)
    table = table.mask(table.isin([*empty]))
    unnamed = 0 if found.is_named else width
    table.attrs.update({"separator": found.separator, "encoding": found.encoding, "nameless": unnamed})
    return table


def noted(table: pd.DataFrame) -> dict[str, Any]:
    """Return what a run's record says about how a table is written, if it is not as usual."""
    usual = {"separator": ",", "encoding": UTF_8, "nameless": 0}
    return {name: value for name, plain in usual.items() if (value := table.attrs.get(name, plain)) != plain}


def refuse_lines(place: str, lines: Collection[int], what: str, remedy: str = "Fill in or remove these lines.") -> None:
    """Raise a `DataError` that names some lines of a table, if there are any; the header is line 1."""
    if len(lines):
        named = first_of([f"{line:,}" for line in lines])
        subject = f"line {named}" if len(lines) == 1 else f"{len(lines):,} lines: {named}"
        raise DataError(f"{place}, {subject}: {what}.", remedy=remedy)


def refuse_missing(path: str, table: pd.DataFrame, columns: Collection[str]) -> None:
    """Raise a `DataError` that names the lines of a table with nothing in one of the columns, if there are any."""
    for column in columns:
        missing = table[column].isna() | (table[column].str.strip() == "")
        refuse_lines(shown(path), table.index[missing], f"nothing in column '{column}'")


def check_there(path: str, option: str = "") -> None:
    """Check that a file, which an option may name, exists; raise `DataError` if it does not."""
    place = locate(path)
    if is_remote(place) or Path(place).is_file():
        return
    if Path(place).is_dir():
        raise DataError(f"{shown(path)} is a folder, not a file.")
    raise not_there(path, "file", option) if option else DataError(f"{shown(path)} does not exist.")


def open_table(path: str, columns: Sequence[str], empty: Sequence[str] = ("",)) -> pd.DataFrame:
    """Read a table to predict; raise `DataError` if it cannot be read, or lacks one of these columns of training."""
    check_there(path)
    return read_table(path, dict.fromkeys(columns, ""), empty)


def kept_columns(table: pd.DataFrame, used: Collection[str]) -> pd.DataFrame:
    """Return the columns of new rows that a model does not see; without any, the numbers of the rows from 1."""
    kept = table.drop(columns=[name for name in used if name in table.columns]).fillna("")
    return kept if len(kept.columns) else kept.assign(row=range(1, len(table) + 1)).astype(str)
