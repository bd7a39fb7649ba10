"""Brings a run back from its mirror, for a machine that does not have it."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConsoleError, RunNotFoundError
from ..runs.checkpoint import newest_checkpoint, newest_first
from ..runs.run_directory import RunDirectory, is_named, is_run
from ..storage.disk_space import disk_full, free_bytes
from ..storage.files import is_disk_full, make_private_folder, open_private, open_regular
from ..storage.paths import user_path
from .copier import CHECKPOINTS, FILES, JOURNAL, common_bytes, hub_files
from .places import Place, open_place

if TYPE_CHECKING:
    from collections.abc import Callable


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}", re.ASCII)
_LARGEST_TEXT = 64 << 20  # of a file that is not weights or the journal
_LONGEST_FETCH_S = 86_400.0
_PART = 1 << 22


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
        _download(place, name, size, draft.path / name)


def _fetch_checkpoint(place: Place, draft: RunDirectory, on_file: Callable[[str], object]) -> None:
    """Copy the newest whole checkpoint, if there is one."""
    for _, leaf in newest_first(place.names(CHECKPOINTS)):
        name = f"{CHECKPOINTS}/{leaf}"
        on_file(name)
        _download(place, name, place.size(name) or 0, draft.path / name)
        if newest_checkpoint(draft) is not None:
            return
        (draft.path / name).unlink()


def _download(place: Place, name: str, size: int, target: Path) -> None:
    """Copy a file, and never more than its size."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with place.open(name) as source, open(target, "wb", opener=open_private) as file:
        while size and (part := source.read(min(size, _PART))):
            file.write(part)
            size -= len(part)
    if size:
        raise ConsoleError(f"{place.name}/{name} was cut off while it was copied.", remedy="Try again.")
