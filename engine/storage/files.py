"""Safe reading and writing, also on full disks: files are written whole or not at all, only regular ones are read.

A run's folder is untrusted and its disk may be full, so every module uses these functions. A path inside such
a folder comes from `inside`, or from `RunDirectory`, which uses it: no folder on the way is a link. The functions here
follow no link either, and write to no device, pipe or file with a second name. The folder itself may be reached by
links: what a user keeps on another disk is found. Files that the user names may be links: ``follows_links=True``.
"""

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..errors import DiskFullError
from .paths import cache_folder, user_path

DRAFT = ".draft-"  # how the names of drafts begin
_LONGEST_DRAFT_S = 60.0
_MOST_ENTRIES = 10_000
_FULL = {errno.ENOSPC, errno.EDQUOT}
_CAREFULLY = os.O_NONBLOCK | os.O_CLOEXEC


class NotAFileError(OSError):
    """The path is not a regular file but a pipe, for example; reading it could block forever."""


class LinkError(NotAFileError):
    """The path is a link, or leads through one; its target may be any file of the user."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(errno.ELOOP, "it is a link, which is not followed", str(path))


class TooLargeError(OSError):
    """The file is larger than this program accepts."""


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error, also of TensorFlow or HDF5, means that the disk or the user's quota is full."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL
    return any(os.strerror(number) in str(error) for number in _FULL)


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder from anybody, whether it exists or not; a folder's name ends in ``/``.

    Raises `LinkError` if a folder on the way is a link.
    """
    end = -1
    while (end := name.find("/", end + 1)) > 0:
        if os.path.islink(f"{folder}/{name[:end]}"):  # noqa: PTH114  each look at a run does this
            raise LinkError(f"{folder}/{name[:end]}")
    return folder / name


def require_real(folder: Path) -> None:
    """Raise `LinkError` if a folder is a link, for what writes into the folder of a run that is there already."""
    if folder.is_symlink():
        raise LinkError(folder)


def require_plain(folder: Path, names: Iterable[str], *, are_written: bool = True) -> None:
    """Raise `NotAFileError` for a link, a device or the like in a folder from anybody, before a library follows it.

    The names are those of files, and of folders with all that is in them. For a library that also writes, a file with a
    second name is refused, too.
    """
    for name in names:
        path = f"{folder}/{name.rstrip('/')}"
        inner = (f"{place}/{entry}" for place, folders, files in os.walk(path) for entry in (*folders, *files))
        for entry in (path, *inner):
            with suppress(FileNotFoundError):
                status = os.lstat(entry)
                if not stat.S_ISDIR(status.st_mode):
                    _require_regular(status.st_mode, entry)
                    if are_written:
                        _require_single(status, entry)


