"""The run's journal: append-only JSON lines, one event a line.

A line is ``{"v": 1, "t": <unix seconds>, "type": "<event class>", …fields}``. Numbers JSON cannot hold are
written as the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``. A line without its line feed is not there
yet; a line that cannot be read, or whose type this version does not know, is counted and skipped.

A journal may come from anybody. Readers open regular files only, never hold more than `LONGEST_LINE` bytes of a line,
and give texts that are safe to show (`engine.sanitize`).
"""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import fields
from functools import cache
from operator import itemgetter
from typing import IO, TYPE_CHECKING, Any, get_args

import orjson

from engine.events import DURABLE, Event, Progress
from engine.files import open_regular
from engine.plausible import is_plausible
from engine.sanitize import TooDeepError, printable, printable_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

VERSION = 1
EVENT_TYPES: dict[str, type[Event]] = {cls.__name__: cls for cls in get_args(Event)}

LONGEST_LINE = 1 << 20
"""Bytes of a line from which on it is skipped as damaged."""

FIRST_TIME, LAST_TIME = 0.0, 253_370_000_000.0
"""Unix times between which an event can lie: from 1970 to the last month of the year 9998, in every time zone."""

_MULTI_LINE = {"RunFailed"}
"""Types whose texts keep their line feeds: an error may list a problem a line."""

_ORJSON = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
_READ_BYTES = 256 << 10  # small enough that the parsed records stay in the processor's cache
_LARGEST_BACKLOG = 10_000


def encode(event: Event, at: float) -> bytes:
    """Write one event as a journal line, line feed included.

    Args:
        event: The event.
        at: Unix time in seconds.
    """
    record = {"v": VERSION, "t": at, "type": type(event).__name__}
    record |= {field.name: spelled_out(getattr(event, field.name)) for field in fields(event)}
    try:
        return orjson.dumps(record, option=_ORJSON)
    except TypeError:
        return orjson.dumps(_legible(record), option=_ORJSON)


def spelled_out(value: Any) -> Any:
    """Spell out the numbers that JSON cannot hold; leave the rest to orjson."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: spelled_out(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [spelled_out(inner) for inner in value]
    return value


def _legible(value: Any) -> Any:
    """Spell out what is not Unicode in texts, such as a path with bytes that are no UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_legible(key): _legible(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_legible(inner) for inner in value]
    return value


@cache
def _adapter(name: str) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(EVENT_TYPES[name])


def decode(record: Mapping[str, Any]) -> Event | None:
    """Make an event of a journal record, or None when this version does not know it or it is damaged.

    Fields that this version does not know are ignored.
    """
    name = record.get("type")
    cls = EVENT_TYPES.get(name) if isinstance(name, str) else None
    if cls is None:
        return None
    known = {field.name: record[field.name] for field in fields(cls) if field.name in record}
    try:
        # The reader has cleaned texts that need it; this also bounds their length and how deeply values are nested.
        known = printable_values(known, keeps_lines=name in _MULTI_LINE)
        event: Event = _adapter(cls.__name__).validate_python(known)
    except (ValueError, RecursionError):
        return None
    return event if is_plausible(event) else None


class JournalWriter:
    """Appends events to a journal; safe to call from any thread.

    A line is one `write` to a file opened for appending, so a reader sees it at once and never half of one
    from another writer. When the disk is full the lines wait in memory and are written as soon as there is
    room; only progress events may then be dropped.

    Args:
        path: The journal; created private to the user.
        clock: Unix time in seconds.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._clock = clock
        self._lock = threading.Lock()
        self._backlog: list[bytes] = []
        self._needs_sync = False
        self.trouble = ""

    def write(self, event: Event) -> None:
        """Append one event. Never raises for a full disk: see `trouble`."""
        line = encode(event, self._clock())
        with self._lock:
            if self._fd < 0 or (isinstance(event, Progress) and len(self._backlog) > _LARGEST_BACKLOG):
                return
            self._backlog.append(line)
            self._needs_sync |= isinstance(event, DURABLE)
            self._drain()

    def flush(self) -> None:
        """Write what a full disk held up, and make epoch ends and final events durable."""
        with self._lock:
            if self._fd < 0:
                return
            self._drain()
            if self._needs_sync and not self._backlog:
                self._needs_sync = False
                fd = os.dup(self._fd)
            else:
                return
        # Outside the lock: an fsync may take long, and the training thread must not wait for it.
        try:
            os.fsync(fd)
        except OSError:
            self._needs_sync = False  # a pipe or a file system without fsync
        finally:
            os.close(fd)

    def close(self) -> None:
        """Make everything durable and close the file; further events are dropped."""
        self.flush()
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _drain(self) -> None:
        while self._backlog:
            line = self._backlog[0]
            try:
                written = os.write(self._fd, line)
            except OSError as error:
                self.trouble = error.strerror or str(error)
                return
            if written < len(line):
                self._backlog[0] = line[written:]
            else:
                self._backlog.pop(0)
        self.trouble = ""


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Read one line of a journal; None if it is damaged.

    Args:
        line: The line, with or without its line feed.

    Returns:
        The record, with a possible time ``t``, a ``type``, and texts that are safe to show.
    """
    if len(line) > LONGEST_LINE:
        return None
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return _checked(value, line)


