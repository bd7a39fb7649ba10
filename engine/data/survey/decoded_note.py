"""Remembers the name under which the decoded images of a configuration are kept, for a plan to look for them.

The name depends on every image file. A plan has no time to look at them all, so the run writes the name down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.caches import DECODED
from ...storage.keyed_store import KeyedStore, key_of
from ...storage.paths import cache_folder
from .survey import file_stamps

if TYPE_CHECKING:
    from ...config.run_config import RunConfig

_IMAGES = ("image-folder", "image-csv")
_KEYS = KeyedStore[str]("decoded.json", str, cache_folder)


def note_decoded(config: RunConfig, key: str) -> None:
    """Note the name under which the images of a configuration are kept."""
    if _KEYS.get(_key(config)) != key:
        _KEYS.put(_key(config), key)


def is_decoded(config: RunConfig) -> bool:
    """Return whether an earlier run has decoded these images; an image that was replaced is not noticed."""
    if config.dataset not in _IMAGES or config.data.cache == "off":
        return False
    key = _KEYS.get(_key(config))
    return key is not None and (cache_folder() / DECODED / f"{key}.images").is_file()


def _key(config: RunConfig) -> str:
    return key_of([config.dataset, config.data.options, config.data.train_limit, file_stamps(config)])
