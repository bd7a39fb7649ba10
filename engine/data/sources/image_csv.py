"""Loads images in a folder, with a table of their names and labels."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...config.data_options import ImageCsvOptions
from ...errors import DataError, did_you_mean
from ..images.examples import Source, make_examples
from ..images.files import list_folder, not_there
from ..images.labels import class_labels, for_loss, share_labels
from ..places import is_image_name, is_remote, join, locate
from ..tables import read_table, read_text, refuse_lines, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from ...config.run_config import RunConfig
    from ..examples import Examples


_SETTINGS = {"skipinitialspace": True, "na_values": ["", "nan", "NaN"]}


def load(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    """Read the table, find and check its images, and split them class by class.

    Raises:
        DataError: The table or its images cannot be used.
    """
    options = ImageCsvOptions.model_validate(config.data.options)
    return make_examples(config, options, read_source(options, config.loss, on_fetch), None, on_fetch)


def read_source(options: ImageCsvOptions, loss: str, on_fetch: Callable[[str], None]) -> Source:
    """Read the table and find the files of its images; a sparse loss needs class numbers.

    Raises:
        DataError: The table cannot be used, or there is no folder of images.
    """
    place = shown(options.path)
    on_fetch(f"reading {place}")
    table = read_ids(options.path, options.id_column)
    columns = _label_columns(table, options, place)
    if len(columns) == 1:
        labels, names = class_labels(table[columns[0]], options.classes, place)
    elif options.classes:
        raise DataError(
            f"data.options.classes needs one label column, but {place} is read with {len(columns)}.",
            remedy="Remove it, or name the column in data.options.label_columns.",
        )
    else:
        labels, names = for_loss(share_labels(table[columns], place), loss, place), tuple(columns)
    ids = table.iloc[:, 0].tolist()
    folder = image_folder(options)
    paths, suffix = find_images(folder, ids, options.images)
    record = {"id_column": table.columns[0], "label_columns": columns, "images": options.images, "suffix": suffix}
    return Source(folder, tuple(ids), tuple(paths), labels, names, record)


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


def _label_columns(table: pd.DataFrame, options: ImageCsvOptions, place: str) -> list[str]:
    others = [str(column) for column in table.columns[1:]]
    if not others:
        raise DataError(
            f"{place} has no label column besides '{table.columns[0]}'.",
            remedy="Set data.options.path to the table with the labels.",
        )
    for name in options.label_columns:
        if name not in others:
            raise DataError(
                f"{place} has no label column '{name}'; {did_you_mean(name, others)}",
                remedy="Set data.options.label_columns.",
            )
    return list(options.label_columns) or others


def image_folder(options: ImageCsvOptions) -> str:
    """Return the folder of the images; a relative one is in the table's folder."""
    if is_remote(options.images) or Path(options.images).expanduser().is_absolute():
        return locate(options.images)
    table = locate(options.path)
    if is_remote(table):
        return join(table.rpartition("/")[0], options.images)
    return str(Path(table).parent / options.images)


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