def _checked(value: Any, line: bytes) -> dict[str, Any] | None:
    """Return a parsed line as a record; None if it is none."""
    if type(value) is not dict or type(value.get("type")) is not str:
        return None
    at: Any = value.get("t")
    if type(at) not in (float, int) or not FIRST_TIME <= at <= LAST_TIME:
        return None
    return value if _is_clean(line) else _cleaned(value)


def _cleaned(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with texts that are safe to show; of one that is nested too deeply only what it is."""
    try:
        cleaned: dict[str, Any] = printable_values(record, LONGEST_LINE, keeps_lines=record["type"] in _MULTI_LINE)
    except TooDeepError:
        return {"v": VERSION, "t": record["t"], "type": printable(record["type"])}
    return cleaned


def _is_clean(lines: bytes) -> bool:
    """Return, at the speed of a memory scan, whether all texts of journal lines are safe to show.

    In valid JSON, control characters other than DEL can only be written with a backslash.
    """
    return lines.isascii() and b"\\" not in lines and b"\x7f" not in lines


def journal_lines(path: Path) -> Iterator[bytes]:
    """Go through the complete lines of a journal, line feeds included; lines that are too long are left out.

    Raises:
        FileNotFoundError: There is none yet.
        OSError: It cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        while line := file.readline(LONGEST_LINE + 1):
            if line.endswith(b"\n"):
                yield line
            elif len(line) <= LONGEST_LINE or not _skip_line(file):
                return  # a line without its line feed is not there yet


def _skip_line(file: IO[bytes]) -> bool:
    """Go to the end of a long line; return whether it has one."""
    while part := file.readline(_READ_BYTES):
        if part.endswith(b"\n"):
            return True
    return False


class JournalReader:
    """Reads a growing journal from where it stopped.

    Args:
        path: The journal; it need not exist yet.

    Attributes:
        skipped: Lines that could not be read.
        newer: The newest version seen that is newer than ours, or 0.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._tail = b""
        self._is_in_long_line = False
        self.skipped = 0
        self.newer = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the complete records appended since the last call, at most some megabytes of them.

        Call again until it returns nothing to catch up with a long journal.

        Raises:
            OSError: The file is there and cannot be read, or is not a regular file.
        """
        # A part may hold no record at all: a piece of a long line, or nothing but garbage.
        while chunk := self._next_chunk():
            if self._is_in_long_line:
                _, feed, chunk = chunk.partition(b"\n")
                self._is_in_long_line = not feed
            complete, feed, tail = (self._tail + chunk).rpartition(b"\n")
            self._tail = tail
            if len(tail) > LONGEST_LINE:
                self._tail, self._is_in_long_line = b"", True
                self.skipped += 1
            if feed and (records := self._parse(complete)):
                return records
        return []

    def _next_chunk(self) -> bytes:
        try:
            with open_regular(self._path) as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    # Replaced by a shorter file: begin again.
                    self._offset, self._tail, self._is_in_long_line = 0, b"", False
                file.seek(self._offset)
                chunk = file.read(_READ_BYTES)
        except FileNotFoundError:
            return b""
        self._offset += len(chunk)
        return chunk

    def _parse(self, complete: bytes) -> list[dict[str, Any]]:
        lines = complete.split(b"\n")
        try:
            # One call for the whole chunk: several times faster than a call a line.
            values: list[Any] = orjson.loads(b"[%b]" % b",".join(lines))
        except orjson.JSONDecodeError:
            values = []
        if len(values) == len(lines) and _are_records(values):
            if _is_clean(complete):
                return values
            return [value if _is_clean(line) else _cleaned(value) for value, line in zip(values, lines, strict=True)]
        records = [record for line in lines if (record := parse_line(line)) is not None]
        self.skipped += len(lines) - len(records)
        self.newer = max([self.newer, *(int(r["v"]) for r in records if _is_newer(r.get("v")))])
        return records


def _are_records(values: list[Any]) -> bool:
    """Return, at the speed of C, whether all of a part are records of this version, as they nearly always are."""
    if {*map(type, values)} != {dict}:
        return False
    try:
        versions, types = {*map(itemgetter("v"), values)}, {*map(itemgetter("type"), values)}
        times = [*map(itemgetter("t"), values)]
        if versions != {VERSION} or {*map(type, types)} != {str}:
            return False
        # What is no number cannot be compared with one.
        return bool(min(times) >= FIRST_TIME and max(times) <= LAST_TIME)
    except (KeyError, TypeError):
        return False


def _is_newer(version: object) -> bool:
    return isinstance(version, int) and version > VERSION
