"""Reads the user's files for a limited time, and holds what was found."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from ...config.values import Section
from ...errors import DataError, Problem, did_you_mean, one_line
from ...sanitize import printable
from ...storage.paths import user_path
from ..places import locate
from ..row_files import (
    CHUNK,
    ENCODINGS,
    LONGEST_S,
    TABLES,
    UNREADABLE,
    UTF_8,
    TooSlowError,
    encoding_of,
    is_parquet,
    is_row_file,
    lines_of,
    opened,
    parquet_counts,
)
from ..tables import Rows, is_number, open_rows, refuse_lines, split_rows

_NAMED = TABLES | {".tsv", ".tab", ".data"}
_SAMPLED = 2000  # rows that are enough to recognize a table
_MOST_CLASSES = 100  # of a column of labels that nobody named
_SHOWN = 200  # most characters of a file in a sentence
_SAMPLE = 100  # most characters of an example that is shown
_EACH = 2048  # entries between two checks of the clock
_T = TypeVar("_T")


class Survey(Struct, frozen=True):
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

        With classes, those with one example are used for training only, and all others are in both parts.
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
        if self.total is None or self.validation is not None:
            return self.total
        return self.total - (self.held_out(fraction) or 0)


def unreadable(error: Exception) -> str:
    """Say why a file cannot be read, given one of `UNREADABLE`."""
    return getattr(error, "strerror", None) or one_line(error)


def trouble(option: str, message: str) -> Survey:
    """Return the survey of a dataset with which a run would fail: the reason, and the option to change."""
    return Survey(problems=(Problem(f"data.options.{option}", message),))


def text_lines(path: Path) -> Iterator[str]:
    """Yield a file's lines; raise `DataError` if it is no text, or what is in `UNREADABLE`."""
    with opened(str(path)) as file:
        yield from lines_of(file, user_path(path))


def read_as(options: Section) -> tuple[str, ...]:
    """Say how the texts that the options name are read, if not as UTF-8."""
    facts = []
    for path in (Path(locate(path)) for option in ("path", "target_path") if (path := getattr(options, option, ""))):
        with suppress(DataError, *UNREADABLE), opened(str(path)) as file:
            encoding = UTF_8 if is_parquet(path.name) else encoding_of(file, "")
            facts += [f"{path.name} is read as {ENCODINGS[encoding]}."] if encoding != UTF_8 else []
    return tuple(facts)


def in_time(entries: Iterable[_T], ends_at: float) -> Iterator[_T]:
    """Yield entries while there is time; raise `TooSlowError` if the time is over."""
    for number, entry in enumerate(entries):
        if number % _EACH == 0 and time.monotonic() > ends_at:
            raise TooSlowError("Reading it takes too long.")
        yield entry


def deadline() -> float:
    """Return the time, on the clock of `time.monotonic`, at which to stop reading a dataset that is opened now."""
    return time.monotonic() + LONGEST_S


def short_text(text: str) -> str:
    """Return text from a file, safe to show and short enough for a sentence."""
    return printable(text[:_SHOWN])


