"""Copies a run to its mirror and back, in a safe order, and checks that the mirror is this run's.

The journal is copied before the checkpoint that was there when copying began, so that a checkpoint at the mirror never
lies beyond its journal. The best model comes before it too, because a checkpoint says how good the best one is.
"""

from __future__ import annotations

import errno
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
from ..runs.checkpoint import Header, newest_checkpoint, newest_first
from ..runs.run_directory import RunDirectory, is_named, is_run
from ..storage.disk_space import disk_full, free_bytes
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


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}", re.ASCII)
_LARGEST_TEXT = 64 << 20  # of a file that is not weights or the journal
_LONGEST_FETCH_S = 86_400.0


def fetch_run(where: str, runs: Path, on_file: Callable[[str], object] = lambda _: None) -> RunDirectory:
    """Copy a run from its mirror into the folder of all runs, and return it.

    If the run is there already, it is returned as it is; it must have everything that the mirror has. `on_file` is
    called with the name of each file before it is copied.

    Raises:
        ConsoleError: There is no such run, it cannot be copied, or its folder exists and is behind the mirror.
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
            _check_has_all(run, place)
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
    """Return the folder of the newest run with a label at a mirror; None if there is none.

    Raises:
        ConsoleError: The mirror cannot be read.
    """
    try:
        names = open_place(mirror.rstrip("/")).names()
    except OSError as error:
        raise ConsoleError(f"{mirror} cannot be read: {error.strerror or error}.") from error
    found = [name for name in names if _NAME.fullmatch(name) and is_named(name, label)]
    return f"{mirror.rstrip('/')}/{max(found)}" if found else None


def _check_has_all(run: RunDirectory, place: Place) -> None:
    with place.open(JOURNAL) as theirs, open_regular(run.journal) as ours:
        same = common_bytes(theirs, ours)
    if same < (place.size(JOURNAL) or 0):
        raise ConsoleError(
            f"{place.name} has progress that the run made elsewhere, and {user_path(run.path)} is in the way.",
            remedy=f"Move that folder away to resume from the mirror, or use it: tpu-console resume {run.run_id}",
        )


def _fetch(place: Place, draft: RunDirectory, on_file: Callable[[str], object]) -> None:
    sizes = {name: size for name in (*FILES, *hub_files(place.names)) if (size := place.size(name)) is not None}
    for name, size in sizes.items():
        if name.endswith((".toml", ".json", ".csv")) and size > _LARGEST_TEXT:
            raise ConsoleError(f"{place.name}/{name} has {size:,} bytes, more than such a file ever has.")
    sizes[JOURNAL] = place.size(JOURNAL) or 0
    free = free_bytes(draft.path)
    if free is not None and sum(sizes.values()) > free:
        raise disk_full(draft.path.parent.parent, f"the run {draft.run_id}", sum(sizes.values()), "Free space there.")
    _fetch_checkpoint(place, draft, on_file)
    for name, size in sizes.items():
        on_file(name)
        _download(place, name, size, inside(draft.path, name))


def _fetch_checkpoint(place: Place, draft: RunDirectory, on_file: Callable[[str], object]) -> None:
    """Copy the newest whole checkpoint, if there is one."""
    for _, leaf in newest_first(place.names(CHECKPOINTS)):
        name = f"{CHECKPOINTS}/{leaf}"
        on_file(name)
        _download(place, name, place.size(name) or 0, inside(draft.path, name))
        if newest_checkpoint(draft) is not None:
            return
        inside(draft.path, name).unlink()


def _download(place: Place, name: str, size: int, target: Path) -> None:
    """Copy a file, and never more than its size."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with place.open(name) as source, open(target, "wb", opener=open_private) as file:
        while size and (part := source.read(min(size, _PART))):
            file.write(part)
            size -= len(part)
    if size:
        raise ConsoleError(f"{place.name}/{name} was cut off while it was copied.", remedy="Try again.")
