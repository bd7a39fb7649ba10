"""Writes and reads a mirror in a folder, which may be mounted, or a bucket; a file appears only when it is whole."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..config.values import is_bucket
from ..errors import one_line
from ..storage.files import DRAFT, NotAFileError, open_private, open_regular, require_real, sync, whole_file


class Folder:
    """A folder, such as one of a mounted drive."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._disk: int | None = None

    def prepare(self) -> None:
        """Create it, unless it is a link, but not its parent: without that disk, the copy would fill the one below."""
        disk = self._path.parent.stat().st_dev
        if self._disk not in {None, disk}:
            raise FileNotFoundError(errno.ENODEV, "its disk is no longer mounted", self.name)
        self._disk = disk
        require_real(self._path)
        self._path.mkdir(mode=0o700, exist_ok=True)

    def names(self, folder: str = "") -> list[str]:
        """Return the names in a folder."""
        with suppress(FileNotFoundError):
            return [entry.name for entry in self._real(folder).iterdir()]
        return []

    def size(self, name: str) -> int | None:
        """Return a file's size."""
        with suppress(FileNotFoundError):
            return (self._path / name).lstat().st_size
        return None

    def open(self, name: str) -> IO[bytes]:
        """Open a file; links are not followed."""
        return open_regular(self._real(name))

    def put(self, name: str, parts: Iterable[bytes]) -> None:
        """Write a draft, which replaces the file."""
        self.prepare()
        (self._path / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole_file(self._entry(name), private=False) as draft, open(draft, "wb", opener=open_private) as file:
            file.writelines(parts)

    def append(self, name: str, parts: Iterable[bytes]) -> None:
        """Write the end of a file and sync it."""
        self.prepare()
        path = self._real(name)
        with open(path, "ab", opener=open_private) as file:
            file.writelines(parts)
        sync(path)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._entry(name).unlink()

    def _entry(self, name: str) -> Path:
        """Return the path of an entry, which may itself be a link, of a folder."""
        return self._real(str(Path(name).parent)) / Path(name).name

    def _real(self, name: str) -> Path:
        """Return a path within the folder; a link could lead to files that are not the mirror's."""
        path = self._path / name
        if path.resolve() != self._path.resolve() / name:
            raise NotAFileError(errno.ELOOP, f"{name or 'the folder'} is reached by a link", str(path))
        return path


class Bucket:
    """A folder that TensorFlow can reach, such as ``gs://bucket/runs/NAME``; objects appear whole and cannot grow."""

    def __init__(self, place: str) -> None:
        import tensorflow as tf

        self.name = place
        self._files, self._errors = tf.io.gfile, tf.errors

    def prepare(self) -> None:
        """Do nothing: a bucket has no folders."""

    def names(self, folder: str = "") -> list[str]:
        """Return the names in a folder; TensorFlow adds a slash to those of folders."""
        with self._as_os_error(), suppress(self._errors.NotFoundError):
            return [name.rstrip("/") for name in self._files.listdir(self._at(folder))]
        return []

    def size(self, name: str) -> int | None:
        """Return a file's size."""
        with self._as_os_error(), suppress(self._errors.NotFoundError):
            return int(self._files.stat(self._at(name)).length)
        return None

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file; it can be read, but not by lines."""
        with self._as_os_error(), self._files.GFile(self._at(name), "rb") as file:
            yield file

    def put(self, name: str, parts: Iterable[bytes]) -> None:
        """Write another object and rename it, because TensorFlow uploads what it has even after an error."""
        folder, _, leaf = name.rpartition("/")
        draft = self._at(f"{folder}/{DRAFT}{os.getpid()}-{leaf}".lstrip("/"))
        written = 0
        with self._as_os_error():
            try:
                with self._files.GFile(draft, "wb") as file:
                    for part in parts:
                        file.write(part)
                        written += len(part)
                if self._files.stat(draft).length != written:
                    raise OSError(errno.EIO, "it keeps another size than was written", name)
                self._files.rename(draft, self._at(name), overwrite=True)
            except BaseException:
                with suppress(self._errors.OpError):
                    self._files.remove(draft)
                raise

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self._as_os_error():
            self._files.remove(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self.name}/{name}" if name else self.name

    @contextmanager
    def _as_os_error(self) -> Iterator[None]:
        try:
            yield
        except self._errors.OpError as error:
            raise OSError(errno.EIO, one_line(error)[:200], self.name) from error


Place = Folder | Bucket
"""A run's folder at a mirror; names of files are relative to it. Every method raises `OSError` if it fails."""


def open_place(place: str) -> Place:
    """Return a run's folder at a mirror; loads TensorFlow for a bucket."""
    return Bucket(place) if is_bucket(place) else Folder(Path(place).expanduser())


MARKER = "mirror.json"  # a file that only the copy of a run at a mirror has


def mirror_problem(mirror: str) -> str:
    """Return why a mirror cannot be written, in a few words; empty if it can, or if only a run can know."""
    if not mirror or is_bucket(mirror):
        return ""
    folder = Path(mirror).expanduser()
    if not folder.is_dir():
        # It is never created: if its disk is not mounted, the copy would fill the disk below.
        return "it is not a folder" if folder.exists() else "the folder does not exist"
    return "" if os.access(folder, os.W_OK | os.X_OK) else "the folder cannot be written"


def is_at_mirror(name: str) -> bool:
    """Return whether the name of a run is that of its copy at a mirror."""
    return is_bucket(name) or (os.sep in name and (Path(name).expanduser() / MARKER).is_file())
