"""What is known of a person's own files after a glance at them: the result, and reading for a moment only."""

from __future__ import annotations

import gzip
import io
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from ...errors import DataError, Problem, did_you_mean
from ...sanitize import printable
from ...storage.files import open_regular
from ...storage.paths import user_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

LONGEST_S = 0.5
"""How long one dataset may be counted; twice the blink in which a key press may be answered late, once a file."""

_CHUNK = 1 << 20
_LONGEST_LINE = 16 << 20  # a file of zeros is one line, and would fill the memory
_SHOWN = 200  # characters of a file that a sentence shows
_EACH = 2048  # entries between two looks at the clock

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known of a dataset of files.

    Args:
        total: Its examples before the split and any limit, without a validation set of its own; None when unknown.
        classes: Examples of each class by name, where there are classes.
        groups: Where each group, such as one user's ratings, is split on its own: how many groups there are of each
            size; empty where all are split together.
        validation: Examples of its validation set, where it has one of its own.
        unknown: Why it was not counted, as the end of a sentence; empty when it was.
        problems: What would make a run fail, by key of the configuration.
    """

    total: int | None = None
    classes: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[int, int] = field(default_factory=dict)
    validation: int | None = None
    unknown: str = ""
    problems: tuple[Problem, ...] = ()

    def held_out(self, fraction: float) -> int | None:
        """Return how many examples the split holds out for validation; None when that is unknown.

        With classes this is the rule of `engine.data.split`: a class of one example is only trained on, and
        every other class is in both parts. With groups it is that of `engine.data.sources.ratings_csv`: each group's
        share is rounded down.
        """
        if self.validation is not None:
            return self.validation
        if self.total is None:
            return None
        if self.groups:
            return sum(groups * math.floor(size * fraction) for size, groups in self.groups.items())
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


def trouble(option: str, message: str) -> Survey:
    """Return what is known of a dataset that a run would fail on: why, and which option it is about."""
    return Survey(problems=(Problem(f"data.options.{option}", message),))


def text_lines(path: Path) -> Iterator[str]:
    """Read a file's lines, line feeds included; a byte that is no UTF-8 is the loader's business.

    Raises:
        DataError: It is a folder.
        TooLargeError: A line is so long that the file is hardly one of text.
        OSError: It cannot be read.
    """
    with _opened(path) as file, io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="") as lines:
        while line := lines.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise TooLargeError
            yield line


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file, also one that is compressed with gzip, whatever its name ends in."""
    if path.is_dir():
        raise DataError(f"{user_path(path)} is a folder, not a file.")
    with open_regular(path) as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield cast("BinaryIO", gzip.GzipFile(fileobj=file) if is_compressed else file)


def count_lines(path: Path) -> int:
    """Count line feeds, far faster than reading the lines; a last line without one counts too.

    Raises:
        TooLargeError: It takes too long.
    """
    count, last, ends_at = 0, b"\n", deadline()
    with _opened(path) as file:
        while chunk := file.read(_CHUNK):
            if time.monotonic() > ends_at:
                raise TooLargeError
            count, last = count + chunk.count(b"\n"), chunk[-1:]
    return count + (last != b"\n")


def in_time(entries: Iterable[_T], ends_at: float) -> Iterator[_T]:
    """Go through entries as long as there is time.

    Raises:
        TooLargeError: There is none left.
    """
    for number, entry in enumerate(entries):
        if number % _EACH == 0 and time.monotonic() > ends_at:
            raise TooLargeError
        yield entry


def deadline() -> float:
    """Return when a dataset that is begun to be read now is given up, as `time.monotonic` tells it."""
    return time.monotonic() + LONGEST_S


def nearest(name: str, heading: list[str]) -> str:
    """Name the nearest column; of a file that is no table only the beginning of its first line is shown."""
    text = did_you_mean(name, heading)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def shown(text: str) -> str:
    """Write what a file holds, safe to show and not longer than a sentence can take."""
    return printable(text[:_SHOWN])
