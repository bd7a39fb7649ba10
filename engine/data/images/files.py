"""Lists the files of folders, on whichever file system they are."""

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
    """Return the names of the folders and of the files in a folder, sorted, without hidden ones.

    Raises:
        FileNotFoundError: It is not there, or is not a folder.
        DataError: It cannot be read.
    """
    _, folders, files = next(_walk(folder))
    return folders, files


def files_below(folder: str) -> Iterator[str]:
    """Go through all files of a folder and its folders, by their paths in it, without hidden ones."""
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
            # In place, so that hidden folders are not walked into; a bucket's folders end with a slash.
            folders[:] = sorted(name.rstrip("/") for name in folders if not name.startswith("."))
            yield place, folders, sorted(name for name in files if name and not name.startswith("."))
    except tf.errors.OpError as error:
        raise DataError(f"{folder} cannot be read: {one_line(error, 200)}.") from error


def not_there(path: str, what: str, option: str) -> DataError:
    """Return an error that says where something of a dataset was looked for.

    Args:
        path: As the configuration has it.
        what: What it is, such as ``folder``.
        option: The key of `data.options` that names it.
    """
    looked = [] if is_remote(path) else list(candidates(path))
    where = f"It was looked for at {', '.join(user_path(place) for place in looked)}." if len(looked) > 1 else ""
    place = locate(path) if is_remote(path) else user_path(Path(locate(path)))
    return DataError(
        f"There is no {what} {place}.", why=where, remedy=f"Put it there, or correct data.options.{option}."
    )
