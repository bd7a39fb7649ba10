"""Keeps a copy of a run on another machine, in a private folder that is removed at the end.

A thread looks there once a second, in one round trip if nothing has changed. Of the journal and the log it copies what
was appended. The heartbeat is written last, with its modification time, so that the journal is never older than it. If
the connection is lost, the thread connects again and continues.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConsoleError, RunNotFoundError, did_you_mean
from ..runs.liveness import LARGEST_HEARTBEAT
from ..runs.requests import LARGEST_REQUEST, request_files
from ..runs.run_directory import RunDirectory
from ..storage.disk_space import disk_full, free_bytes
from ..storage.files import open_private, read_bytes, whole_file
from .address import parse_address
from .sftp import ConnectionFailedError, Sftp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .address import Address
    from .sftp import Status

RUNS = ".local/share/tpu-console/runs"
"""The folder of all runs in the home folder of the other machine, whose TPU_CONSOLE_HOME is unknown."""

_JOURNAL, _LOG, _HEARTBEAT = "events.jsonl", "console.log", "heartbeat.json"
_SMALL = ("config.toml", "annotations.json", "history.csv", "summary.json", "report.json", "mistakes.json")
_LARGEST_SMALL = 64 << 20
_LOG_TAIL = 1 << 20  # what a reader shows of a log
_LEFT_FREE = 256 << 20  # never filled by another machine
_RUN_NAME = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9._-]{1,140}", re.ASCII)

_LOOK_S = 1.0
_LONGEST_PAUSE_S = 15.0
_SILENT_S = 8
_CLOCK_S = 3.0  # smaller differences of clocks may be the time that a look takes


def find_there(sftp: Sftp, address: Address) -> str:
    """Return the folder of a run on the other machine; raise `RunNotFoundError` if there is no such run."""
    wanted, folder = address.run, RUNS
    if "/" in wanted:
        folder, wanted = wanted.removeprefix("~/"), ""
        if _are_runs(sftp, [folder])[0]:
            return folder
    try:
        names = sftp.names(folder)
    except OSError as error:
        raise RunNotFoundError(
            f"{_shown(folder)} on {address.host} cannot be read: {error.strerror}.",
            remedy="If the runs are in another folder there, write its path: ssh://HOST/PATH or ssh://HOST/~/PATH.",
        ) from None
    if wanted in names and _are_runs(sftp, [f"{folder}/{wanted}"])[0]:
        return f"{folder}/{wanted}"
    stamped = sorted((name for name in names if _RUN_NAME.fullmatch(name) and wanted in name), reverse=True)
    are_runs = _are_runs(sftp, [f"{folder}/{name}" for name in stamped])
    runs = [name for name, is_run in zip(stamped, are_runs, strict=True) if is_run]
    if not runs and wanted:
        near = did_you_mean(wanted, filter(_RUN_NAME.fullmatch, names))
        raise RunNotFoundError(f"There is no run named '{wanted}' on {address.host}; {near}")
    if not runs:
        raise RunNotFoundError(f"There is no run in {_shown(folder)} on {address.host}.")
    if wanted and len(runs) > 1:
        remedy = f"Use one of these names: {', '.join(runs[:5])}"
        raise RunNotFoundError(f"'{wanted}' matches {len(runs)} runs on {address.host}.", remedy=remedy)
    return f"{folder}/{runs[0]}"


def _are_runs(sftp: Sftp, folders: list[str]) -> list[bool]:
    found = sftp.statuses([f"{folder}/{name}" for folder in folders for name in (_JOURNAL, "config.toml")])
    return [any(pair) for pair in zip(found[::2], found[1::2], strict=True)]


def _shown(folder: str) -> str:
    return folder if folder.startswith("/") else f"~/{folder}"


@contextmanager
def watched_run(text: str, *, asks: bool) -> Iterator[RunDirectory]:
    """Copy a run from its ``ssh://…`` address, and keep the copy up to date while the block runs.

    The first connection may ask for a password or an unknown key on the terminal if `asks` says so.

    Raises:
        RunNotFoundError: The address is invalid, or there is no such run.
        ConsoleError: The machine cannot be reached, or the run cannot be copied.
    """
    address = parse_address(text)
    sftp = Sftp(address, asks=asks)
    try:
        there = find_there(sftp, address)
        with tempfile.TemporaryDirectory(prefix="tpu-console-", ignore_cleanup_errors=True) as folder:
            name = re.sub(r"[^A-Za-z0-9._-]", "-", there.rpartition("/")[2]).lstrip(".") or "run"
            copy = _Copy(address, there, Path(folder) / name[:160], sftp)
            try:
                yield copy.run
            finally:
                copy.close()
    finally:
        sftp.close()


class _Copy:
    """Creates the copy of a run and keeps it up to date; a `Link`. Raises `ConsoleError` if that is impossible."""

    def __init__(self, address: Address, there: str, here: Path, sftp: Sftp) -> None:
        self.host, self.address = address.host, address.of_run(there)
        self.folder = f"{address.login}:{_shown(there)}"
        self.run = RunDirectory(here, link=self)
        self._address, self._there, self._here, self._sftp = address, there, here, sftp
        self._stamps: dict[str, tuple[int, int]] = {}
        self._ahead_s = 0.0
        self._problem = self._refused = ""
        self._is_lost = False
        self.run.control.mkdir(mode=0o700, parents=True)
        self._looked_at = time.monotonic()
        self._look()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tpu-console-ssh", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; requests that were not sent are lost."""
        self._stopped.set()
        self._sftp.close()
        self._thread.join(2.0)

    def looked_at(self) -> float:
        """Return the monotonic time of the newest complete look."""
        return self._looked_at

    def now(self) -> float:
        """Return the Unix time on the other machine, estimated from its heartbeat."""
        return time.time() + self._ahead_s

    def silent_s(self) -> int | None:
        """Return for how many seconds the other machine has been silent; None while the connection is fine."""
        silent_s = int(time.monotonic() - self._sftp.heard_at)
        return silent_s if self._is_lost or silent_s >= _SILENT_S else None

    def problem(self) -> str:
        """Return why the connection was lost, or what else is wrong."""
        return self._problem or self._refused

    def _work(self) -> None:
        pause_s = _LOOK_S
        while not self._stopped.wait(pause_s):
            try:
                if self._is_lost:
                    self._sftp = Sftp(self._address)
                    self._is_lost, pause_s = False, _LOOK_S
                    if self._stopped.is_set():
                        self._sftp.close()
                        return
                self._look()
                self._problem = ""
            except ConnectionFailedError as error:
                pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s) if self._is_lost else _LOOK_S
                self._is_lost, self._problem = True, error.what
                self._sftp.close()
            except (ConsoleError, OSError) as error:  # of the run there, or of the disk here
                self._problem = error.what if isinstance(error, ConsoleError) else f"{error.strerror or error}."

    def _look(self) -> None:
        """Copy what has changed since the last look, and send requests."""
        names = (_HEARTBEAT, _JOURNAL, _LOG, *_SMALL)
        found = self._sftp.statuses([self._there, *(f"{self._there}/{name}" for name in names)])
        if found[0] is None:
            raise RunNotFoundError(f"The folder {_shown(self._there)} is no longer on {self.host}.")
        files = {name: status for name, status in zip(names, found[1:], strict=True) if status and status.is_file}
        heartbeat = self._changed(_HEARTBEAT, files, LARGEST_HEARTBEAT)
        if _JOURNAL in files:
            self._append(_JOURNAL, files[_JOURNAL].size)
        if _LOG in files:
            self._append(_LOG, files[_LOG].size, _LOG_TAIL)
        for name in _SMALL:
            if data := self._changed(name, files, _LARGEST_SMALL):
                self._write(name, data, files[name])
        if heartbeat:
            self._write(_HEARTBEAT, heartbeat, files[_HEARTBEAT])
        self._send_requests()
        self._looked_at = time.monotonic()

    def _changed(self, name: str, files: dict[str, Status], limit: int) -> bytes:
        """Return a file's content if it is new; empty if it is not, or is just being replaced."""
        status = files.get(name)
        if status is None or status.size > limit or self._stamps.get(name) == (status.size, status.changed_at):
            return b""
        try:
            data = b"".join(self._sftp.read(f"{self._there}/{name}", 0, status.size + 1))
        except OSError:
            return b""
        return data if len(data) == status.size else b""

    def _write(self, name: str, data: bytes, status: Status) -> None:
        at_ns = status.changed_at * 1_000_000_000
        with whole_file(self._here / name, is_synced=False) as draft:
            draft.write_bytes(data)
            os.utime(draft, ns=(at_ns, at_ns))
        if name == _HEARTBEAT and name in self._stamps:  # it has changed since the last look
            ahead_s = status.changed_at + 1 - time.time()
            if abs(ahead_s - self._ahead_s) > _CLOCK_S:
                self._ahead_s = ahead_s
        self._stamps[name] = status.size, status.changed_at

    def _append(self, name: str, size: int, most: int | None = None) -> None:
        """Copy the end of a growing file, or its last `most` bytes; the copy has a hole before them."""
        path = self._here / name
        with open(path, "ab", opener=open_private) as file:
            at = file.tell()
            if size < at:  # replaced
                file.truncate(0)
                at = 0
        start = at if most is None else max(at, size - most)
        if start == size:
            return
        free = free_bytes(self._here)
        if free is not None and size - start > free - _LEFT_FREE:
            raise disk_full(self._here, f"the run {self.run.run_id}", size - start + _LEFT_FREE)
        with path.open("r+b") as file:
            file.seek(start)
            for part in self._sftp.read(f"{self._there}/{name}", start, size):
                file.write(part)

    def _send_requests(self) -> None:
        """Write the requests of this console into the run's folder on the other machine."""
        for path in request_files(self.run):
            control = f"{self._there}/control"
            try:
                (status,) = self._sftp.statuses([control])
                if status is None or not status.is_folder:
                    raise FileNotFoundError(2, "the run takes no requests")
                self._sftp.put(control, path.name, read_bytes(path, LARGEST_REQUEST))
                self._refused = ""
            except OSError as error:
                self._refused = f"The request cannot be written on {self.host}: {error.strerror}."
            path.unlink()
