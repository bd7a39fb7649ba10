"""The one table of the kinds of datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...config.catalog import DATASETS
from .image_csv import ImageCsv
from .image_folder import ImageFolder
from .npz import Npz
from .ratings_csv import RatingsCsv
from .table_csv import TableCsv
from .text_csv import TextCsv
from .text_pairs import TextPairs
from .tfrecord import Tfrecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...config.run_config import RunConfig
    from ...config.values import Section
    from ..examples import Examples
    from .kind import DatasetKind

KINDS: dict[str, DatasetKind[Any]] = {
    kind.name: kind
    for kind in (ImageCsv(), ImageFolder(), Tfrecord(), TextPairs(), TextCsv(), RatingsCsv(), TableCsv(), Npz())
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


def load_examples(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    """Load a configuration's dataset; `on_fetch` is called with a sentence before something that may take a while.

    Raises:
        DataError: It cannot be downloaded, is damaged, or does not fit the configuration.
        UserCodeError: The user's function failed or returned the wrong thing.
    """
    if (kind := KINDS.get(config.dataset)) is not None:
        return kind.load(config, on_fetch)
    if config.dataset in DATASETS:
        from ..sources.arrays import load
    else:
        from ..sources.user_function import load
    return load(config, on_fetch)
