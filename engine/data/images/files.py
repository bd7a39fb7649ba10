"""Lists and opens the image files of local and remote folders."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ...errors import DataError, one_line
from ...storage.files import open_regular
from ..places import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from .check import ImageFacts


@dataclass(frozen=True, slots=True)
class Source:
    """Labelled image files of the user; all lists have the same order."""

    place: str
    names: tuple[str, ...]  # name of each image: from the table, or its path in `place`
    paths: tuple[str, ...]
    # Class numbers, int32 of shape ``(images,)``; or a probability for each class, float32 of shape ``(images,
    # classes)``.
    labels: NDArray[Any]
    class_names: tuple[str, ...]  # names of the classes in the order of their numbers
    record: Mapping[str, Any] = field(default_factory=dict)  # what else is needed to read new images of the same kind
    notices: tuple[str, ...] = ()  # what the user should know about them
    facts: tuple[ImageFacts, ...] = ()  # what a check found; empty before

    @property
    def numbers(self) -> NDArray[Any]:
        """The class number of each image; with probabilities, that of the most probable class."""
        return self.labels if self.labels.ndim == 1 else self.labels.argmax(axis=1)

    def chosen(self, indices: NDArray[Any]) -> Source:
        """Return a selection of checked files, in the order of the indices."""
        lists = ([entries[index] for index in indices] for entries in (self.names, self.paths, self.facts))
        names, paths, facts = map(tuple, lists)
        return replace(self, names=names, paths=paths, facts=facts, labels=self.labels[indices])


def open_file(path: str) -> BinaryIO:
    """Open a local or remote file for reading."""
    if not is_remote(path):
        return cast("BinaryIO", open_regular(path, follows_links=True))
    import tensorflow as tf

    return cast("BinaryIO", tf.io.gfile.GFile(path, "rb"))


def list_folder(folder: str) -> tuple[list[str], list[str]]:
    """Return the sorted names of the folders and files in a folder, without hidden ones.

    Raises:
        FileNotFoundError: It does not exist or is not a folder.
        DataError: It cannot be read.
    """
    if (found := next(_walk(folder), None)) is None:
        raise FileNotFoundError(folder)
    return found[1:]


def files_below(folder: str) -> Iterator[str]:
    """Yield the relative paths of all files below a folder, without hidden ones."""
    start = folder.rstrip("/")
    for place, _, files in _walk(start):
        inner = place[len(start) :].strip("/")
        yield from (f"{inner}/{name}" if inner else name for name in files)


def _walk(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
    for place, folders, files in _walk_remote(folder) if is_remote(folder) else os.walk(folder):
        # Changed in place, so that hidden folders are skipped; a bucket's folders end with a slash.
        folders[:] = sorted(name.rstrip("/") for name in folders if not name.startswith("."))
        yield place, folders, sorted(name for name in files if name and not name.startswith("."))


def _walk_remote(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
    import tensorflow as tf

    try:
        if tf.io.gfile.isdir(folder):
            yield from tf.io.gfile.walk(folder)
    except tf.errors.OpError as error:
        raise DataError(f"{folder} cannot be read: {one_line(error, 200)}.") from error
