"""Reads the user's files for a limited time, and holds what was found."""

from __future__ import annotations

import csv
import itertools
import re
import time
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...errors import DataError, Problem, did_you_mean, one_line
from ...sanitize import printable
from ...storage.paths import user_path
from ..places import locate
from ..row_files import (
    ENCODINGS,
    LONGEST_S,
    TABLES,
    UTF_8,
    csv_lines,
    encoding_of,
    is_parquet,
    is_row_file,
    opened,
    opened_text,
    parquet_counts,
)
from ..tables import DECIMAL_COMMA, DECIMAL_POINT, LOOKED_AT, heading_of, separator_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ...config.values import Section

UNREADABLE = (OSError, EOFError, csv.Error, zlib.error)
"""What reading a file raises that is damaged, or cannot be read."""
_LONGEST_LINE = 16 << 20  # a file of zeros is one line and would fill the memory
_NAMED = TABLES | {".tsv", ".tab", ".data"}
_SAMPLED = 2000  # rows that are enough to recognize a table
_MOST_CLASSES = 100  # of a column of labels that nobody named
_SHOWN = 200  # most characters of a file in a sentence
_SAMPLE = 100  # most characters of an example that is shown
_EACH = 2048  # entries between two checks of the clock

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known about a dataset of files."""

    # Number of examples before the split and any limit, without a separate validation set; None if unknown.
    total: int | None = None
    classes: Mapping[str, int] = field(default_factory=dict)  # number of examples of each class, by name
    class_names: tuple[str, ...] = ()  # names of the classes, if it is unknown how many examples each has
    validation: int | None = None  # number of examples in a separate validation set; None without one
    unknown: str = ""  # why it was not counted, as the end of a sentence; empty if it was
    facts: tuple[str, ...] = ()  # how files are read, if not as usual
    problems: tuple[Problem, ...] = ()  # what would make a run fail, by key of the configuration
    is_missing: bool = False  # whether the problems are files that do not exist

    def held_out(self, fraction: float) -> int | None:
        """Return how many examples the split holds out for validation; None if unknown.

        With classes this is the rule of `engine.data.split`: a class with one example is used for training only, and
        every other class is in both parts.
        """
        if self.validation is not None:
            return self.validation
        if self.total is None:
            return None
        if not self.classes:
            return max(1, round(fraction * self.total))
        divisible = [count for count in self.classes.values() if count > 1]
        most = sum(divisible) - len(divisible)
        return min(max(round(fraction * self.total), len(divisible)), most)

    def train(self, fraction: float) -> int | None:
        """Return how many examples are left for training; None if unknown."""
        held_out = self.held_out(fraction)
        if self.total is None or held_out is None:
            return None
        return self.total if self.validation is not None else self.total - held_out


class TooSlowError(Exception):
    """Counting takes too long."""


def unreadable(error: Exception) -> str:
    """Say why a file cannot be read, given one of `UNREADABLE`."""
    return getattr(error, "strerror", None) or one_line(error)


def trouble(option: str, message: str) -> Survey:
    """Return the survey of a dataset with which a run would fail: the reason, and the option to change."""
    return Survey(problems=(Problem(f"data.options.{option}", message),))


def text_lines(path: Path) -> Iterator[str]:
    """Yield a file's lines with their line feeds, of Parquet and JSON Lines as in a CSV.

    Raises:
        DataError: It is no text, or is damaged.
        TooSlowError: A line is too long for a text file.
        OSError: It cannot be read.
    """
    with opened(str(path)) as file:
        if is_row_file(path.name):
            yield from csv_lines(user_path(path), file)
            return
        with opened_text(file, user_path(path)) as lines:
            while line := lines.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE:
                    raise TooSlowError
                yield line


def read_as(options: Section) -> tuple[str, ...]:
    """Say how the texts that the options name are read, if not as UTF-8."""
    facts = []
    for path in (Path(locate(path)) for option in ("path", "target_path") if (path := getattr(options, option, ""))):
        with suppress(DataError, *UNREADABLE), opened(str(path)) as file:
            encoding = UTF_8 if is_parquet(path.name) else encoding_of(file, "")
            facts += [f"{path.name} is read as {ENCODINGS[encoding]}."] if encoding != UTF_8 else []
    return tuple(facts)


def count_values(path: Path, heading: Sequence[str], rows: Iterable[Sequence[str]], column: str) -> Counter[str]:
    """Count the rows that `open_columns` opened by their value in a column, or all; raise `TooSlowError` if it must."""
    if is_parquet(path.name):
        with opened(str(path)) as file:
            counts = parquet_counts(user_path(path), file, column)
        if counts is None:
            raise TooSlowError
        return counts
    place = heading.index(column) if column else len(heading)
    return Counter(row[place].strip() if place < len(row) else "" for row in in_time(rows, deadline()))


def in_time(entries: Iterable[_T], ends_at: float) -> Iterator[_T]:
    """Yield entries while there is time; raise `TooSlowError` if the time is over."""
    for number, entry in enumerate(entries):
        if number % _EACH == 0 and time.monotonic() > ends_at:
            raise TooSlowError
        yield entry


def deadline() -> float:
    """Return the time, on the clock of `time.monotonic`, at which to stop reading a dataset that is opened now."""
    return time.monotonic() + LONGEST_S


def shown(text: str) -> str:
    """Return text from a file, safe to show and short enough for a sentence."""
    return printable(text[:_SHOWN])


def samples_of(entries: Sequence[_T], line: Callable[[_T], str]) -> tuple[str, ...]:
    """Return a line about each of three entries that are far apart, safe to show."""
    last = len(entries) - 1
    places = sorted({0, last // 2, last}) if entries else []
    lines = (" ".join(line(entries[place]).split()) for place in places)
    return tuple(shown(text if len(text) <= _SAMPLE else f"{text[: _SAMPLE - 1]}…") for text in lines)


def first_rows(table: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header of a table and some of its rows; nothing if the file has another name."""
    is_text = _NAMED.isdisjoint(table.suffixes)  # which may be a table that is separated by tabs
    if table.is_dir() or (is_text and (table.suffix not in {"", ".txt"} or "\t" not in next(text_lines(table), ""))):
        return [], []
    heading, rows = _open_rows(table)
    return heading, [*itertools.islice(rows, _SAMPLED)]


