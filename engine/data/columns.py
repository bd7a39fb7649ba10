"""Tables of other formats, Parquet and JSON lines, as the text of a CSV, which is how every kind reads a table."""

from __future__ import annotations

import io
import json
from pathlib import Path

from ..errors import DataError, one_line
from ..storage.paths import user_path

CONVERTED = {".parquet", ".jsonl", ".ndjson"}
TABLES = {".csv", ".tsv", *CONVERTED}
"""The endings of tables that are recognized."""


def as_csv(path: str | Path, content: bytes) -> bytes:
    """Return a file's content as a CSV; unchanged if it has another format.

    Raises:
        DataError: It is damaged, or the package that reads it is missing.
    """
    if (ending := Path(path).suffix.lower()) not in CONVERTED:
        return content
    import pandas as pd

    if ending == ".parquet":
        try:
            table = pd.read_parquet(io.BytesIO(content))
        except ImportError as error:
            remedy = "pip install pyarrow"
            raise DataError(f"{_shown(path)} needs the package pyarrow.", remedy=remedy) from error
        except Exception as error:  # of pyarrow, whose errors have many types
            raise DataError(f"{_shown(path)} is no Parquet file, or damaged.", why=one_line(error, 200)) from error
    else:
        lines = enumerate(content.decode("utf-8-sig", "replace").splitlines(), 1)
        table = pd.DataFrame([_row(path, number, line) for number, line in lines if line.strip()])
    return table.convert_dtypes().to_csv(index=False).encode()


def _row(path: str | Path, number: int, line: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{_shown(path)}, line {number:,}: not JSON.", why=one_line(error, 100)) from error
    if not isinstance(row, dict):
        raise DataError(f"{_shown(path)}, line {number:,}: not an object with a value for each column.")
    return row


def _shown(path: str | Path) -> str:
    return user_path(Path(path))
