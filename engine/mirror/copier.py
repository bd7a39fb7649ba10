"""Copies a run to its mirror, in a safe order, and checks that the mirror is this run's.

The journal is copied before the checkpoint that was there when copying began, so that a checkpoint at the mirror never
lies beyond its journal. The best model comes before it too, because a checkpoint says how good the best one is.
"""

from __future__ import annotations

import errno
import json
import os
import re
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from ..runs.checkpoint import Header, newest_checkpoint, newest_first
from ..storage.files import DRAFT, inside, open_regular
from .places import MARKER, Folder, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ..runs.run_directory import RunDirectory

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


def parts_of(file: IO[bytes], on_part: Callable[[], object]) -> Iterator[bytes]:
    """Yield the rest of a file in parts of a few MiB; `on_part` is called after each."""
    while part := file.read(_PART):
        yield part
        on_part()


class Copier:
    """Copies what has changed in a run's folder to the mirror; `on_part` is called after each part of a file.

    `epoch` is the number of epochs done at the newest checkpoint that was copied.
    """

    def __init__(self, run: RunDirectory, place: Place, on_part: Callable[[], object] = lambda: None) -> None:
        self.epoch = 0
        self._run = run
        self._place = place
        self._on_part = on_part
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
        """Copy what has changed; return whether a checkpoint was copied.

        Raises:
            MirrorTakenError: The mirror is another run's, or holds progress that this one does not have.
            OSError: The mirror cannot be written.
        """
        changed = self.left()
        newest = newest_checkpoint(self._run) if changed and changed[-1].endswith(".ckpt") else None
        self._copy_journal()
        for name in changed:
            if name in FILES or name.startswith("hub/"):
                self._copy(name)
        if newest is None or newest[0].name == self._checkpoint:
            return False
        return self._copy_checkpoint(*newest)

    def _copy(self, name: str) -> bool:
        """Copy a file; return False if it no longer exists."""
        try:
            file = open_regular(inside(self._run.path, name))
        except FileNotFoundError:
            return False
        with file:
            stamp = _stamp(os.fstat(file.fileno()))
            self._place.put(name, parts_of(file, self._on_part))
        self._copied[name] = stamp
        return True

    def _copy_checkpoint(self, path: Path, header: Header) -> bool:
        """Copy a checkpoint, and remove all but it and the one before from the mirror."""
        if not self._copy(f"{CHECKPOINTS}/{path.name}"):
            return False  # a newer one has replaced it
        self._checkpoint, self.epoch = path.name, header.epoch
        there = [name for _, name in newest_first(self._place.names(CHECKPOINTS))]
        kept = there[there.index(path.name) :][:2] if path.name in there else there
        for name in set(there) - set(kept):
            self._place.remove(f"{CHECKPOINTS}/{name}")
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
                write(JOURNAL, parts_of(file, self._on_part))
                at = file.tell()
        self._journal_at = at

    def _claim(self) -> int:
        """Check whose mirror it is, and mark it; return how much of the journal it has.

        Raises:
            MirrorTakenError: It is another run's, or the run was resumed from it elsewhere.
        """
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
            return _stamp(inside(self._run.path, name).lstat())
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                raise
            return None

    def _names(self, folder: str) -> list[str]:
        with suppress(OSError):
            return [entry.name for entry in inside(self._run.path, f"{folder}/").iterdir()]
        return []


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ino
