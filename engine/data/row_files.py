"""Opens text in any encoding, and reads the rows of Parquet and JSON Lines as text, as those of a CSV."""

import codecs
import csv
import gzip
import io
import itertools
import json
import math
import os
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from ..errors import DataError, one_line
from ..machine.install import check_installed
from ..storage.files import open_regular
from .places import is_remote, locate, not_there, read_whole, shown

_PARQUET = ".parquet"
TABLES = frozenset((".csv", _PARQUET, ".jsonl", ".ndjson"))  # endings of tables that name their columns
_SAMPLED = 2000  # objects of JSON Lines whose keys are the columns: later ones rarely have others
LONGEST_LINE = 16 << 20  # a file of zeros is one line and would fill the memory
_MOST_VALUES = 50_000  # that are counted one by one
LONGEST_S = 0.5  # longest time to look through one file: a delay after a key press, once per file
CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
UTF_8, UTF_16, WINDOWS = "utf-8-sig", "utf-16", "cp1252"
"""The encodings of texts, as Python calls them."""
ENCODINGS = {UTF_16: "UTF-16, which its first bytes name", WINDOWS: "Windows-1252, because it is not UTF-8"}
"""The less usual ones in words."""
_DECIDED: dict[tuple[int, ...], str] = {}  # the encodings of files by what changes when they do
UNREADABLE = (OSError, EOFError, csv.Error, zlib.error)  # what reading a file raises that is damaged, or cannot be read


class TooSlowError(DataError):
    """Reading takes too long, or a line of a text file is too long."""


def encoding_of(file: BinaryIO, name: str) -> str:
    """Return the encoding of a text: UTF-16 with its mark, UTF-8, or else Windows-1252; `name` is for errors.

    A file on the disk is looked at once, and what is not read of it within half a second is taken to be UTF-8. Raises
    `DataError` if it is no text.
    """
    try:
        status = os.fstat(file.fileno())
    except io.UnsupportedOperation:  # it is in memory
        return _encoding(file, name, math.inf)
    key = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
    if key not in _DECIDED:
        _DECIDED[key] = _encoding(file, name, time.monotonic() + LONGEST_S)
    return _DECIDED[key]


def _encoding(file: BinaryIO, name: str, ends_at: float) -> str:
    """Look through a file until a time on the clock of `time.monotonic`, and go back to its beginning."""
    decoder, found, place, zero = codecs.getincrementaldecoder("utf-8")(), UTF_8, 0, -1
    while time.monotonic() < ends_at:
        chunk = file.read(CHUNK)
        if not place and chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            found = UTF_16
            break
        if zero < 0 <= (first := chunk.find(b"\0")):
            zero = place + first
        if found == UTF_8:
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError:
                found = WINDOWS
        if found == WINDOWS and zero >= 0:
            remedy = "Name a text file, or a table in CSV, JSON Lines or Parquet."
            raise DataError(f"{name} is not text: its byte {zero + 1:,} is 0x00.", remedy=remedy)
        if not chunk:
            break
        place += len(chunk)
    file.seek(0)
    return found


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Open a file that may be remote, and compressed with gzip, whatever its name; raise `OSError` if it cannot be."""
    if is_remote(path):
        content = read_whole(path)
        yield io.BytesIO(gzip.decompress(content) if content.startswith(_GZIP) else content)
        return
    with open_regular(path, follows_links=True) as file:
        is_compressed = file.read(2) == _GZIP
        file.seek(0)
        yield cast("BinaryIO", gzip.GzipFile(fileobj=file) if is_compressed else file)


@contextmanager
def reading(path: str) -> Iterator[BinaryIO]:
    """Open the file that an option names; raise `DataError` if it, or what the body reads of it, cannot be read."""
    try:
        with opened(locate(path)) as file:
            yield file
    except FileNotFoundError as error:
        raise not_there(path, "file", "path") from error
    except (gzip.BadGzipFile, EOFError, zlib.error, csv.Error) as error:
        raise DataError(f"{shown(path)} is damaged.", why=one_line(error)) from error
    except OSError as error:
        raise DataError(f"{shown(path)} cannot be read: {error.strerror}.") from error


def decoded(path: str) -> tuple[str, str]:
    """Return what is in a text file, and its encoding; raise `DataError` if it is empty, no text or cannot be read."""
    with reading(path) as file:
        content = io.BytesIO(file.read())
    encoding = encoding_of(content, shown(path))
    text = content.read().decode(encoding, "replace")
    if not text.strip():
        raise DataError(f"{shown(path)} is empty.")
    return text, encoding


def lines_of(file: BinaryIO, name: str, encoding: str = "") -> Iterator[str]:
    """Yield the lines of an open file with their line feeds; raise `DataError` if it is not text."""
    text = io.TextIOWrapper(file, encoding or encoding_of(file, name), errors="replace", newline="")
    while line := text.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise TooSlowError(f"{name} has a line of more than 16 MB.")
        yield line


def is_row_file(name: str) -> bool:
    """Return whether a file is Parquet or JSON Lines by its name."""
    return not (TABLES - {".csv"}).isdisjoint(Path(name.lower()).suffixes)


def is_parquet(name: str) -> bool:
    """Return whether a file is Parquet by its name."""
    return _PARQUET in Path(name.lower()).suffixes


def parquet_counts(file: BinaryIO, name: str, column: str = "") -> Counter[str]:
    """Count the rows of Parquet by the value of a column, which alone is read; without a column, all rows as one.

    Raises `DataError` as `cells_of` does, and if the column has very many different values.
    """
    with _parquet(file, name) as table:
        if not column:
            return Counter({"": table.metadata.num_rows})
        entries = table.read([column]).column(0).value_counts()
        if len(entries) > _MOST_VALUES:
            raise TooSlowError("It has too many classes to count.")
        counts = Counter[str]()
        for entry in entries.to_pylist():
            counts[_cell(entry["values"]).strip()] += entry["counts"]
        return counts


def has_images(file: BinaryIO, name: str) -> bool:
    """Return whether Parquet has a column of images, as the hub's datasets do; raises as `parquet_counts` does."""
    with _parquet(file, name) as table:
        kinds = (field.type for field in table.schema_arrow)
        return any(hasattr(kind, "get_field_index") and kind.get_field_index("bytes") >= 0 for kind in kinds)


