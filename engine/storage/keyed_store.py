"""Small values kept between two commands: one JSON file per kind, with the newest values by key."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from ..sanitize import printable, printable_values
from .files import make_private_folder, read_json, write_whole
from .paths import runs_folder

_MOST = 200
_LARGEST = 16 << 20  # bytes

Value = TypeVar("Value")


def today() -> str:
    """Return the local date, such as ``2026-03-01``."""
    return datetime.now().astimezone().date().isoformat()


def key_of(values: Any) -> str:
    """Return a key made of everything that a value depends on; other than plain values count by their text."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:16]


class KeyedStore(Generic[Value]):
    """The newest 200 values of one kind, in a file beside the runs by default.

    `kind` is a struct, or a dictionary of structs; entries of another type count as missing.
    """

    def __init__(self, name: str, kind: Any, folder: Callable[[], Path] = lambda: runs_folder().parent) -> None:
        self._name, self._kind, self._folder = name, kind, folder

    def put(self, key: str, value: Value) -> None:
        """Store a value, replacing an older one; does nothing if it is the same, or the folder cannot be written."""
        if self.get(key) == value:
            return
        path = self._path
        kept: dict[str, Any] = {other: known for other, known in _read(path).items() if other != key} | {key: value}
        content = json.dumps(dict([*kept.items()][-_MOST:]), default=partial(msgspec.to_builtins, enc_hook=plain_value))
        with suppress(OSError):
            make_private_folder(path.parent)
            # Everything in it can be measured again, and a damaged file counts as empty.
            write_whole(path, content, is_synced=False)

    def get(self, key: str) -> Value | None:
        """Return a value, with texts that are safe to show; None if it is missing or damaged."""
        value: Value | None = typed(self._kind, _read(self._path).get(key))
        return value

    def items(self) -> dict[str, Value]:
        """Return all values that are not damaged."""
        found = {printable(key): typed(self._kind, value) for key, value in _read(self._path).items()}
        return {key: value for key, value in found.items() if value is not None}

    @property
    def _path(self) -> Path:
        return self._folder() / self._name


def plain_value(value: Any) -> Any:
    """Return a text or a number of a framework, such as NumPy, as a plain Python value."""
    return str(value) if isinstance(value, str) else value.item() if hasattr(value, "item") else float(value)


def typed(kind: Any, values: Any) -> Any:
    """Return plain values as a type, such as a struct, with texts that are safe to show; None if damaged."""
    try:
        return msgspec.convert(printable_values(values, keeps_lines=True), kind)
    except (ValueError, RecursionError):
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        values = read_json(path, _LARGEST)
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
