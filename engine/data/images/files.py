"""Lists, opens and labels the image files of local and remote folders, and reads tables of their names and labels."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from ...errors import DataError, one_line
from ..places import is_image_name, is_remote, join, locate, not_there, shown
from ..tables import read_table, refuse_lines, refuse_missing

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from .check import ImageFacts

EMPTY = ("", "nan", "NaN")  # cells of a table of images that have nothing


class Source(Struct, frozen=True):
    """The user's labeled image files; all lists have the same order."""

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
    def bad(self) -> list[tuple[str, str]]:
        """The names of the files that cannot be used, and what is wrong with them."""
        return [(name, fact.problem) for name, fact in zip(self.names, self.facts, strict=True) if fact.problem]

    @property
    def numbers(self) -> NDArray[Any]:
        """The class number of each image; with probabilities, that of the most probable class."""
        return self.labels if self.labels.ndim == 1 else self.labels.argmax(axis=1)

    @property
    def usable(self) -> Source:
        """The files that passed the check."""
        import numpy as np

        return self.chosen(np.flatnonzero([not fact.problem for fact in self.facts]))

    def chosen(self, indices: NDArray[Any]) -> Source:
        """Return a selection of checked files, in the order of the indices."""
        lists = ([entries[index] for index in indices] for entries in (self.names, self.paths, self.facts))
        names, paths, facts = map(tuple, lists)
        return replace(self, names=names, paths=paths, facts=facts, labels=self.labels[indices])


def list_folder(folder: str) -> tuple[list[str], list[str]]:
    """Return the sorted names of the folders and files in a folder, without hidden ones.

    Raises `FileNotFoundError` if it does not exist or is not a folder, and `DataError` if it cannot be read.
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


def read_ids(path: str, id_column: str, option: str) -> pd.DataFrame:
    """Read a table of images as `read_table` does; the column of their names, by default the first, becomes the first.

    Raises `DataError` if it cannot be read, has no such column, or a name is missing or repeated.
    """
    cells = read_table(path, {id_column: option} if id_column else {}, EMPTY)
    table: pd.DataFrame = cells.apply(lambda column: column.str.strip())
    name = id_column or table.columns[0]
    refuse_missing(path, table, [name])
    twice = table[name][table[name].duplicated()]
    what = f"an image that an earlier line names too, such as '{next(iter(twice), '')}'"
    refuse_lines(shown(path), twice.index, what, "Remove it: an image could be in both parts of the data.")
    table.insert(0, name, table.pop(name))
    return table


def image_folder(path: str, images: str) -> str:
    """Return the folder of the images of the table at a path; a relative one is in the table's folder."""
    if is_remote(images) or Path(images).expanduser().is_absolute():
        return locate(images)
    table = locate(path)
    return join(table.rpartition("/")[0] if is_remote(table) else str(Path(table).parent), images)


def find_images(folder: str, ids: Sequence[str], images: str) -> tuple[list[str], str]:
    """Find image files, given their names with or without the ending; raise `DataError` if there is no such folder.

    Returns the path of each, whether it exists or not, and the ending that most names lack. `images` is for errors.
    """
    try:
        list_folder(folder)
    except FileNotFoundError as error:
        raise not_there(folder, f"folder of images ({images})", "images") from error

    @cache
    def images_in(place: str) -> dict[str, str]:
        """Return the images in a folder by their names with and without the ending."""
        try:
            _, names = list_folder(place)
        except FileNotFoundError:
            return {}
        images = [name for name in names if is_image_name(name)]
        return {name.rpartition(".")[0]: name for name in reversed(images)} | {name: name for name in names}

    files = []
    for name in ids:
        inner, slash, base = name.rpartition("/")
        files.append(inner + slash + images_in(join(folder, inner) if inner else folder).get(base, base))
    added = Counter(file[len(name) :] for file, name in zip(files, ids, strict=True))
    return [join(folder, file) for file in files], added.most_common(1)[0][0]


def refuse_sparse(loss: str, place: str) -> None:
    """Raise a `DataError` if the loss is sparse, which cannot learn a probability for each class."""
    if loss.startswith("sparse_"):
        what = f"{place} gives some images a probability for each class, which loss = '{loss}' cannot learn."
        raise DataError(what, remedy="Set loss = 'categorical_crossentropy'.")
