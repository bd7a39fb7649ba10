"""Counts the examples in the user's files, for each format, without TensorFlow or pandas."""

from __future__ import annotations

import csv
import itertools
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError, Problem
from ...storage.files import kind_of, read_bytes
from ...storage.paths import user_path
from ..places import is_image_name, is_remote, locate
from ..plain_text import first_of, is_number, layout_of
from ..tfrecord.schema import LARGEST_SCHEMA, SCHEMA_NAME, read_schema
from .skimming import Survey, count_lines, deadline, in_time, nearest, shown, text_lines, trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


def _columns(path: Path, wanted: Mapping[str, str]) -> tuple[list[str], Iterator[list[str]], tuple[Problem, ...]]:
    """Start to read a table: return its header, its rows, and a problem for each missing column."""
    rows = csv.reader(text_lines(path))
    heading = [shown(name) for name in next(rows, [])]
    if not heading:
        return [], rows, (Problem("data.options.path", f"{user_path(path)} is empty"),)
    problems = [
        Problem(f"data.options.{option}", f"{user_path(path)} has no column '{name}'; {nearest(name, heading)}")
        for name, option in wanted.items()
        if name not in heading
    ]
    return heading, (row for row in rows if row), tuple(problems)


def _image_csv(path: Path, options: Any) -> Survey:
    wanted = dict.fromkeys(options.label_columns, "label_columns")
    if options.id_column:
        wanted[options.id_column] = "id_column"
    heading, rows, problems = _columns(path, wanted)
    if problems:
        return Survey(problems=problems)
    names = options.label_columns or [name for name in heading if name != (options.id_column or heading[0])]
    if not names:
        return trouble("path", f"{user_path(path)} has no label column besides '{heading[0]}'")
    places = [heading.index(name) for name in names]
    counts: Counter[str] = Counter(dict.fromkeys(names, 0) if len(names) > 1 else {})
    for row in in_time(rows, deadline()):
        labels = [row[place] if place < len(row) else "" for place in places]
        counts[labels[0] if len(names) == 1 else names[_largest(labels)]] += 1
    return _of_classes(counts, path)


def _largest(labels: list[str]) -> int:
    """Return the index of the largest probability; the loader reports cells that are not numbers."""
    shares = [float(label) if is_number(label) else 0.0 for label in labels]
    return shares.index(max(shares))


def _text_csv(path: Path, options: Any) -> Survey:
    wanted = {options.text_column: "text_column", options.label_column: "label_column"}
    heading, rows, problems = _columns(path, wanted)
    if problems:
        return Survey(problems=problems)
    place = heading.index(options.label_column)
    counts = Counter(row[place].strip() if place < len(row) else "" for row in in_time(rows, deadline()))
    return _of_classes(counts, path)


def _of_classes(counts: Counter[str], path: Path) -> Survey:
    if not counts.total():
        return trouble("path", f"{user_path(path)} has no rows")
    return Survey(total=counts.total(), classes={shown(name): counts[name] for name in sorted(counts)})


def _ratings_csv(path: Path, options: Any) -> Survey:
    first = next(text_lines(path), "").strip()
    separator, has_heading = layout_of(first)
    heading = [shown(name) for name in next(_rating_rows([first], separator), [])]
    wanted = ["user_column", "item_column", "rating_column", *(["time_column"] if options.split == "time" else [])]
    problems = [
        Problem(f"data.options.{option}", f"{user_path(path)} has no column '{name}'; {nearest(name, heading)}")
        for option in wanted
        if has_heading and (name := getattr(options, option)) not in heading
    ]
    if problems:
        return Survey(problems=tuple(problems))
    if options.split == "time":
        rows = _rating_rows(text_lines(path), separator)
        users = _cells(rows, heading.index(options.user_column)) if has_heading else _cells(rows, 0)
        return _by_user(Counter(itertools.islice(users, int(has_heading), None)), path)
    count = count_lines(path) - has_heading
    return Survey(total=count) if count > 0 else trouble("path", f"{user_path(path)} has no rows")


