"""Finds a dataset's files, which may be remote, and recognizes images by their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..storage.paths import keras_home

if TYPE_CHECKING:
    from collections.abc import Iterator

KAGGLE_INPUT = Path("/kaggle/input")  # where Kaggle mounts the datasets and competitions of a notebook
IMAGE_ENDINGS = frozenset((".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".webp"))

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_remote(path: str) -> bool:
    """Return whether only TensorFlow can read a path, such as ``gs://bucket/folder``."""
    return _REMOTE.match(path) is not None


def is_image_name(name: str) -> bool:
    """Return whether a file's name ends like an image's."""
    return name[name.rfind(".") :].lower() in IMAGE_ENDINGS


def join(folder: str, name: str) -> str:
    """Return the path of a file in a folder, which may be remote."""
    return f"{folder.rstrip('/')}/{name}" if is_remote(folder) else str(Path(folder) / name)


def locate(path: str) -> str:
    """Return where a file or folder of a dataset is.

    Absolute and remote paths are returned as they are. A relative one is looked for in the working directory, in
    Keras's ``datasets`` folder and in Kaggle's input folders; if it is nowhere, its place in the working directory is
    returned.
    """
    if is_remote(path):
        return path
    expanded = Path(path).expanduser()
    found = next((place for place in candidates(path) if place.exists()), Path.cwd() / expanded)
    return str(found)


def candidates(path: str) -> Iterator[Path]:
    """Yield the places where a local path is looked for, in order."""
    expanded = Path(path).expanduser()
    if expanded.is_absolute():
        yield expanded
        return
    yield Path.cwd() / expanded
    yield keras_home() / "datasets" / expanded
    if KAGGLE_INPUT.is_dir():
        yield KAGGLE_INPUT / expanded
        yield from (folder / expanded for folder in sorted(KAGGLE_INPUT.iterdir()))
