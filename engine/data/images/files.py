"""Lists the files of local and remote folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from ...errors import DataError, one_line
from ...storage.paths import user_path
from ..places import candidates, is_remote, locate

if TYPE_CHECKING:
    from collections.abc import Iterator


def list_folder(folder: str) -> tuple[list[str], list[str]]:
    """Return the sorted names of the folders and files in a folder, without hidden ones.

    Raises:
        FileNotFoundError: It does not exist or is not a folder.
        DataError: It cannot be read.
    """
    _, folders, files = next(_walk(folder))
    return folders, files


def files_below(folder: str) -> Iterator[str]:
    """Yield the relative paths of all files below a folder, without hidden ones."""
    start = folder.rstrip("/")
    for place, _, files in _walk(start):
        inner = place[len(start) :].strip("/")
        yield from (f"{inner}/{name}" if inner else name for name in files)


def _walk(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
    if not (tf.io.gfile.isdir(folder) if is_remote(folder) else Path(folder).is_dir()):
        raise FileNotFoundError(folder)
    walk = tf.io.gfile.walk(folder) if is_remote(folder) else os.walk(folder)
    try:
        for place, folders, files in walk:
            # Changed in place, so that hidden folders are skipped; a bucket's folders end with a slash.
            folders[:] = sorted(name.rstrip("/") for name in folders if not name.startswith("."))
            yield place, folders, sorted(name for name in files if name and not name.startswith("."))
    except tf.errors.OpError as error:
        raise DataError(f"{folder} cannot be read: {one_line(error, 200)}.") from error


def not_there(path: str, what: str, option: str) -> DataError:
    """Return an error for a missing file or folder of an option that says where it was looked for."""
    looked = [] if is_remote(path) else list(candidates(path))
    where = f"It was looked for at {', '.join(user_path(place) for place in looked)}." if len(looked) > 1 else ""
    place = locate(path) if is_remote(path) else user_path(Path(locate(path)))
    return DataError(
        f"There is no {what} {place}.", why=where, remedy=f"Put it there or correct data.options.{option}."
    )