def samples_of(entries: Sequence[_T], line: Callable[[_T], str]) -> tuple[str, ...]:
    """Return a line about each of three entries that are far apart, safe to show."""
    last = len(entries) - 1
    places = sorted({0, last // 2, last}) if entries else []
    lines = (" ".join(line(entries[place]).split()) for place in places)
    return tuple(short_text(text if len(text) <= _SAMPLE else f"{text[: _SAMPLE - 1]}…") for text in lines)


def first_rows(table: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header of a table and some of its rows; nothing if the file has another name."""
    is_text = _NAMED.isdisjoint(table.suffixes)  # which may be a table that is separated by tabs
    if table.is_dir() or (is_text and (table.suffix not in {"", ".txt"} or "\t" not in next(text_lines(table), ""))):
        return [], []
    with opened(str(table)) as file:
        found = open_rows(file, user_path(table))
        return found.heading, [row for _, row in islice(found.rows, _SAMPLED)]


def last_rows(table: Path) -> list[list[str]]:
    """Return some rows of the end of a long CSV, which may be sorted by its labels."""
    size = table.stat().st_size
    if size < 2 * CHUNK or is_row_file(table.name) or table.suffix == ".gz":
        return []
    with opened(str(table)) as file:
        found = open_rows(file, user_path(table))
        file.seek(size - CHUNK)
        lines = file.read().decode(found.encoding, "replace").splitlines(keepends=True)
        rows = split_rows(lines[1:], found.separator)
        return [row for _, row in rows if len(row) == len(found.heading)]  # a cell of several lines may have been cut


def nearly_longest(words: Sequence[int], least: int, most: int) -> tuple[int, str]:
    """Return a number of words that 95% of some texts do not exceed, and why it was chosen."""
    longest = sorted(words)[int(0.95 * (len(words) - 1))] if words else most
    return min(max(-(-longest // 10) * 10, least), most), f"95% have at most {longest:,}"


def label_columns(heading: Sequence[str], rows: Sequence[Sequence[str]], others: Collection[str]) -> list[str]:
    """Return the columns that may have labels, besides some others: their values occur again and again."""

    def is_label(place: int) -> bool:
        values = [row[place].strip() for row in rows if place < len(row)]
        filled = [*filter(None, values)]
        most = min(max(2, len(values) // 2), _MOST_CLASSES)
        return 2 * len(filled) > len(values) and 1 < len({*values}) <= most

    return [name for place, name in enumerate(heading) if name not in others and is_label(place)]


def column_named(heading: Sequence[str], names: Sequence[str]) -> str:
    """Return the first column with one of these names, or an empty string."""
    return next((column for name in names for column in heading if column.strip().lower() == name), "")


def count_classes(
    path: Path,
    wanted: Mapping[str, str],
    columns: Sequence[str],
    names: Sequence[str] = (),
    ids: str | None = None,
    *,
    filled: Sequence[str] = (),
    empty: Collection[str] = (),
    classes: Sequence[str] = (),
) -> Survey:
    """Count the rows of a table: by the value of a column, by which of several has the largest number, or all of them.

    `ids` is the column with the names of images, or empty for the first one; then `columns` are by default all others.
    `classes` are those that the user named, of which the table may have only one.

    Raises `DataError` with the lines in which one of `columns`, or of those that have to be `filled`, has nothing, or
    what counts as `empty`.
    """
    with opened(str(path)) as file:
        found = open_rows(file, user_path(path), names)
        heading, name = [*map(short_text, found.heading)], user_path(path)
        if not heading:
            return trouble("path", f"{name} is empty")
        problems = tuple(
            Problem(f"data.options.{key}", f"{name} has no column '{column}'; {did_you_mean(column, heading)[:_SHOWN]}")
            for column, key in wanted.items()
            if column not in heading
        )
        if problems:
            return Survey(problems=problems)
        if ids is not None:
            filled = [ids or heading[0]]
            columns = columns or [column for column in heading if column not in filled]
            if not columns:
                return trouble("path", f"{name} has no label column besides '{heading[0]}'")
        is_quick = is_parquet(path.name) and len(columns) < 2
        counts = parquet_counts(file, name, "".join(columns)) if is_quick else Counter()
        if not is_quick or (columns and not counts.keys().isdisjoint(["", *empty])):
            places = {column: heading.index(column) for column in (*columns, *filled)}
            counts = _count_rows(found, name, columns, places, empty)
    survey = of_classes(counts, path, classes)
    return survey if columns else replace(survey, classes={})


def _count_rows(
    table: Rows, name: str, columns: Sequence[str], places: Mapping[str, int], empty: Collection[str]
) -> Counter[str]:
    """Count rows by their cells in some columns; raise `DataError` if one has nothing at one of the `places`."""
    counts, number = Counter(dict.fromkeys(columns, 0) if len(columns) > 1 else ()), len(columns)
    missing: dict[str, list[int]] = {column: [] for column in places}
    nothing = {"", *empty}
    for line, row in in_time(table.rows, deadline()):
        whole = [row[place] if place < len(row) else "" for place in places.values()]
        cells = [*map(str.strip, whole)]
        if not (all(cells) and nothing.isdisjoint(whole)):
            for column, cell, text in zip(places, cells, whole, strict=True):
                missing[column] += [line] if not cell or text in nothing else []
        if number > 1:
            shares = [float(cell) if is_number(cell) else 0.0 for cell in cells[:number]]
            counts[columns[shares.index(max(shares))]] += 1  # the loader refuses other cells
        else:
            counts["".join(cells[:number])] += 1
    for column, lines in missing.items():
        refuse_lines(name, lines, f"nothing in column '{column}'")
    return counts


def of_classes(counts: Counter[str], path: Path, classes: Sequence[str] = ()) -> Survey:
    """Return what is known about a table, given the number of rows of each class; a problem if there are not two.

    Without classes, all rows are counted as ``""``.
    """
    if not counts.total():
        return trouble("path", f"{user_path(path)} has no rows")
    if len({*counts, *classes}) == 1 and "" not in counts:
        what = f"all {counts.total():,} labels in {user_path(path)} are '{short_text(*counts)}'"
        return trouble("label", f"{what}; training needs two or more classes, so choose another label")
    return Survey(total=counts.total(), classes={short_text(name): counts[name] for name in sorted(counts)})
