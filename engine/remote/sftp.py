"""A client for SFTP, version 3 (draft-ietf-secsh-filexfer-02), on the pipes of an ``ssh`` process.

Requests are sent many at a time, because each answer takes a round trip. Nothing that the server says is trusted:
answers that are too long, too short or not asked for end the connection.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from ..errors import ConsoleError
from ..sanitize import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .address import Address

_INIT, _VERSION, _OPEN, _CLOSE, _READ, _WRITE, _LSTAT = range(1, 8)
_OPENDIR, _READDIR, _REMOVE, _RENAME = 11, 12, 13, 18
_STATUS, _HANDLE, _DATA, _NAME, _ATTRIBUTES = range(101, 106)
_OK, _EOF = 0, 1
_ERRORS = {2: errno.ENOENT, 3: errno.EACCES}
_READING, _CREATING = 0x01, 0x02 | 0x08 | 0x20  # write, create, only if it does not exist
_HAS_SIZE, _HAS_OWNER, _HAS_MODE, _HAS_TIMES, _HAS_MORE = 1, 2, 4, 8, 0x80000000

_LARGEST_PACKET = 1 << 20
_PART = 32 << 10  # every server reads as much
_MOST_REQUESTS = 32  # sent before an answer is read, so that neither side ever waits for the other to read
_WINDOW = _MOST_REQUESTS * _PART
_MOST_NAMES = 100_000
_LAST_WORDS = 8 << 10
_END_S = 2.0


class ConnectionFailedError(ConsoleError):
    """There is no connection, or it has ended."""


@dataclass(frozen=True, slots=True)
class Status:
    """The attributes of a path."""

    size: int
    mode: int
    changed_at: int  # Unix time in seconds on its clock

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.mode)


class Sftp:
    """A connection to a machine's SFTP server; not for several threads, except `close`.

    ``ssh`` may ask for a password or an unknown key on the terminal if `asks` says so. `heard_at` is the monotonic time
    of the newest answer.

    Raises:
        ConnectionFailedError: It cannot be reached, or refuses the login.
    """

    def __init__(self, address: Address, *, asks: bool = False) -> None:
        self._address = address
        self._number = 0
        self.heard_at = time.monotonic()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  as long as the process
        try:
            # Without the terminal, ssh can neither ask there nor be interrupted from there.
            self._process = subprocess.Popen(
                address.command(asks=asks),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=not asks,
            )
        except FileNotFoundError:
            raise ConnectionFailedError("The program ssh is not installed here.") from None
        self._requests = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        try:
            self._send(struct.pack(">IBI", 5, _INIT, 3))
            if self._receive()[0] != _VERSION:
                raise self._nonsense()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; a call in another thread fails then."""
        self._process.terminate()

    def statuses(self, paths: list[str]) -> list[Status | None]:
        """Return the status of each path, None if it does not exist; links are not followed."""
        found: list[Status | None] = []
        for at in range(0, len(paths), _MOST_REQUESTS):
            replies = self._ask(*((_LSTAT, _text(path)) for path in paths[at : at + _MOST_REQUESTS]))
            found += [_status(fields) if kind == _ATTRIBUTES else None for kind, fields in replies]
        return found

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, without those that are not UTF-8.

        Raises:
            OSError: It cannot be read.
        """
        handle, found = self._open(_OPENDIR, _text(folder)), list[str]()
        while len(found) < _MOST_NAMES:
            ((kind, fields),) = self._ask((_READDIR, _text(handle)))
            count = fields.number() if kind == _NAME else 0
            if not count:
                break
            for _ in range(count):
                name = fields.text()
                fields.text()
                _status(fields)
                with suppress(UnicodeDecodeError):
                    found.append(name.decode())
        self._ask((_CLOSE, _text(handle)))
        return found

    def read(self, path: str, start: int, end: int) -> Iterator[bytes]:
        """Yield a part of a file, which may end earlier; raise `OSError` if it cannot be opened."""
        handle = self._open(_OPEN, _text(path) + struct.pack(">II", _READING, 0))
        is_over = False
        while start < end and not is_over:
            parts = [(at, min(_PART, end - at)) for at in range(start, min(end, start + _WINDOW), _PART)]
            replies = self._ask(*((_READ, _text(handle) + struct.pack(">QI", *part)) for part in parts))
            for (at, asked), (kind, fields) in zip(parts, replies, strict=True):
                data = fields.text() if kind == _DATA else b""
                if len(data) > asked:
                    raise self._nonsense()
                is_over = not data
                start = at + len(data)
                yield data
                if len(data) < asked:
                    break  # the server reads less at a time, or this is the end
        self._ask((_CLOSE, _text(handle)))

    def put(self, folder: str, name: str, data: bytes) -> None:
        """Write a small file that does not exist yet; it appears whole.

        Raises:
            OSError: It cannot be written.
        """
        draft, path = f"{folder}/.draft-ssh-{name}", f"{folder}/{name}"
        self._ask((_REMOVE, _text(draft)))  # of a connection that was lost
        mode = struct.pack(">III", _CREATING, _HAS_MODE, 0o600)
        handle = self._open(_OPEN, _text(draft) + mode)
        written, _ = self._ask((_WRITE, _text(handle) + struct.pack(">Q", 0) + _text(data)), (_CLOSE, _text(handle)))
        _require_ok(*written)
        ((kind, fields),) = self._ask((_RENAME, _text(draft) + _text(path)))
        if self.statuses([path]) == [None]:
            _require_ok(kind, fields)

    def _open(self, kind: int, request: bytes) -> bytes:
        (reply,) = self._ask((kind, request))
        if reply[0] == _HANDLE:
            return reply[1].text()
        _require_ok(*reply)
        raise self._nonsense()

    def _ask(self, *requests: tuple[int, bytes]) -> list[tuple[int, _Fields]]:
        """Send requests and return their answers in the same order."""
        first = self._number
        self._number += len(requests)
        numbers = range(first, self._number)
        self._send(
            b"".join(
                struct.pack(">IBI", len(body) + 5, kind, number) + body
                for number, (kind, body) in zip(numbers, requests, strict=True)
            )
        )
        replies: dict[int, tuple[int, _Fields]] = {}
        while len(replies) < len(requests):
            kind, fields = self._receive()
            number = fields.number()
            if number not in numbers or number in replies:
                raise self._nonsense()
            replies[number] = kind, fields
        return [replies[number] for number in numbers]

    def _send(self, data: bytes) -> None:
        try:
            self._requests.write(data)
            self._requests.flush()
        except (OSError, ValueError):
            raise self._failed() from None

    def _receive(self) -> tuple[int, _Fields]:
        length = int.from_bytes(self._take(4), "big")
        if not 5 <= length <= _LARGEST_PACKET:
            raise self._nonsense()
        body = self._take(length)
        self.heard_at = time.monotonic()
        return body[0], _Fields(body[1:])

    def _take(self, size: int) -> bytes:
        data = self._answers.read(size)
        if len(data) < size:
            raise self._failed()
        return data

    def _nonsense(self) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"{self._address.host} does not answer as an SFTP server.",
            why="A login script there may print something.",
            remedy=f"This prints nothing if all is well: {self._address.shell_command} true",
        )

    def _failed(self) -> ConnectionFailedError:
        """Return the error that says why ssh has ended, by what it wrote to standard error."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LAST_WORDS))
        said = printable_lines_of(self._errors.read())
        host, try_it = self._address.host, f"See what this says: {self._address.shell_command}"
        for sign, what in _REASONS.items():
            if any(sign in line for line in said):
                return ConnectionFailedError(what.format(host), remedy=try_it)
        last = f": {said[-1].removeprefix('ssh: ').rstrip('.')}" if said else ""
        return ConnectionFailedError(f"{host} cannot be reached{last}.", remedy=try_it)


