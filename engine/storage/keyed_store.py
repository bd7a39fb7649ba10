"""Small values that are worth keeping between two commands, by key, in a file beside the runs."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .files import make_private_folder, read_json, remove_drafts, write_whole
from .paths import runs_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MOST = 200
_LARGEST = 16 << 20  # bytes


def today() -> str:
    """Return the day that it is here, such as ``2026-03-01``, for what is kept to carry."""
    return datetime.now().astimezone().date().isoformat()


class KeyedStore:
    """The newest 200 values of one kind.

    Args:
        name: The file's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep a value in the place of an older one; a folder that cannot be written is no reason to fail.

        Args:
            key: Names everything that the value depends on.
            value: Plain values.
        """
        path = self._path
        kept = {other: known for other, known in _read(path).items() if other != key}
        kept[key] = value
        with suppress(OSError):
            make_private_folder(path.parent)
            remove_drafts(path.parent)
            write_whole(path, json.dumps(dict(list(kept.items())[-_MOST:])))

    def get(self, key: str) -> Any:
        """Return a value; None when there is none."""
        path = self._path
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            return None
        return _cached(path, stamp).get(key)

    @property
    def _path(self) -> Path:
        return runs_folder().parent / self._name


@lru_cache(maxsize=4)
def _cached(path: Path, stamp: int) -> Mapping[str, Any]:  # noqa: ARG001  a changed file is read anew
    return _read(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = read_json(path, _LARGEST)
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