def open_regular(path: str | Path, *, follows_links: bool = False) -> BufferedReader:
    """Open a file for reading, never blocking on a pipe; raise `NotAFileError` if it is not a regular one."""
    # Checked before it is opened: opening a pipe unblocks its writer, and opening a device may do anything.
    _require_regular(os.stat(path, follow_symlinks=follows_links).st_mode, path)  # noqa: PTH116  for each file of a list
    # O_NONBLOCK has no effect on regular files; without it, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | _CAREFULLY | (0 if follows_links else os.O_NOFOLLOW))
    try:
        _require_regular(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _require_regular(mode: int, path: str | Path) -> None:
    if stat.S_ISLNK(mode):
        raise LinkError(path)
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device"
        raise NotAFileError(errno.EINVAL, f"it is {what}, not a regular file", str(path))


def _require_single(status: os.stat_result, path: str | Path) -> None:
    if status.st_nlink > 1:
        raise NotAFileError(errno.EMLINK, "it is a hard link, so another file would change too", str(path))


def read_bytes(path: str | Path, limit: int, *, follows_links: bool = False) -> bytes:
    """Read a small regular file; raises `NotAFileError`, or `TooLargeError` if it is larger than `limit`."""
    with open_regular(path, follows_links=follows_links) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise TooLargeError(errno.EFBIG, f"larger than {limit:,} bytes", str(path))
    return content


def read_text(path: str | Path, limit: int, *, follows_links: bool = False) -> str:
    """Read a small regular file of UTF-8 text; raises the errors of `read_bytes`, or `UnicodeDecodeError`."""
    return read_bytes(path, limit, follows_links=follows_links).decode("utf-8")


def read_json(path: str | Path, limit: int, *, follows_links: bool = False) -> Any:
    """Read a small regular file of JSON; raises the errors of `read_bytes`, or `ValueError`."""
    import json  # not for the names of runs

    try:
        return json.loads(read_bytes(path, limit, follows_links=follows_links))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def folder_size(folder: str | Path) -> int:
    """Return the bytes of the files under a folder, without following links; of about 10,000 at most."""
    total, count, folders = 0, 0, [str(folder)]
    while folders and count < _MOST_ENTRIES:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents, for the user only (0700), whatever the umask is, or raise `OSError`."""
    missing = takewhile(lambda folder: not folder.exists(), (path, *path.parents))
    for folder in reversed([*missing]):
        with suppress(FileExistsError):  # another process was faster
            folder.mkdir(mode=0o700)
            folder.chmod(0o700)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


@contextmanager
def whole_file(path: Path, *, private: bool = True, is_synced: bool = True) -> Iterator[Path]:
    """Write a file whole or not at all: the body writes a draft, which then replaces it; an `OSError` changes nothing.

    The draft is synced before it is renamed, so that after a power failure the file is the old or the new one; a cache
    that detects damage can do without, as syncing takes seconds on a busy disk. The draft has the file's extension,
    because Keras requires it. A private file is readable by the user only (0600), whatever the umask is.
    """
    draft = path.with_name(f"{DRAFT}{os.getpid()}-{path.name}")
    draft.unlink(missing_ok=True)  # in somebody else's run, it may be a link to a file of the user
    try:
        yield draft
        if private:
            draft.chmod(0o600)
        if is_synced:
            sync(draft)
        draft.replace(path)
        with suppress(OSError):  # some network file systems cannot sync a folder
            if is_synced:
                sync(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink()


def write_whole(path: Path, content: str | bytes, *, is_synced: bool = True) -> None:
    """Write a small file whole or not at all, for the user only; raises `OSError` if it cannot be written."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    with whole_file(path, is_synced=is_synced) as draft, open(draft, "wb", opener=open_private) as file:
        file.write(data)


def open_private(path: str | Path, flags: int) -> int:
    """Open a file for writing as the built-in `open` does, for the user only (0600), even if others could read it.

    Raises `NotAFileError` if it is a link, or something else than a file with one name.
    """
    try:
        descriptor = os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | _CAREFULLY, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LinkError(path) from None
        raise
    try:
        status = os.fstat(descriptor)
        _require_regular(status.st_mode, path)
        _require_single(status, path)
        with suppress(OSError):  # another user's file
            os.fchmod(descriptor, 0o600)
        if flags & os.O_TRUNC:  # only now: before, it could be the other file of a hard link
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove_drafts(folder: Path) -> None:
    """Remove the drafts that crashed processes left in a folder that nobody but consoles writes now."""
    import psutil

    with suppress(OSError):
        for draft in [entry for entry in folder.iterdir() if entry.name.startswith(DRAFT)]:
            pid = draft.name.removeprefix(DRAFT).partition("-")[0]
            with suppress(OSError, OverflowError):  # a number that is no process ID
                is_dead = not (pid.isdecimal() and psutil.pid_exists(int(pid)))
                # In a container, a crashed process often had the number of one that runs now.
                if is_dead or time.time() - draft.lstat().st_mtime > _LONGEST_DRAFT_S:
                    draft.unlink()


def lock_file(path: Path) -> int:
    """Lock a file, created if needed, for one process, until the returned descriptor is closed everywhere.

    Raises `BlockingIOError` if another process holds the lock. A file system without locks gives a descriptor, too.
    """
    import fcntl  # not for reading

    descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        pass
    return descriptor


def sync(path: str | Path) -> None:
    """Wait until a file's content, or a folder's list of files, is on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