_REASONS = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "The key of {} has changed, so it may be another machine.",
    "Host key verification failed": "The key of {} is not known here yet.",
    "Could not resolve hostname": "There is no machine named {}.",
    "Permission denied": "{} refuses the login.",
    "Too many authentication failures": "{} refuses the login.",
    "Connection refused": "{} refuses the connection: no SSH server listens there.",
    "subsystem request failed": "{} has no SFTP server, and watching a run needs one.",
}


class _Fields:
    """The fields of an answer, one after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def number(self, size: int = 4) -> int:
        """Return the next number of 4 or 8 bytes."""
        return int.from_bytes(self._next(size), "big")

    def text(self) -> bytes:
        """Return the next text or data."""
        return self._next(self.number())

    def _next(self, size: int) -> bytes:
        self._at += size
        if self._at > len(self._body):
            raise ConnectionFailedError("The SFTP server sent a damaged answer.")
        return self._body[self._at - size : self._at]


def printable_lines_of(text: bytes) -> list[str]:
    """Return the lines of a program's message that are not empty, safe to show."""
    return [shown for line in text.decode(errors="replace").splitlines() if (shown := printable(line).strip())]


def _text(value: str | bytes) -> bytes:
    data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return struct.pack(">I", len(data)) + data


def _status(fields: _Fields) -> Status:
    flags = fields.number()
    size = fields.number(8) if flags & _HAS_SIZE else 0
    if flags & _HAS_OWNER:
        fields.number(8)
    mode = fields.number() if flags & _HAS_MODE else 0
    changed_at = 0
    if flags & _HAS_TIMES:
        fields.number()
        changed_at = fields.number()
    for _ in range(2 * fields.number() if flags & _HAS_MORE else 0):
        fields.text()
    return Status(size, mode, changed_at)


def _require_ok(kind: int, fields: _Fields) -> None:
    """Raise the `OSError` that an answer stands for, if it is one."""
    if kind != _STATUS:
        return
    code = fields.number()
    if code != _OK:
        number = _ERRORS.get(code, errno.EIO)
        raise OSError(number, os.strerror(number))
