"""Loads a configuration's dataset: a built-in one, the user's files or the user's function."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ...config.catalog import DATASETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...config.run_config import RunConfig
    from ..examples import Examples

_LOADERS = {
    **dict.fromkeys(DATASETS, "arrays"),
    "image-csv": "image_csv",
    "image-folder": "image_folder",
    "tfrecord": "tfrecord",
    "text-pairs": "text_pairs",
    "text-csv": "text_csv",
    "ratings-csv": "ratings_csv",
}


def load_examples(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    """Load a configuration's dataset; `on_fetch` is called with a sentence before something that may take a while.

    Raises:
        DataError: It cannot be downloaded, is damaged, or does not fit the configuration.
        UserCodeError: The user's function failed or returned the wrong thing.
    """
    loader = import_module(f"..{_LOADERS.get(config.dataset, 'user_function')}", __name__)
    examples: Examples = loader.load(config, on_fetch)
    return examples
