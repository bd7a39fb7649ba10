"""Finds and opens a dataset's files, which may be remote, and recognizes images by their names."""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from ..errors import DataError, one_line
from ..storage.files import open_regular
from ..storage.paths import keras_home, user_path

KAGGLE_INPUT = Path("/kaggle/input")  # where Kaggle mounts the datasets and competitions of a notebook
IMAGE_ENDINGS = frozenset((".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".webp"))
ON_THIS_MACHINE = "on this machine"
KAGGLE = "kaggle"  # before the colon of a name such as ``kaggle:OWNER/NAME``
_KAGGLE_NAME = re.compile(r"kaggle:(\w[\w.-]*/\w[\w.-]*)(?:/(.*))?", re.ASCII)
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_remote(path: str) -> bool:
    """Return whether only TensorFlow can read a path, such as ``gs://bucket/folder``."""
    return _REMOTE.match(path) is not None


def kaggle_parts(path: str) -> tuple[str, str] | None:
    """Return ``OWNER/NAME``, and the path inside, of a dataset such as ``kaggle:OWNER/NAME``; None for other paths."""
    match = _KAGGLE_NAME.fullmatch(path)
    return (match[1], match[2] or "") if match is not None else None


def kaggle_cache() -> Path:
    """Return where kagglehub keeps what it downloads."""
    return Path(os.environ.get("KAGGLEHUB_CACHE") or "~/.cache/kagglehub").expanduser()


def is_image_name(name: str) -> bool:
    """Return whether a file's name ends like an image's."""
    return name[name.rfind(".") :].lower() in IMAGE_ENDINGS


def join(folder: str, name: str) -> str:
    """Return the path of a file in a folder, which may be remote."""
    return f"{folder.rstrip('/')}/{name}" if is_remote(folder) else str(Path(folder) / name)


def locate(path: str) -> str:
    """Return where a file or folder of a dataset is; absolute and remote paths are returned as they are.

    A relative one is searched for in the working directory, the default, in Keras's ``datasets`` folder and in Kaggle's
    input folders. ``kaggle:OWNER/NAME`` is a folder that Kaggle mounted, or else the newest one downloaded.
    """
    if is_remote(path):
        return path
    return str(next((place for place in candidates(path) if place.exists()), Path.cwd() / Path(path).expanduser()))


def candidates(path: str) -> Iterator[Path]:
    """Yield the places where a local path is looked for, in order."""
    if (parts := kaggle_parts(path)) is not None:
        handle, inner = parts
        yield KAGGLE_INPUT / handle.partition("/")[2] / inner
        yield KAGGLE_INPUT / "datasets" / handle / inner
        place = kaggle_cache() / "datasets" / handle
        whole = (mark.stem for mark in place.glob("*.complete") if mark.stem.isdecimal())  # other downloads are cut off
        yield from (place / "versions" / version / inner for version in sorted(whole, key=int, reverse=True))
        return
    expanded = Path(path).expanduser()
    if expanded.is_absolute():
        yield expanded
        return
    yield Path.cwd() / expanded
    yield keras_home() / "datasets" / expanded
    if KAGGLE_INPUT.is_dir():
        yield KAGGLE_INPUT / expanded
        yield from (folder / expanded for folder in sorted(KAGGLE_INPUT.iterdir()))


def not_there(path: str, what: str, option: str) -> DataError:
    """Return an error for a missing file or folder of an option that says where it was looked for."""
    looked = [] if is_remote(path) else [user_path(place) for place in candidates(path)]
    more = f" and at {len(looked) - 3} more places" if len(looked) > 3 else ""
    where = f"It was looked for at {', '.join(looked[:3])}{more}." if len(looked) > 1 else ""
    return DataError(
        f"There is no {what} {shown(path)}.", why=where, remedy=f"Put it there or correct data.options.{option}."
    )


def shown(path: str) -> str:
    """Return the path of a dataset's file for messages."""
    place = locate(path)
    return place if is_remote(place) else user_path(Path(place))


def open_file(path: str) -> BinaryIO:
    """Open a local or remote file for reading."""
    if not is_remote(path):
        return cast("BinaryIO", open_regular(path, follows_links=True))
    import tensorflow as tf

    return cast("BinaryIO", tf.io.gfile.GFile(path, "rb"))


def read_whole(path: str) -> bytes:
    """Read a local or remote file; raise `OSError` if it cannot be read."""
    with open_file(path) as file:
        if not is_remote(path):
            return file.read()
        import tensorflow as tf

        try:
            return bytes(file.read())
        except tf.errors.OpError as error:
            is_missing = isinstance(error, tf.errors.NotFoundError)
            kind, number = (FileNotFoundError, errno.ENOENT) if is_missing else (OSError, errno.EIO)
            raise kind(number, one_line(error)) from error