def _open_rows(path: Path) -> tuple[list[str], Iterator[list[str]]]:
    """Return the header of a table, empty if the file is, and its other rows."""
    lines = text_lines(path)
    first = next(lines, "")
    separator = separator_of(first)[:1]
    cells = csv.reader(itertools.chain([first], lines), delimiter=separator, skipinitialspace=True)
    rows: Iterator[list[str]] = filter(None, cells)
    if separator == ";":
        rows = ([re.sub(DECIMAL_COMMA, DECIMAL_POINT, cell) for cell in row] for row in rows)
    looked_at = [*itertools.islice(rows, 1 if is_row_file(path.name) else LOOKED_AT)]
    heading, is_named = heading_of(looked_at)
    return heading, itertools.chain(looked_at[is_named:], rows)


def nearly_longest(words: Sequence[int], least: int, most: int) -> tuple[int, str]:
    """Return a number of words that 95% of some texts do not exceed, and why it was chosen."""
    longest = sorted(words)[int(0.95 * (len(words) - 1))] if words else most
    return min(max(-(-longest // 10) * 10, least), most), f"95% have at most {longest:,}"


def label_columns(heading: Sequence[str], rows: Sequence[Sequence[str]], others: Collection[str]) -> list[str]:
    """Return the columns that may have labels, besides some others: their values occur again and again."""
    found = []
    for place, name in enumerate(heading):
        values = [row[place].strip() for row in rows if place < len(row)]
        filled = [value for value in values if value]
        if (
            name not in others
            and 2 * len(filled) > len(values)
            and 1 < len({*values}) <= min(max(2, len(values) // 2), _MOST_CLASSES)
        ):
            found.append(name)
    return found


def column_named(heading: Sequence[str], names: Sequence[str]) -> str:
    """Return the first column with one of these names, or an empty string."""
    return next((column for name in names for column in heading if column.strip().lower() == name), "")


def open_columns(path: Path, wanted: Mapping[str, str]) -> tuple[list[str], Iterator[list[str]], tuple[Problem, ...]]:
    """Start to read a table: return its header, its rows, and the problems of `missing_columns`."""
    names, rows = _open_rows(path)
    heading = [*map(shown, names)]
    if not heading:
        return [], rows, (Problem("data.options.path", f"{user_path(path)} is empty"),)
    return heading, rows, missing_columns(path, heading, wanted)


def missing_columns(path: Path, heading: list[str], wanted: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return a problem for each column that a table lacks, given the option that names it."""
    missing = {
        name: f"no column '{name}'; {did_you_mean(name, heading)[:_SHOWN]}" for name in wanted if name not in heading
    }
    return tuple(
        Problem(f"data.options.{wanted[name]}", f"{user_path(path)} has {what}") for name, what in missing.items()
    )


def count_classes(path: Path, wanted: Mapping[str, str], column: str) -> Survey:
    """Count the rows of a table by a column, or all, given the option that names each column that it has to have."""
    heading, rows, problems = open_columns(path, wanted)
    return Survey(problems=problems) if problems else of_classes(count_values(path, heading, rows, column), path)


def of_classes(counts: Counter[str], path: Path) -> Survey:
    """Return what is known about a table, given the number of rows of each class."""
    if not counts.total():
        return trouble("path", f"{user_path(path)} has no rows")
    return Survey(total=counts.total(), classes={shown(name): counts[name] for name in sorted(counts)})
