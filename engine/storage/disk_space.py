"""Full disks: space reserved in advance, the error message, and caches that are kept small."""

import os
from contextlib import suppress
from pathlib import Path

from ..errors import DiskFullError
from .files import open_private
from .paths import cache_folder, user_path

RESERVE_NAME = "reserved-space"
RESERVE_BYTES = 256 << 10  # space reserved for a run from its start: enough for the last event and the epochs before it


def reserve(path: Path) -> None:
    """Take space of a run's disk with a private file, which is removed for the run's last events on a full disk."""
    with open(path, "wb", opener=open_private) as file:
        file.write(os.urandom(RESERVE_BYTES))  # a compressing file system would store zeros in no space


def free_bytes(folder: Path) -> int | None:
    """Return the free space of a folder's disk; None if unknown."""
    import shutil

    with suppress(OSError):
        for place in (folder, *folder.parents):
            with suppress(FileNotFoundError):
                return shutil.disk_usage(place).free
    return None


def disk_full(folder: Path, what: str, needed: int | None = None, remedy: str = "") -> DiskFullError:
    """Return the error that says on which disk `what`, as the subject of a sentence, could not be written."""
    free = free_bytes(folder)
    sizes = [f"{size_text(free)} are free there"] if free is not None else []
    sizes += [f"{size_text(needed)} are needed"] if needed else []
    what = f"The disk is full: {what} could not be written to {user_path(folder)}."
    remedy = remedy or "Free space on that disk and start again."
    return DiskFullError(what, why=f"{', '.join(sizes)}." if sizes else "", remedy=remedy)


def check_space(folder: Path, needed: int, what: str, remedy: str = "") -> None:
    """Raise `DiskFullError` before writing what will not fit on the disk; `needed` is 0 if it is unknown."""
    free = free_bytes(folder)
    if free is not None and free < needed:
        raise disk_full(folder, what, needed, remedy)


def size_text(count: float) -> str:
    """Write a number of bytes, such as ``136 kB`` or ``1.2 GB`` (powers of 1000)."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.{0 if units[0] == 'B' or count >= 99.95 else 1}f} {units[0]}"


def gib(count: float) -> str:
    """Write bytes of HBM in powers of 1024, as data sheets do, such as ``15.75 GiB`` or ``30.3 MiB``."""
    return f"{count / 2**30:,.2f} GiB" if count >= 0.1 * 2**30 else f"{count / 2**20:.1f} MiB"


COMPILED = "compiled"  # the entry of the cache folder with what JAX has compiled, which can be compiled again


def compiled_files() -> list[Path]:
    """Return the files with programs that JAX has compiled."""
    return [path for path in (cache_folder() / COMPILED).rglob("*") if path.is_file()]


def make_room(files: list[Path], most_bytes: int, size: int = 0) -> None:
    """Remove the least recently used files until one more of a size fits into `most_bytes`."""
    known = []
    for file in files:
        with suppress(FileNotFoundError):  # another process makes room as well
            status = file.stat()
            known.append((status.st_mtime_ns, status.st_size, file))
    total = size + sum(taken for _, taken, _ in known)
    for _, taken, file in sorted(known):
        if total <= most_bytes:
            return
        with suppress(OSError):  # it may be another user's
            file.unlink(missing_ok=True)
            total -= taken
