"""Reads Parquet and JSON Lines as the text of a CSV, so that everything that reads a CSV reads them, too."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import DataError, one_line
from ..machine.install import check_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARQUET = ".parquet"
TABLES = frozenset((".csv", _PARQUET, ".jsonl", ".ndjson"))
"""Endings of tables that name their columns."""
_SAMPLED = 2000  # objects of JSON Lines whose keys are the columns: later ones rarely have others
_LONGEST_LINE = 16 << 20
_MOST_VALUES = 50_000  # that are counted one by one


def is_row_file(name: str) -> bool:
    """Return whether a file is Parquet or JSON Lines by its name."""
    return not (TABLES - {".csv"}).isdisjoint(Path(name.lower()).suffixes)


def is_parquet(name: str) -> bool:
    """Return whether a file is Parquet by its name."""
    return _PARQUET in Path(name.lower()).suffixes


def parquet_counts(name: str, file: BinaryIO, column: str = "") -> Counter[str] | None:
    """Count the rows of Parquet by the value of a column, which alone is read; without a column, all rows as one.

    None is returned if the column has very many different values.

    Raises:
        DataError: The file is damaged, or cannot be read without another package.
    """
    with _parquet(name, file) as table:
        if not column:
            return Counter({"": table.metadata.num_rows})
        entries = table.read([column]).column(0).value_counts()
        if len(entries) > _MOST_VALUES:
            return None
        counts: Counter[str] = Counter()
        for entry in entries.to_pylist():
            counts[_cell(entry["values"]).strip()] += entry["counts"]
        return counts


def csv_lines(name: str, file: BinaryIO) -> Iterator[str]:
    """Yield the header and each row of a file that `is_row_file`, as in a CSV separated by commas.

    Columns of lists, tables and bytes are left out.

    Raises:
        DataError: The file is damaged, or cannot be read without another package.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    for row in _from_parquet(name, file) if is_parquet(name) else _from_json(name, file):
        writer.writerow(map(_cell, row))
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def _cell(value: Any) -> str:
    """Return a value as text; half of a UTF-16 pair, which JSON can hold, becomes a question mark."""
    if value is None or value != value:  # NaN
        return ""
    return str(value).encode("utf-8", "replace").decode()


@contextmanager
def _parquet(name: str, file: BinaryIO) -> Iterator[Any]:
    """Open a file of Parquet; what is damaged in it, or in what the body reads of it, is said with its name."""
    check_installed(name, "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name} is damaged, or not Parquet.", why=one_line(error)) from error


def _from_parquet(name: str, file: BinaryIO) -> Iterator[list[Any]]:
    with _parquet(name, file) as table:
        import pyarrow as pa

        names = [field.name for field in table.schema_arrow
                 if not pa.types.is_nested(field.type) and not pa.types.is_binary(field.type)]  # fmt: skip
        if names:
            yield names
            for batch in table.iter_batches(batch_size=1024, columns=names):
                yield from map(list, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _from_json(name: str, file: BinaryIO) -> Iterator[list[Any]]:
    rows = _objects(name, file)
    first = [*itertools.islice(rows, _SAMPLED)]
    nested = {key for _, row in first for key, value in row.items() if isinstance(value, list | dict)}
    names = [key for key in dict.fromkeys(key for _, row in first for key in row) if key not in nested]
    if names:
        yield names
    for line, row in itertools.chain(first, rows):
        if unknown := row.keys() - {*names} - nested:
            raise DataError(f"{name}, line {line:,}: no line before has the key '{min(unknown)}'.")
        yield [row.get(key) for key in names]


def _objects(name: str, file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the object of each line."""
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{name}, line {number:,}: not JSON.", why=one_line(error)) from error
        if not isinstance(row, dict):
            raise DataError(f'{name}, line {number:,}: not a JSON object such as {{"text": "…", "label": 1}}.')
        yield number, row
