"""The run's journal: append-only JSON lines, one event per line.

A line is ``{"v": 1, "t": <unix seconds>, "type": "<event class>", …fields}``. Numbers that JSON cannot hold are
written as the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``. A last line without a line feed is not complete
yet and is ignored. Lines that cannot be read and unknown types are counted and skipped.

A journal is untrusted. Readers open regular files only, never hold more than `LONGEST_LINE` bytes of a line,
and return texts that are safe to show (`engine.sanitize`).
"""

import json
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ..sanitize import DEEPEST, LONGEST_TEXT, printable_values
from ..storage.files import RESERVE_BYTES, RESERVE_NAME, free_bytes, is_disk_full, open_private, open_regular, reserve
from ..storage.keyed_store import plain_value
from . import events
from .events import DURABLE, EpochEnded, Event, Noticed, Progress

VERSION = 1
EVENT_TYPES: dict[str, type[Event]] = {cls.__name__: cls for cls in Event.__subclasses__()}

LONGEST_LINE = 1 << 20  # bytes; longer lines are skipped as damaged
FIRST_TIME, LAST_TIME = 0.0, 253_370_000_000.0  # of an event, in Unix seconds: until the year 9998 in every time zone
_EARLIER, _TODAY = "images_per_s", "examples_per_s"  # a field in journals of earlier versions, and its name today
_MULTI_LINE = {"RunFailed"}  # types whose texts keep their line feeds: an error may list one problem per line
_NESTED = {events.RunStarted, events.RunResumed, events.RunFinished}  # hold values of any depth
_READ_BYTES = 512 << 10  # with 128 KiB a million records take 1.6 s, not 1.9, but arrow keys twice as long
_LARGEST_BACKLOG = 10_000
_MEASUREMENTS = Progress, events.ValidationProgress, events.HostSampled, events.MemorySampled, events.InputMeasured


class Record(msgspec.Struct, gc=False):
    """A line of a journal."""

    at: float  # Unix time in seconds
    event: Event | None  # None if its type is unknown, or a value of it is missing or impossible
    version: int  # the version of the journal
    line: bytes  # the line as it is, without its line feed; not safe to show


class _Head(msgspec.Struct, gc=False):
    """What every line has, besides its type."""

    t: Annotated[float, msgspec.Meta(ge=FIRST_TIME, le=LAST_TIME)]
    v: int = VERSION


_HEADS = msgspec.json.Decoder(_Head)


