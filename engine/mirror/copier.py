"""Copies a run to its mirror and back, in a safe order, and checks that the mirror is this run's.

The journal is copied before the checkpoint that was there when copying began, so that a checkpoint at the mirror never
lies beyond its journal. The best model comes before it too, because a checkpoint says how good the best one is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..errors import ConsoleError, RunNotFoundError
from ..runs.checkpoint import newest_checkpoint, newest_first
from ..runs.run_directory import RunDirectory, is_named, is_run
from ..storage.disk_space import disk_full
from ..storage.files import DRAFT, inside, is_disk_full, make_private_folder, open_private, open_regular
from ..storage.paths import user_path
from .places import MARKER, Folder, Place, open_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


JOURNAL = "events.jsonl"
CHECKPOINTS = "checkpoints"
FILES = (
    "config.toml",
    "inputs.json",
    "checkpoints/best.keras",
    "checkpoints/last.keras",
    "model.keras",
    "history.csv",
    "summary.json",
    "report.json",
    "mistakes.json",
)
"""The files of a run that are copied, besides its journal, its newest checkpoints and the SavedModel in ``hub``."""

_HUB = re.compile(r"(saved_model|fingerprint|keras_metadata)\.pb|variables/variables\.[\w.-]+|assets/[\w.-]+", re.ASCII)
_PART = 1 << 22


class MirrorTakenError(Exception):
    """The mirror holds something that this run must not overwrite; the text says what."""


def hub_files(names: Callable[[str], list[str]]) -> list[str]:
    """Return the files of the SavedModel of a run; `names` returns the names in one of its folders."""
    found = [*names("hub"), *(f"{part}/{name}" for part in ("variables", "assets") for name in names(f"hub/{part}"))]
    return sorted(f"hub/{name}" for name in found if _HUB.fullmatch(name))


def common_bytes(one: IO[bytes], other: IO[bytes]) -> int:
    """Return how many bytes two files have in common from their beginning."""
    same = 0
    while part := one.read(_PART):
        there = other.read(len(part))
        if part != there:
            return same + next((i for i, (a, b) in enumerate(zip(part, there, strict=False)) if a != b), len(there))
        same += len(part)
    return same


class Copier:
    """Copies what has changed in a run's folder to the mirror.

    `epoch` is the number of epochs done at the newest checkpoint that was copied, and `moved_at` the monotonic time at
    which the last part of a file was copied.
    """

    def __init__(self, run: RunDirectory, place: Place) -> None:
        self.epoch, self.moved_at = 0, time.monotonic()
        self._run = run
        self._place = place
        self._copied: dict[str, tuple[int, int, int]] = {}
        self._checkpoint = ""
        self._journal_at: int | None = None  # bytes at the mirror; None until it is known whose mirror it is

    def left(self) -> list[str]:
        """Return the files, except the journal, that have changed since they were copied."""
        changed = [name for name in [*FILES, *hub_files(self._names)] if self._stamp(name) != self._copied.get(name)]
        newest = newest_first(self._names(CHECKPOINTS))
        if newest and newest[0][1] != self._checkpoint:
            changed.append(f"{CHECKPOINTS}/{newest[0][1]}")
        return changed

    def copy(self) -> bool:
        """Copy what has changed; return whether a checkpoint was copied. Raises `MirrorTakenError` or `OSError`."""
        changed = self.left()
        newest = newest_checkpoint(self._run) if changed and changed[-1].endswith(".ckpt") else None
        self._copy_journal()
        for name in changed:
            if name in FILES or name.startswith("hub/"):
                self._copy(name)
        if newest is None or newest[0].name == self._checkpoint or not self._copy(f"{CHECKPOINTS}/{newest[0].name}"):
            return False  # or a newer one has replaced it
        self._checkpoint, self.epoch = newest[0].name, newest[1].epoch
        there = [name for _, name in newest_first(self._place.names(CHECKPOINTS))]
        # Those before it are of a course that the run has left.
        kept = there[there.index(self._checkpoint) :][:2] if self._checkpoint in there else there
        for name in set(there) - set(kept):
            self._place.remove(f"{CHECKPOINTS}/{name}")
        return True

    def _parts(self, file: IO[bytes]) -> Iterator[bytes]:
        while part := file.read(_PART):
            yield part
            self.moved_at = time.monotonic()

    def _copy(self, name: str) -> bool:
        """Copy a file; return False if it no longer exists."""
        try:
            file = open_regular(inside(self._run.path, name))
        except FileNotFoundError:
            return False
        with file:
            status = os.fstat(file.fileno())
            self._place.put(name, self._parts(file))
        self._copied[name] = (status.st_size, status.st_mtime_ns, status.st_ino)
        return True

    def _copy_journal(self) -> None:
        at = self._journal_at
        if at is None or (self._place.size(JOURNAL) or 0) != at:
            at = self._claim()
        self._journal_at = None  # until all of it is there
        with open_regular(self._run.journal) as file:
            with suppress(OSError):
                os.fsync(file.fileno())  # after a power failure, the mirror must not have more than the run
            if file.seek(0, os.SEEK_END) > at:
                place = self._place
                write, begin = (place.append, at) if at and isinstance(place, Folder) else (place.put, 0)
                file.seek(begin)
                write(JOURNAL, self._parts(file))
                at = file.tell()
        self._journal_at = at

    def _claim(self) -> int:
        """Check whose mirror it is, and mark it; return how much of the journal it has."""
        self._place.prepare()
        size = self._place.size(JOURNAL) or 0
        if size:
            with self._place.open(JOURNAL) as theirs, open_regular(self._run.journal) as ours:
                same = common_bytes(theirs, ours)
                ours.seek(0)
                first = len(ours.readline(_PART))
            if same < min(size, first):
                raise MirrorTakenError(f"{self._place.name} has a copy of another run")
            if same < size:
                raise MirrorTakenError(f"{self._place.name} has progress that the run made elsewhere")
        else:
            self._copied, self._checkpoint = {}, ""  # the mirror is new, or somebody emptied it
        if self._place.size(MARKER) is None:
            self._place.put(MARKER, [json.dumps({"v": 1, "run": self._run.run_id}).encode()])
        for folder in ("", CHECKPOINTS):
            for name in self._place.names(folder):
                if name.startswith(DRAFT):
                    self._place.remove(f"{folder}/{name}".lstrip("/"))
        return size

    def _stamp(self, name: str) -> tuple[int, int, int] | None:
        try:
            status = inside(self._run.path, name).lstat()
        except FileNotFoundError:
            return None
        return status.st_size, status.st_mtime_ns, status.st_ino

    def _names(self, folder: str) -> list[str]:
        with suppress(OSError):
            return [entry.name for entry in inside(self._run.path, f"{folder}/").iterdir()]
        return []


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}", re.ASCII)
_LONGEST_FETCH_S = 86_400.0


def fetch_run(where: str, runs: Path, on_file: Callable[[str], object] = lambda _: None) -> RunDirectory:
    """Copy a run from its mirror into the folder of all runs, and return it.

    A run that is there already is returned as it is, unless it is behind the mirror. `on_file` is called with the name
    of each file before it is copied.
    """
    where = where.rstrip("/")
    name = where.rpartition("/")[2]
    if not _NAME.fullmatch(name):
        raise RunNotFoundError(f"{where} is not a copy of a run.", remedy="Name its folder: MIRROR/RUN.")
    run = RunDirectory(runs / name)
    try:
        place = open_place(where)
        if not place.size(JOURNAL):
            raise RunNotFoundError(f"There is no copy of a run in {where}.")
        if is_run(run.path):
            with place.open(JOURNAL) as theirs, open_regular(run.journal) as ours:
                if common_bytes(theirs, ours) < (place.size(JOURNAL) or 0):
                    raise ConsoleError(
                        f"{where} has progress that the run made elsewhere, and {user_path(run.path)} is in the way.",
                        remedy=f"Move that folder away, or use it: tpu-console resume {run.run_id}",
                    )
            return run
        make_private_folder(runs)
        for old in runs.glob(".fetch-*"):  # of a process that was killed
            if time.time() - old.stat().st_mtime > _LONGEST_FETCH_S:
                shutil.rmtree(old, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=runs, ignore_cleanup_errors=True) as folder:
            draft = RunDirectory(Path(folder) / name)
            for new in (draft.path, draft.control, draft.checkpoints):
                new.mkdir(mode=0o700)
            _fetch(place, draft, on_file)
            draft.path.rename(run.path)
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(runs, f"the run {name}", remedy="Free space there, and try again.") from error
        raise ConsoleError(f"The run cannot be copied from {where}: {error.strerror or error}.") from error
    return run


def newest_named(mirror: str, label: str) -> str | None:
    """Return the folder of the newest run with a label at a mirror; None if there is none."""
    try:
        names = open_place(mirror.rstrip("/")).names()
    except OSError as error:
        raise ConsoleError(f"{mirror} cannot be read: {error.strerror or error}.") from error
    found = [name for name in names if _NAME.fullmatch(name) and is_named(name, label)]
    return f"{mirror.rstrip('/')}/{max(found)}" if found else None


def _fetch(place: Place, draft: RunDirectory, on_file: Callable[[str], object]) -> None:
    """Copy a run into a draft of its folder, with the newest whole checkpoint, if there is one."""

    def fetch(name: str, size: int) -> None:
        on_file(name)
        target = inside(draft.path, name)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with place.open(name) as source, open(target, "wb", opener=open_private) as file:
            while size and (part := source.read(min(size, _PART))):
                file.write(part)
                size -= len(part)
        if size:
            raise ConsoleError(f"{place.name}/{name} was cut off while it was copied.", remedy="Try again.")

    for _, leaf in newest_first(place.names(CHECKPOINTS)):
        name = f"{CHECKPOINTS}/{leaf}"
        fetch(name, place.size(name) or 0)
        if newest_checkpoint(draft) is not None:
            break
        inside(draft.path, name).unlink()
    for name in (*FILES, *hub_files(place.names), JOURNAL):
        if (size := place.size(name)) is not None:
            fetch(name, size)