def _rating_rows(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Split lines into cells; `csv` itself takes only single characters as separators."""
    if separator == "::":
        lines, separator = (line.replace("::", "\t") for line in lines), "\t"
    return csv.reader(lines, delimiter=separator)


def _cells(rows: Iterable[list[str]], place: int) -> Iterator[str]:
    """Yield the cells of a column, without blank lines, while there is time."""
    for row in in_time(rows, deadline()):
        if len(row) > place and (len(row) > 1 or row[0].strip()):
            yield row[place]


def _by_user(ratings: Counter[str], path: Path) -> Survey:
    """Return the counts of ratings if the last ones of each user are held out."""
    if not ratings:
        return trouble("path", f"{user_path(path)} has no rows")
    return Survey(total=ratings.total(), groups=Counter(ratings.values()))


def _text_pairs(path: Path, options: Any) -> Survey:
    lines = 0
    for number, line in enumerate(in_time(text_lines(path), deadline())):
        if options.limit and number >= options.limit:
            break
        if line.isspace():
            continue
        lines += 1
        if options.target_path:
            continue
        source, _, rest = line.partition("\t")
        if not (source.strip() and rest.partition("\t")[0].strip()):
            what = f"{user_path(path)}, line {number + 1:,} has no tab between a source and a target sentence"
            return trouble("path", f"{what}: '{shown(line.strip())}'")
    return Survey(total=lines) if lines else trouble("path", f"{user_path(path)} is empty")


def _image_folder(path: Path, options: Any) -> Survey:
    ends_at = deadline()
    odd: dict[str, str] = {}
    counts = _images_by_class(path, ends_at, odd)
    if odd and not options.skip_bad:
        return trouble("path", _odd_names(path, odd))
    if not counts:
        return trouble("path", f"{user_path(path)} has no folders, one per class, with images in them")
    if len(counts) < 2:
        return trouble("path", f"{user_path(path)} has one folder with images, '{next(iter(counts))}', and there has "
                        "to be one for each class")  # fmt: skip
    place = options.validation_path
    if not place:
        return Survey(total=sum(counts.values()), classes=counts)
    validation = None if is_remote(place) else sum(_images_by_class(Path(locate(place)), ends_at, {}).values())
    return Survey(total=sum(counts.values()), classes=counts, validation=validation)


def _odd_names(path: Path, odd: Mapping[str, str]) -> str:
    """Return a sentence about images that are not files."""
    named = first_of([f"{shown(name)} is {kind}" for name, kind in odd.items()], 3)
    what = "One image is not a file" if len(odd) == 1 else f"{len(odd):,} images are not files"
    return f"{what} in {user_path(path)}: {named}; remove it, or set data.options.skip_bad=true"


def _images_by_class(path: Path, ends_at: float, odd: dict[str, str]) -> dict[str, int]:
    """Count the images of each class; images that are not files are added to `odd` with what they are."""
    if not path.is_dir():
        raise DataError(f"{user_path(path)} is a file, not a folder.")
    counts = {}
    for folder in class_folders(path):
        count = 0
        for entry in in_time(_entries_below(folder), ends_at):
            if not is_image_name(entry.name):
                continue
            if (kind := _odd_kind(entry)) is None:
                count += 1
            else:
                odd[f"{folder.name}/{entry.name}"] = kind
        counts[folder.name] = count
    return {shown(name): count for name, count in counts.items() if count}


def _odd_kind(entry: os.DirEntry[str]) -> str | None:
    """Return what an entry is if it is not a file; only a link needs a look at its target."""
    try:
        return None if entry.is_file() else kind_of(entry.stat().st_mode)
    except OSError as error:
        return f"a link that leads nowhere ({error.strerror})"


def _entries_below(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    """Yield everything below a folder except folders, without hidden entries and without following links.

    Folders that cannot be read are skipped, as in `os.walk`, which the loader uses.
    """
    try:
        with os.scandir(folder) as found:
            entries = [entry for entry in found if not entry.name.startswith(".")]
    except OSError:
        return
    for entry in entries:
        if not _is_folder(entry):
            yield entry
        elif not entry.is_symlink():
            yield from _entries_below(entry.path)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def class_folders(path: Path) -> list[Path]:
    """Return the sorted folders in a folder, without hidden ones; raise `OSError` if it cannot be read."""
    with os.scandir(path) as entries:
        return sorted(path / entry.name for entry in entries if not entry.name.startswith(".") and _is_folder(entry))


def _tfrecord(path: Path, _options: Any) -> Survey:
    place = path / SCHEMA_NAME
    if not place.is_file():
        return trouble(
            "path", f"{user_path(path)} has no {SCHEMA_NAME}, the last file that `tpu-console tfrecord` writes"
        )
    schema = read_schema(
        read_bytes(place, LARGEST_SCHEMA, follows_links=True).decode("utf-8", "replace"), user_path(place)
    )
    return Survey(total=schema.total, classes=dict(zip(schema.classes, schema.class_counts, strict=True)))


COUNTERS: dict[str, Callable[[Path, Any], Survey]] = {
    "image-csv": _image_csv,
    "image-folder": _image_folder,
    "tfrecord": _tfrecord,
    "text-pairs": _text_pairs,
    "text-csv": _text_csv,
    "ratings-csv": _ratings_csv,
}
"""The function that counts each format, given the path and the options. Each raises TooLargeError, DataError, OSError,
or what `csv` and `gzip` raise."""