def encode(event: Event, at: float) -> bytes:
    """Return one event as a journal line, with its line feed; `at` is Unix time in seconds."""
    values = {name: spelled_out(getattr(event, name)) for name in event.__struct_fields__}
    record = {"v": VERSION, "t": at, "type": type(event).__name__, **values}
    try:
        return msgspec.json.encode(record, enc_hook=plain_value) + b"\n"
    except UnicodeEncodeError:  # such as a path with bytes that are not UTF-8
        plain = msgspec.to_builtins(record, enc_hook=plain_value)
        return json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def spelled_out(value: Any) -> Any:
    """Replace numbers that JSON cannot hold by text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: spelled_out(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [spelled_out(inner) for inner in value]
    return value


class JournalWriter:
    """Appends events to a journal, each in one `write`, so that lines of several writers do not mix; thread-safe.

    While the disk is full, lines wait in memory and are written as soon as there is space. The last event does not
    wait: space reserved beside the journal is released for it and for everything before it, except measurements taken
    every second or more often (`Progress` and samples).
    """

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.time, sync: Callable[[int], object] = os.fsync
    ) -> None:
        self._fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._clock, self._sync, self._lock = clock, sync, threading.Lock()
        self._waiting: list[tuple[bytes, bool]] = []  # lines, and whether each is a measurement
        self._needs_sync = False
        self.has_ended = False  # whether the last event of the run was written
        self._reserved = path.with_name(RESERVE_NAME)
        self.is_full = False  # whether the disk was full at the last attempt and has little space yet
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            if file.read(1) not in {b"", b"\n"}:  # the last line of a killed process must not swallow the next one
                self._waiting.append((b"\n", False))
        with suppress(OSError):
            reserve(self._reserved)

    @property
    def waiting(self) -> int:
        """Number of events that wait for space."""
        return len(self._waiting)

    def write(self, event: Event) -> None:
        """Append one event. Never raises for a full disk: see `is_full`."""
        line = encode(event, self._clock()), isinstance(event, _MEASUREMENTS)
        with self._lock:
            if self._fd < 0 or self.has_ended:
                return  # the final event stays the last one, whatever a training thread that still runs says
            if isinstance(event, Progress) and len(self._waiting) > _LARGEST_BACKLOG:
                return
            self._waiting.append(line)
            self._needs_sync |= isinstance(event, DURABLE)
            self.has_ended = isinstance(event, DURABLE) and not isinstance(event, EpochEnded)
            if not self._drain() and self.is_full and self.has_ended:
                self._drain_last()

    def flush(self) -> None:
        """Write waiting events, and make epoch ends and final events durable."""
        with self._lock:
            if self._fd < 0 or not self._drain() or not self._needs_sync:
                return
            self._needs_sync = False
            fd = os.dup(self._fd)
        # Outside the lock: an fsync may take long, and the training thread must not wait for it.
        with suppress(OSError):  # a pipe or a file system without fsync
            self._sync(fd)
        os.close(fd)

    def close(self) -> None:
        """Make everything durable, release the reserved space and close the file; further events are dropped."""
        with self._lock:
            if self._fd >= 0 and not self._drain() and self.is_full:
                self._drain_last()
        self.flush()
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
        with suppress(OSError):
            self._reserved.unlink()

    def _drain(self) -> bool:
        """Write waiting lines in order; return whether none is left."""
        while self._waiting:
            line, is_measurement = self._waiting[0]
            try:
                written = os.write(self._fd, line)
            except OSError as error:
                self.is_full |= is_disk_full(error)
                return False
            if written < len(line):
                self._waiting[0] = line[written:], is_measurement
                continue
            self._waiting.pop(0)
            # With less space, it would be full again after a few lines.
            if self.is_full and not self._waiting and (free_bytes(self._reserved.parent) or 0) >= RESERVE_BYTES:
                self.is_full = False
                if not self.has_ended:
                    recovery = Noticed("Disk space is available again. Every epoch is recorded.")
                    self._waiting.append((encode(recovery, self._clock()), False))
        return True

    def _drain_last(self) -> None:
        """Write waiting lines in the reserved space, without measurements; a line that was begun is finished."""
        self._waiting = [line for number, line in enumerate(self._waiting) if not number or not line[1]]
        with suppress(OSError):
            self._reserved.unlink()
        self._drain()


@cache
def _events() -> msgspec.json.Decoder[Event]:
    kinds: Any = reduce(or_, EVENT_TYPES.values())
    return msgspec.json.Decoder(kinds, strict=False)  # a text may be a number, such as "NaN"


def decode(line: bytes) -> Record | None:
    """Read one line of a journal, with texts that are safe to show; None if it is damaged."""
    if found := _decode_together(line, [line]):
        return found[0]
    if len(line) > LONGEST_LINE:
        return None
    try:
        head, values = _HEADS.decode(line), _renamed(msgspec.json.decode(line))
    except (ValueError, RecursionError):
        return None
    if not isinstance(kind := values.get("type"), str):
        return None
    event = None
    with suppress(ValueError, RecursionError):
        clean = printable_values(values, keeps_lines=kind in _MULTI_LINE)
        event = msgspec.convert(clean, _events().type, strict=False)
    return Record(head.t, event, head.v, line)


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    values = {_TODAY if name == _EARLIER else name: value for name, value in values.items()}
    if isinstance(reasons := values.get("why_not"), dict):
        values["why_not"] = _renamed(reasons)
    return values


def printable_line(line: bytes) -> bytes:
    """Return a line of a journal with texts that are safe to show, and its line feed; `ValueError` if it is no JSON."""
    values = msgspec.json.decode(line)
    values = printable_values(values, LONGEST_LINE, keeps_lines=values["type"] in _MULTI_LINE)
    return msgspec.json.encode(values) + b"\n"


def _decode_together(chunk: bytes, lines: list[bytes]) -> list[Record] | None:
    """Read whole lines in a tenth of the time; None if one is damaged, or may have a value that is not safe to show."""
    # In JSON, control characters other than DEL need a backslash.
    is_clean = chunk.isascii() and b"\\" not in chunk and b"\x7f" not in chunk
    # A hostile line may hold several values, and another one a part of a value, or none.
    is_whole = all(line.startswith(b"{") and line.endswith(b"}") for line in lines)
    if not is_clean or not is_whole or max(map(len, lines)) > LONGEST_TEXT:
        return None
    try:
        parts = zip(_HEADS.decode_lines(chunk), _events().decode_lines(chunk), lines, strict=True)
        records = [Record(head.t, event, head.v, line) for head, event, line in parts]
    except (ValueError, RecursionError):
        return None
    # By type: `isinstance` takes 0.3 µs for a struct.
    for record in [record for record in records if type(record.event) is not Progress]:
        is_deep = type(record.event) in _NESTED and record.line.count(b"{") + record.line.count(b"[") > DEEPEST
        if is_deep or _EARLIER.encode() in record.line:
            return None
    return records


class JournalReader:
    """Reads a growing journal from where it stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._tail = b""
        self._is_in_long_line = False
        self.skipped = 0  # lines that could not be read
        self.newer = 0  # the highest version in the file if it is newer than ours, else 0

    def read(self) -> list[Record]:
        """Return some of the records appended since the last call, none if there are no more; may raise `OSError`."""
        while True:
            try:
                with open_regular(self._path) as file:
                    if file.seek(0, os.SEEK_END) < self._offset:
                        # Replaced by a shorter file: start again.
                        self._offset, self._tail, self._is_in_long_line = 0, b"", False
                    file.seek(self._offset)
                    chunk = file.read(_READ_BYTES)
            except FileNotFoundError:
                return []
            if not chunk:
                return []
            self._offset += len(chunk)
            if self._is_in_long_line:
                _, feed, chunk = chunk.partition(b"\n")
                self._is_in_long_line = not feed
            complete, feed, tail = (self._tail + chunk).rpartition(b"\n")
            self._tail = tail
            if len(tail) > LONGEST_LINE:
                self._tail, self._is_in_long_line = b"", True
                self.skipped += 1
            if not feed:
                continue
            lines = complete.split(b"\n")
            records = _decode_together(complete, lines) or [one for one in map(decode, lines) if one is not None]
            self.skipped += len(lines) - len(records)
            self.newer = max([self.newer, *(one.version for one in records if one.version > VERSION)])
            if records:  # a chunk may have none: part of a long line, or only garbage
                return records
