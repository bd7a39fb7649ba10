"""Opens text in any encoding, and Parquet and JSON Lines as the text of a CSV, so that what reads one reads them."""

from __future__ import annotations

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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ..errors import DataError, one_line
from ..machine.install import check_installed
from ..storage.files import open_regular
from .places import is_remote, locate, not_there, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARQUET = ".parquet"
TABLES = frozenset((".csv", _PARQUET, ".jsonl", ".ndjson"))
"""Endings of tables that name their columns."""
_SAMPLED = 2000  # objects of JSON Lines whose keys are the columns: later ones rarely have others
_LONGEST_LINE = 16 << 20
_MOST_VALUES = 50_000  # that are counted one by one
LONGEST_S = 0.5
"""Longest time to look through one file: a delay after a key press, once per file."""
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
UTF_8, UTF_16, WINDOWS = "utf-8-sig", "utf-16", "cp1252"
"""The encodings of texts, as Python calls them."""
ENCODINGS = {UTF_16: "UTF-16, which its first bytes name", WINDOWS: "Windows-1252, because it is not UTF-8"}
"""The less usual ones in words."""
_DECIDED: dict[tuple[int, ...], str] = {}  # the encodings of files by what changes when they do


def encoding_of(file: BinaryIO, name: str) -> str:
    """Return the encoding of a text: UTF-16 with its mark, UTF-8, or else Windows-1252; `name` is for errors.

    A file on the disk is looked at once, and what is not read of it within half a second is taken to be UTF-8.

    Raises:
        DataError: It is no text.
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
        chunk = file.read(_CHUNK)
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
        import tensorflow as tf

        try:
            with tf.io.gfile.GFile(path, "rb") as remote:
                content = bytes(remote.read())
        except tf.errors.OpError as error:
            raise DataError(f"{path} cannot be read.", why=one_line(error)) from error
        yield io.BytesIO(gzip.decompress(content) if content.startswith(_GZIP) else content)
        return
    with open_regular(path, follows_links=True) as file:
        is_compressed = file.read(2) == _GZIP
        file.seek(0)
        yield cast("BinaryIO", gzip.GzipFile(fileobj=file) if is_compressed else file)


def decoded(path: str) -> tuple[str, str]:
    """Return what is in a text file, which may be remote or compressed, and its encoding.

    Parquet and JSON Lines become a CSV. Raises `DataError` if it cannot be read, is empty or is no text.
    """
    place = shown(path)
    try:
        with opened(locate(path)) as file:
            content = io.BytesIO(file.read())
    except FileNotFoundError as error:
        raise not_there(path, "file", "path") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{place} is damaged: it cannot be decompressed.", why=one_line(error)) from error
    except OSError as error:
        raise DataError(f"{place} cannot be read: {error.strerror}.") from error
    encoding = UTF_8 if is_parquet(place) else encoding_of(content, place)
    text = "".join(csv_lines(place, content)) if is_row_file(place) else content.read().decode(encoding, "replace")
    if not text.strip():
        raise DataError(f"{place} is empty.")
    return text, encoding


def opened_text(file: BinaryIO, name: str) -> io.TextIOWrapper:
    """Return a file as text in its encoding; line feeds are kept."""
    return io.TextIOWrapper(file, encoding_of(file, name), errors="replace", newline="")


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


def has_images(name: str, file: BinaryIO) -> bool:
    """Return whether Parquet has a column of images, as the hub's datasets do; raises as `parquet_counts` does."""
    with _parquet(name, file) as table:
        kinds = (field.type for field in table.schema_arrow)
        return any(hasattr(kind, "get_field_index") and kind.get_field_index("bytes") >= 0 for kind in kinds)


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
    lines = opened_text(file, name)

    def objects() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in enumerate(iter(lambda: lines.readline(_LONGEST_LINE), ""), 1):
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
