"""The caches in the user's cache folder: what they are, how large, and how they stay small."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from .paths import cache_folder

if TYPE_CHECKING:
    from pathlib import Path

COMPILED = "compiled"
CACHES = {
    COMPILED: "programs compiled by JAX",
}
"""The entries of the cache folder, and what they hold. All of it can be computed again."""


def cache_files(name: str) -> list[Path]:
    """Return the files of a cache."""
    place = cache_folder() / name
    return [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]


def clear_cache(name: str) -> None:
    """Remove the files of a cache; raise `OSError` if one cannot be removed."""
    for path in cache_files(name):
        path.unlink(missing_ok=True)


def make_room(files: list[Path], most_bytes: int, size: int = 0) -> None:
    """Remove the least recently used files until one more of a size fits into `most_bytes`."""
    known = []
    for file in files:
        with suppress(FileNotFoundError):  # another process makes room as well
            status = file.stat()
            known.append((status.st_mtime_ns, status.st_size, file))
    total = size + sum(taken for _, taken, _ in known)
    for _, taken, file in sorted(known):
        if total <= most_bytes:
            return
        with suppress(OSError):  # it may be another user's
            file.unlink(missing_ok=True)
            total -= taken
