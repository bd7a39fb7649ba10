"""The one table of the kinds of datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...config.catalog import DATASETS
from .image_csv import ImageCsv
from .image_folder import ImageFolder
from .ratings_csv import RatingsCsv
from .text_csv import TextCsv
from .text_pairs import TextPairs
from .tfrecord import Tfrecord

if TYPE_CHECKING:
    from ...config.values import Section
    from .kind import DatasetKind

KINDS: dict[str, DatasetKind[Any]] = {
    kind.name: kind for kind in (ImageCsv(), ImageFolder(), Tfrecord(), TextPairs(), TextCsv(), RatingsCsv())
}
"""The kinds of the user's files, by their names in a configuration."""


def dataset_names() -> tuple[str, ...]:
    """Return the names of the built-in datasets and of the kinds."""
    return (*DATASETS, *KINDS)


def option_sections() -> dict[str, type[Section]]:
    """Return the options of each kind."""
    return {name: kind.Options for name, kind in KINDS.items()}


def has_images(dataset: str) -> bool:
    """Return whether the examples of a dataset are images; those of the user's functions are unknown."""
    return dataset in DATASETS or (dataset in KINDS and KINDS[dataset].has_images)
