"""Reads a table to predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data.places import is_remote, locate
from ...data.tables import read_table, read_text, shown
from ...errors import DataError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


def check_there(path: str) -> None:
    """Check that a file exists; raise `DataError` if it does not."""
    place = locate(path)
    if not is_remote(place) and not Path(place).is_file():
        what = "is a folder, not a file" if Path(place).is_dir() else "does not exist"
        raise DataError(f"{shown(path)} {what}.")


def refuse_empty(table: pd.DataFrame, column: str, path: str) -> None:
    """Raise `DataError` with the first row that is empty in a column, if there is one."""
    empty = table[column].isna().to_numpy()
    if empty.any():
        raise DataError(f"{shown(path)}: row {empty.argmax() + 1:,} is empty in column '{column}'.")


def open_table(path: str, columns: Sequence[str], **settings: Any) -> pd.DataFrame:
    """Read a CSV table whose cells are texts; raise `DataError` if it cannot be read, or lacks one of these columns."""
    check_there(path)
    table = read_table(path, read_text(path), {}, **settings)
    for name in columns:
        if name not in table.columns:
            nearest = did_you_mean(name, [str(column) for column in table.columns])
            raise DataError(f"{shown(path)} has no column '{name}', which the run was trained on; {nearest}")
    return table