def cells_of(file: BinaryIO, name: str) -> Iterator[list[str]]:
    """Yield the names of the columns of a file that `is_row_file`, and then each row, as text.

    Columns of lists, tables and bytes are left out. Raises `DataError` if it is damaged, or a package is missing.
    """
    for row in _from_parquet(file, name) if is_parquet(name) else _from_json(file, name):
        yield [*map(_cell, row)]


def _cell(value: Any) -> str:
    """Return a value as text; half of a UTF-16 pair, which JSON can hold, becomes a question mark."""
    if value is None or value != value:  # NaN
        return ""
    return str(value).encode("utf-8", "replace").decode()


@contextmanager
def _parquet(file: BinaryIO, name: str) -> Iterator[Any]:
    """Open a file of Parquet; what is damaged in it, or in what the body reads of it, is said with its name."""
    check_installed(name, "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name} is damaged, or not Parquet.", why=one_line(error)) from error


def _from_parquet(file: BinaryIO, name: str) -> Iterator[list[Any]]:
    with _parquet(file, name) as table:
        import pyarrow as pa

        names = [field.name for field in table.schema_arrow
                 if not pa.types.is_nested(field.type) and not pa.types.is_binary(field.type)]  # fmt: skip
        if names:
            yield names
            for batch in table.iter_batches(batch_size=1024, columns=names):
                yield from map(list, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _from_json(file: BinaryIO, name: str) -> Iterator[list[Any]]:
    def objects() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in enumerate(lines_of(file, name), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{name}, line {number:,}: not JSON.", why=one_line(error)) from error
            if not isinstance(row, dict):
                raise DataError(f'{name}, line {number:,}: not a JSON object such as {{"text": "…", "label": 1}}.')
            yield number, row

    rows = objects()
    first = [*itertools.islice(rows, _SAMPLED)]
    nested = {key for _, row in first for key, value in row.items() if isinstance(value, list | dict)}
    names = [key for key in dict.fromkeys(key for _, row in first for key in row) if key not in nested]
    if names:
        yield names
    for line, row in itertools.chain(first, rows):
        if unknown := row.keys() - {*names} - nested:
            raise DataError(f"{name}, line {line:,}: no line before has the key '{min(unknown)}'.")
        yield [row.get(key) for key in names]
