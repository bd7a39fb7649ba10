"""Loads a configuration's dataset: the user's files, a built-in one or the user's function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...config.catalog import DATASETS
from ..kinds.table import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...config.run_config import RunConfig
    from ..examples import Examples


def load_examples(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    """Load a configuration's dataset; `on_fetch` is called with a sentence before something that may take a while.

    Raises:
        DataError: It cannot be downloaded, is damaged, or does not fit the configuration.
        UserCodeError: The user's function failed or returned the wrong thing.
    """
    if (kind := KINDS.get(config.dataset)) is not None:
        return kind.load(config, on_fetch)
    if config.dataset in DATASETS:
        from .arrays import load
    else:
        from .user_function import load
    return load(config, on_fetch)
