"""Loads images from one folder per class."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...config.data_options import ImageFolderOptions
from ...errors import DataError, did_you_mean
from ..images.examples import Source, make_examples
from ..images.files import files_below, list_folder, not_there
from ..places import is_image_name, join, locate
from ..plain_text import first_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...config.run_config import RunConfig
    from ..examples import Examples

_PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}
"""Folder names that mean parts of a dataset, not classes."""


def load(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    """Load the images of a folder, split class by class unless there is a validation folder.

    Raises:
        DataError: There is not one folder per class, or files cannot be used.
    """
    options = ImageFolderOptions.model_validate(config.data.options)
    source = read_source(options, on_fetch)
    validation = _listed(options.validation_path, "validation_path", on_fetch) if options.validation_path else None
    return make_examples(config, options, source, _matched(validation, source) if validation else None, on_fetch)


def read_source(options: ImageFolderOptions, on_fetch: Callable[[str], None]) -> Source:
    """List the images and their classes; raise `DataError` if there are not at least two folders of images."""
    source = _listed(options.path, "path", on_fetch)
    if _PARTS.issuperset(name.lower() for name in source.class_names):
        raise DataError(
            f"The folders in {source.place} are {', '.join(source.class_names)}: parts of a dataset, not classes.",
            remedy="Set data.options.path to the training folder and data.options.validation_path to the other one.",
        )
    if len(source.class_names) < 2:
        raise DataError(
            f"{source.place} has one folder with images, '{source.class_names[0]}': training needs two or more.",
            remedy="Use a folder for each class. If the classes are in that folder, set data.options.path to it.",
        )
    return source


def _listed(path: str, option: str, on_fetch: Callable[[str], None]) -> Source:
    place = locate(path)
    on_fetch(f"listing {place}")
    try:
        folders, _ = list_folder(place)
    except FileNotFoundError as error:
        raise not_there(path, "folder", option) from error
    by_class = {name: list(files_below(join(place, name))) for name in folders}
    images = {name: [file for file in files if is_image_name(file)] for name, files in by_class.items()}
    classes = [name for name in folders if images[name]]
    if not classes:
        raise DataError(f"{place} has no folders with images in them.", remedy="Use a folder for each class.")
    names = [f"{name}/{file}" for name in classes for file in images[name]]
    labels = np.repeat(np.arange(len(classes), dtype=np.int32), [len(images[name]) for name in classes])
    paths = [join(place, name) for name in names]
    others = [f"{name}/{file}" for name, files in by_class.items() for file in files if not is_image_name(file)]
    notices = _notices(others, [name for name in folders if name not in classes])
    return Source(place, tuple(names), tuple(paths), labels, tuple(classes), notices=notices)


def _notices(others: Sequence[str], empty: Sequence[str]) -> tuple[str, ...]:
    notices = []
    if others:
        count = "One file is" if len(others) == 1 else f"{len(others):,} files are"
        notices.append(f"{count} ignored because the name does not end like an image's: {first_of(others, 3)}.")
    if empty:
        notices.append(f"Folders without images are not used as classes: {first_of(empty, 3)}.")
    return tuple(notices)


def _matched(validation: Source, source: Source) -> Source:
    """Give validation images the class numbers of the training images."""
    numbers = {name: number for number, name in enumerate(source.class_names)}
    for name in validation.class_names:
        if name not in numbers:
            raise DataError(
                f"{validation.place} has a folder '{name}' that {source.place} does not have; "
                f"{did_you_mean(name, numbers)}",
                remedy="Both need the same classes.",
            )
    renumbered = np.array([numbers[name] for name in validation.class_names], np.int32)
    return replace(validation, labels=renumbered[validation.labels], class_names=source.class_names)
