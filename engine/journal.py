"""The run's journal: append-only JSON lines, one event a line.

A line is ``{"v": 1, "t": <unix seconds>, "type": "<event class>", …fields}``. Numbers JSON cannot hold are
written as the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``. A line without its line feed is not there
yet; a line that cannot be read, or whose type this version does not know, is counted and skipped.
"""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import fields
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, get_args

import orjson

from engine.events import DURABLE, Event, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

VERSION = 1
EVENT_TYPES: dict[str, type[Event]] = {cls.__name__: cls for cls in get_args(Event)}

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
    cls = EVENT_TYPES.get(record.get("type", ""))
    if cls is None:
        return None
    known = {field.name: record[field.name] for field in fields(cls) if field.name in record}
    try:
        event: Event = _adapter(cls.__name__).validate_python(known)
    except ValueError:
        return None
    return event


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
        self.skipped = 0
        self.newer = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the complete records appended since the last call, at most some megabytes of them.

        Call again until it returns nothing to catch up with a long journal.

        Raises:
            OSError: The file is there and cannot be read.
        """
        # A part may hold no record at all: a piece of a long line, or nothing but garbage.
        while chunk := self._next_chunk():
            complete, feed, tail = (self._tail + chunk).rpartition(b"\n")
            self._tail = tail
            if feed and (records := self._parse(complete)):
                return records
        return []

    def _next_chunk(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset, self._tail = 0, b""  # replaced by a shorter file: begin again
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
            values = [self._parse_line(line) for line in lines]
        if len(values) != len(lines):
            values = [self._parse_line(line) for line in lines]
        if _are_records(values):
            return values
        records = [value for value in values if type(value) is dict and type(value.get("t")) in (float, int)]
        self.skipped += len(lines) - len(records)
        self.newer = max([self.newer, *{int(v) for r in records if (v := r.get("v", 0)) != VERSION and _is_newer(v)}])
        return records

    @staticmethod
    def _parse_line(line: bytes) -> object:
        try:
            return orjson.loads(line)
        except orjson.JSONDecodeError:
            return None


def _are_records(values: list[Any]) -> bool:
    """Tell, at C's speed, whether all of a part are records of this version, as they nearly always are."""
    if {*map(type, values)} != {dict}:
        return False
    try:
        versions, times = {*map(itemgetter("v"), values)}, {*map(type, map(itemgetter("t"), values))}
    except (KeyError, TypeError):
        return False
    return versions == {VERSION} and times <= {float, int}


def _is_newer(version: object) -> bool:
    return isinstance(version, int) and version > VERSION
