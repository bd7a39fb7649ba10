"""What to do about a full disk: space that is reserved in advance, and the sentence that says so."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import DiskFullError
from .paths import user_path

if TYPE_CHECKING:
    from pathlib import Path

RESERVE_NAME = "reserved-space"
RESERVE_BYTES = 256 << 10
"""Space set aside for a run from its start: the last event, and two minutes of progress on a disk that is full."""

_BLOCK = 4096  # what file systems allocate; less would free nothing
_WITHOUT_FALLOCATE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class Reserve:
    """Disk space set aside in a file without meaning, to be given back when the disk is full.

    Args:
        path: The file; readable by the user only.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def size(self) -> int:
        """Bytes that are set aside now."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def grow(self, size: int) -> None:
        """Set aside this many bytes, unless there are as many already.

        Raises:
            OSError: There is no room, or the folder cannot be written; what was set aside before still is.
        """
        before = self.size
        if before >= size:
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _allocate(descriptor, before, size)
        except OSError:
            self.shrink_to(before)
            raise
        finally:
            os.close(descriptor)

    def shrink_to(self, size: int) -> None:
        """Give space back until at most this many bytes are set aside; with 0 the file is removed."""
        with suppress(OSError):
            if size <= 0:
                self._path.unlink()
            elif size < self.size:
                os.truncate(self._path, size // _BLOCK * _BLOCK)


def _allocate(descriptor: int, start: int, end: int) -> None:
    """Give a file real blocks, not a hole."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, end)
        except OSError as error:
            if error.errno not in _WITHOUT_FALLOCATE:
                raise
        else:
            return
    os.lseek(descriptor, start, os.SEEK_SET)
    while start < end:
        # Random, because a file system that compresses would store zeros in no space at all.
        start += os.write(descriptor, os.urandom(min(end - start, 1 << 16)))
    os.fsync(descriptor)


def free_bytes(folder: Path) -> int | None:
    """Return the free space of the disk that a folder is on; None if the system does not say."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def disk_full(folder: Path, what: str, needed: int | None = None, remedy: str = "") -> DiskFullError:
    """Make the error that says that a disk is full, where, and how much room is missing.

    Args:
        folder: The folder that was to be written to.
        what: What was not written, as the subject of a sentence: ``the model``.
        needed: Bytes that it takes; None if unknown.
        remedy: What to do next.
    """
    free = free_bytes(folder)
    sizes = [f"{size_text(free)} are free there"] if free is not None else []
    sizes += [f"{size_text(needed)} are needed"] if needed else []
    return DiskFullError(
        f"The disk is full: {what} could not be written to {user_path(folder)}.",
        why=f"{', '.join(sizes)}." if sizes else "",
        remedy=remedy or "Free space on that disk and start again.",
    )


def size_text(count: float) -> str:
    """Write a number of bytes for a person."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"
