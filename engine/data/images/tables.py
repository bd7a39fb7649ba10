"""Reads tables of images, for training and prediction, and finds their files."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError
from ..places import is_image_name, is_remote, join, locate
from ..tables import read_table, read_text, refuse_lines, shown
from .files import list_folder, not_there

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

_SETTINGS: dict[str, Any] = {"skipinitialspace": True, "na_values": ["", "nan", "NaN"]}


def read_ids(path: str, id_column: str) -> pd.DataFrame:
    """Read a table of images, for training or prediction; without `id_column`, the first one has their names.

    The result is text, the column of image names first, indexed by line number, with the header as line 1.

    Raises:
        DataError: It cannot be read, has no such column, or an image name is missing or repeated.
    """
    place = shown(path)
    wanted = {"id_column": id_column} if id_column else {}
    # Blank lines are kept at first, so that lines have the right numbers.
    table: pd.DataFrame = read_table(path, read_text(path), wanted, skip_blank_lines=False, **_SETTINGS)
    table.index = table.index + 2
    table = table.dropna(how="all").apply(lambda column: column.str.strip())
    if table.empty:
        raise DataError(f"{place} has a header but no rows.")
    name = id_column or table.columns[0]
    ids = table[name]
    refuse_lines(place, ids.index[ids.isna()], f"no image in column '{name}'", "Fill it in or remove the line.")
    twice = ids[ids.duplicated()]
    if len(twice):
        refuse_lines(
            place,
            twice.index,
            f"an image that an earlier line names too, such as '{twice.iloc[0]}'",
            "Remove the duplicates: an image could be in both the training and the validation data.",
        )
    table.insert(0, name, table.pop(name))
    return table


def image_folder(path: str, images: str) -> str:
    """Return the folder of the images of the table at a path; a relative one is in the table's folder."""
    if is_remote(images) or Path(images).expanduser().is_absolute():
        return locate(images)
    table = locate(path)
    if is_remote(table):
        return join(table.rpartition("/")[0], images)
    return str(Path(table).parent / images)


def find_images(folder: str, ids: Sequence[str], images: str) -> tuple[list[str], str]:
    """Find image files, given their names with or without the ending; raise `DataError` if there is no such folder.

    Returns the path of each image, whether it exists or not, and the ending that most names lack, if any. `images` is
    the folder in the configuration, for errors.
    """
    try:
        list_folder(folder)
    except FileNotFoundError as error:
        raise not_there(folder, f"folder of images ({images})", "images") from error
    images_in = cache(_images_in)
    files = [_found(folder, name, images_in) for name in ids]
    added = Counter(file[len(name) :] for file, name in zip(files, ids, strict=True))
    return [join(folder, file) for file in files], added.most_common(1)[0][0]


def _found(folder: str, name: str, images_in: Callable[[str], dict[str, str]]) -> str:
    """Return the name of the matching file, or the name itself if there is none."""
    inner, slash, base = name.rpartition("/")
    by_name = images_in(join(folder, inner) if inner else folder)
    return inner + slash + by_name.get(base, base)


def _images_in(folder: str) -> dict[str, str]:
    """Return the images in a folder by their names with and without the ending."""
    try:
        _, files = list_folder(folder)
    except FileNotFoundError:
        return {}
    images = [file for file in files if is_image_name(file)]
    return {file.rpartition(".")[0]: file for file in reversed(images)} | {file: file for file in files}
