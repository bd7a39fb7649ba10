"""Reads the table or the folders of an image dataset, for the jobs that check or convert every file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..config.data_options import ImageCsvOptions, ImageFolderOptions
from ..data.sources import image_csv, image_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..data.images.examples import Source


def read_image_source(
    dataset: str, options: Mapping[str, Any], loss: str, on_fetch: Callable[[str], None] = lambda _: None
) -> Source:
    """Return the image files of a dataset and their labels; raise `DataError` if they cannot be read."""
    if dataset == "image-csv":
        return image_csv.read_source(ImageCsvOptions.model_validate(options), loss, on_fetch)
    return image_folder.read_source(ImageFolderOptions.model_validate(options), on_fetch)
