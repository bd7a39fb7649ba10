"""Counts the examples of each format of a person's own files in plain Python, without TensorFlow and pandas."""

from __future__ import annotations

import csv
import gzip
import io
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from engine.errors import DataError, Problem, did_you_mean
from engine.paths import user_path
from engine.places import is_remote, locate
from engine.shards import SCHEMA_NAME, read_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

LONGEST_S = 0.5
"""How long one dataset may be counted; twice the blink in which a key press may be answered late, once a file."""

IMAGE_ENDINGS = frozenset((".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".webp"))
_SEPARATORS = ("::", "\t", ";", ",")  # between the columns of ratings
_CHUNK = 1 << 20
_SHOWN = 200  # characters of a file that a sentence shows
_EACH = 2048  # entries between two looks at the clock

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known of a dataset of files.

    Args:
        total: Its examples before the split and any limit, without a validation set of its own; None when unknown.
        classes: Examples of each class by name, where there are classes.
        validation: Examples of its validation set, where it has one of its own.
        unknown: Why it was not counted, as the end of a sentence; empty when it was.
        problems: What would make a run fail, by key of the configuration.
    """

    total: int | None = None
    classes: Mapping[str, int] = field(default_factory=dict)
    validation: int | None = None
    unknown: str = ""
    problems: tuple[Problem, ...] = ()

    def held_out(self, fraction: float) -> int | None:
        """Return how many examples the split holds out for validation; None when that is unknown.

        With classes this is the rule of `engine.datasets.split`: a class of one example is only trained on, and
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
        """Return how many examples are left to train on; None when that is unknown."""
        held_out = self.held_out(fraction)
        if self.total is None or held_out is None:
            return None
        return self.total if self.validation is not None else self.total - held_out


class TooLargeError(Exception):
    """Counting takes too long."""


def _in_time(entries: Iterable[_Entry], ends_at: float) -> Iterator[_Entry]:
    """Go through entries as long as there is time."""
    for number, entry in enumerate(entries):
        if number % _EACH == 0 and time.monotonic() > ends_at:
            raise TooLargeError
        yield entry


def _deadline() -> float:
    return time.monotonic() + LONGEST_S


def trouble(option: str, message: str) -> Survey:
    """Return what is known of a dataset that a run would fail on: why, and which option it is about."""
    return Survey(problems=(Problem(f"data.options.{option}", message),))


def text_lines(path: Path) -> Iterator[str]:
    """Read a file's lines, line feeds included; a byte that is no UTF-8 is the loader's business.

    Raises:
        DataError: It is a folder.
        OSError: It cannot be read.
    """
    with _opened(path) as file, io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="") as lines:
        yield from lines


def _opened(path: Path) -> BinaryIO:
    """Open a file, also one that is compressed with gzip, whatever its name ends in."""
    if path.is_dir():
        raise DataError(f"{user_path(path)} is a folder, not a file.")
    with path.open("rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
    return cast("BinaryIO", gzip.open(path)) if is_compressed else path.open("rb")


def _columns(path: Path, wanted: Mapping[str, str]) -> tuple[list[str], Iterator[list[str]], tuple[Problem, ...]]:
    """Begin to read a table.

    Args:
        path: The CSV file.
        wanted: Columns that have to be there, by the option that names each.

    Returns:
        Its heading, its rows, and a problem for each column that is not there.
    """
    rows = csv.reader(text_lines(path))
    heading = [_printable(name) for name in next(rows, [])]
    if not heading:
        return [], rows, (Problem("data.options.path", f"{user_path(path)} is empty"),)
    problems = [
        Problem(f"data.options.{option}", f"{user_path(path)} has no column '{name}'; {_nearest(name, heading)}")
        for name, option in wanted.items()
        if name not in heading
    ]
    return heading, (row for row in rows if row), tuple(problems)


def _nearest(name: str, heading: list[str]) -> str:
    """Name the nearest column; of a file that is no table only the beginning of its first line is shown."""
    text = did_you_mean(name, heading)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _printable(text: str) -> str:
    """Write what a file holds without what would move a terminal's cursor."""
    return "".join(character if character.isprintable() else " " for character in text[:_SHOWN])


def _image_csv(path: Path, options: Any) -> Survey:
    wanted = dict.fromkeys(options.label_columns, "label_columns")
    if options.id_column:
        wanted[options.id_column] = "id_column"
    heading, rows, problems = _columns(path, wanted)
    if problems:
        return Survey(problems=problems)
    names = options.label_columns or [name for name in heading if name != (options.id_column or heading[0])]
    if not names:
        return trouble("path", f"{user_path(path)} has no column of labels beside '{heading[0]}'")
    places = [heading.index(name) for name in names]
    counts: Counter[str] = Counter(dict.fromkeys(names, 0) if len(names) > 1 else {})
    for row in _in_time(rows, _deadline()):
        labels = [row[place] if place < len(row) else "" for place in places]
        counts[labels[0] if len(names) == 1 else names[_largest(labels)]] += 1
    return _of_classes(counts, path)


def _largest(labels: list[str]) -> int:
    """Return which of the shares of classes is the largest; one that is no number is the loader's business."""
    shares = []
    for label in labels:
        try:
            shares.append(float(label))
        except ValueError:
            shares.append(0.0)
    return shares.index(max(shares))


def _text_csv(path: Path, options: Any) -> Survey:
    wanted = {options.text_column: "text_column", options.label_column: "label_column"}
    heading, rows, problems = _columns(path, wanted)
    if problems:
        return Survey(problems=problems)
    place = heading.index(options.label_column)
    counts = Counter(row[place].strip() if place < len(row) else "" for row in _in_time(rows, _deadline()))
    return _of_classes(counts, path)


def _of_classes(counts: Counter[str], path: Path) -> Survey:
    if not counts.total():
        return trouble("path", f"{user_path(path)} has no rows")
    return Survey(total=counts.total(), classes={_printable(name): counts[name] for name in sorted(counts)})


def _ratings_csv(path: Path, options: Any) -> Survey:
    first = next(text_lines(path), "").strip()
    separator = next((mark for mark in _SEPARATORS if mark in first), ",")
    heading = [_printable(cell.strip('"')) for cell in first.split(separator)]
    has_heading = not all(_is_number(cell) for cell in heading)
    wanted = ["user_column", "item_column", "rating_column", *(["time_column"] if options.split == "time" else [])]
    problems = [
        Problem(f"data.options.{option}", f"{user_path(path)} has no column '{name}'; {_nearest(name, heading)}")
        for option in wanted
        if has_heading and (name := getattr(options, option)) not in heading
    ]
    if problems:
        return Survey(problems=tuple(problems))
    rows = _count_lines(path) - has_heading
    if rows < 1:
        return trouble("path", f"{user_path(path)} has no rows")
    return Survey(unknown="is split user by user") if options.split == "time" else Survey(total=rows)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text_pairs(path: Path, options: Any) -> Survey:
    lines = 0
    for number, line in enumerate(_in_time(text_lines(path), _deadline())):
        if options.limit and number >= options.limit:
            break
        lines += not line.isspace()
    return Survey(total=lines) if lines else trouble("path", f"{user_path(path)} is empty")


def _count_lines(path: Path) -> int:
    """Count line feeds, far faster than reading the lines; a last line without one counts too."""
    count, last, ends_at = 0, b"\n", _deadline()
    with _opened(path) as file:
        while chunk := file.read(_CHUNK):
            if time.monotonic() > ends_at:
                raise TooLargeError
            count, last = count + chunk.count(b"\n"), chunk[-1:]
    return count + (last != b"\n")


def _image_folder(path: Path, options: Any) -> Survey:
    ends_at = _deadline()
    counts = _images_by_class(path, ends_at)
    if not counts:
        return trouble("path", f"{user_path(path)} holds no folders, one a class, with images in them")
    if len(counts) < 2:
        return trouble("path", f"{user_path(path)} has one folder with images, '{next(iter(counts))}', and there has "
                        "to be one for each class")  # fmt: skip
    place = options.validation_path
    if not place:
        return Survey(total=sum(counts.values()), classes=counts)
    validation = None if is_remote(place) else sum(_images_by_class(Path(locate(place)), ends_at).values())
    return Survey(total=sum(counts.values()), classes=counts, validation=validation)


def _images_by_class(path: Path, ends_at: float) -> dict[str, int]:
    if not path.is_dir():
        raise DataError(f"{user_path(path)} is a file, not a folder.")
    counts = {}
    for folder in class_folders(path):
        names = _in_time(_names_below(folder), ends_at)
        counts[folder.name] = sum(name[name.rfind(".") :].lower() in IMAGE_ENDINGS for name in names)
    return {_printable(name): count for name, count in counts.items() if count}


def _names_below(folder: Path) -> Iterator[str]:
    for _, folders, names in os.walk(folder):
        folders[:] = (name for name in folders if not name.startswith("."))
        yield from (name for name in names if not name.startswith("."))


def class_folders(path: Path) -> list[Path]:
    """Return the folders in a folder, sorted, without hidden ones.

    Raises:
        OSError: It cannot be read.
    """
    with os.scandir(path) as entries:
        return sorted(path / entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())


def _tfrecord(path: Path, _options: Any) -> Survey:
    place = path / SCHEMA_NAME
    if not place.is_file():
        return trouble("path", f"{user_path(path)} holds no {SCHEMA_NAME}, as `tpu-console tfrecord` writes it last")
    schema = read_schema(place.read_text(encoding="utf-8", errors="replace"), user_path(place))
    return Survey(total=schema.total, classes=dict(zip(schema.classes, schema.class_counts, strict=True)))


COUNTERS: dict[str, Callable[[Path, Any], Survey]] = {
    "image-csv": _image_csv,
    "image-folder": _image_folder,
    "tfrecord": _tfrecord,
    "text-pairs": _text_pairs,
    "text-csv": _text_csv,
    "ratings-csv": _ratings_csv,
}
"""What counts each format, given its place and its options. Each raises TooLargeError, DataError, OSError, or what
`csv` and `gzip` raise."""
