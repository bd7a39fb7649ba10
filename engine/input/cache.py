"""Decides where decoded examples are cached: in memory, in a file in the run folder, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DataError
from ..machine.resources import free_memory_bytes
from ..storage.disk_space import free_bytes, size_text

if TYPE_CHECKING:
    from pathlib import Path

MEMORY_SHARE = 0.5  # fraction of free memory that cached examples may take

# Fraction of free memory for the shuffle buffer, if examples are not cached in memory. Its examples are allocated and
# freed in other threads, which takes three times their size (measured with glibc).
_SHUFFLE_SHARE = 0.125
_DISK_SHARE = 0.9
_OVERHEAD_BYTES = 256  # what TensorFlow needs per cached example besides its values


@dataclass(frozen=True, slots=True)
class Cache:
    """Where decoded examples are cached."""

    kind: str  # ``memory``, ``disk`` or ``off``
    reason: str  # where and why, in one phrase
    shuffle_most: int | None = None  # most examples in the shuffle buffer; None without a limit
    notice: str = ""  # what the user should know; empty if there is nothing


@dataclass(frozen=True, slots=True)
class Room:
    """Free space for cached examples."""

    memory_bytes: int
    disk_bytes: int  # free space on the run's disk; 0 without a folder


def choose_cache(
    asked: str, count: int | None, example_bytes: int | None, room: Room, *, is_fixed: bool = True
) -> Cache:
    """Decide where examples are cached; `count` and `example_bytes` are None if unknown or varying.

    Examples that may differ from epoch to epoch, so not `is_fixed`, are only cached if that is asked for. Raises
    `DataError` if the cache must be on disk, and the disk is too small.
    """
    each = None if example_bytes is None else example_bytes + _OVERHEAD_BYTES
    most = None if each is None else int(_SHUFFLE_SHARE * room.memory_bytes / each)
    needed = None if each is None or count is None else count * each
    size = "examples of unknown size" if needed is None else f"{count:,} examples ({size_text(needed)})"
    fits_disk = needed is not None and needed <= _DISK_SHARE * room.disk_bytes
    if asked == "disk" and needed is not None and not fits_disk:
        what = f"data.cache is disk, but {size} do not fit: {size_text(room.disk_bytes)} are free on the run's disk."
        remedy = "Free space, set data.cache=off, or set TPU_CONSOLE_HOME to a folder on a larger disk."
        raise DataError(what, remedy=remedy)
    kind, why = asked, f" (data.cache={asked})"
    if asked == "auto" and not is_fixed:
        kind, why = "off", ": your data may give other examples in each epoch"
    elif asked == "auto":
        fits_memory = needed is not None and needed <= MEMORY_SHARE * room.memory_bytes
        kind = "memory" if fits_memory else "disk" if fits_disk else "off"
        why = f": {size}, with {size_text(room.memory_bytes)} of memory and {size_text(room.disk_bytes)} of disk free"
    reason = {"memory": "in memory", "disk": "in a file in the run folder", "off": "not cached"}[kind] + why
    notice = ""
    if kind == "off" and asked == "auto" and is_fixed:
        notice = f"Examples are read again in every epoch{why}. data.cache=memory or disk caches them."
    return Cache(kind, reason, None if kind == "memory" else most, notice)


def room_beside(folder: Path | None) -> Room:
    """Return the free space for cached examples, with the folder of a cache file if there is one."""
    disk = free_bytes(folder.parent) if folder is not None else None
    return Room(free_memory_bytes(), disk or 0)
