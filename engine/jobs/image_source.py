"""Reads the table or the folders of an image dataset, and checks its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ..config.data_options import ImageCsvOptions, ImageFolderOptions
from ..data.images.check import checkers
from ..data.sources import image_csv, image_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..data.images.examples import Source
    from ..messages import Reporter

T = TypeVar("T")

_CHECKERS = 8


def read_image_source(
    dataset: str, options: Mapping[str, Any], loss: str, on_fetch: Callable[[str], None] = lambda _: None
) -> Source:
    """Return the image files of a dataset and their labels; raise `DataError` if they cannot be read."""
    if dataset == "image-csv":
        return image_csv.read_source(ImageCsvOptions.model_validate(options), loss, on_fetch)
    return image_folder.read_source(ImageFolderOptions.model_validate(options), on_fetch)


def check_all(check: Callable[[str], T], paths: Sequence[str], reporter: Reporter) -> list[T]:
    """Check image files in parallel, and return the results in order."""
    results = []
    with checkers(_CHECKERS) as pool:
        for result in pool.map(check, paths):
            results.append(result)
            reporter.progress("checking images", len(results), len(paths), "images")
    return results
