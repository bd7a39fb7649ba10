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

    Examples that may differ from epoch to epoch, so not `is_fixed`, are only cached if that is asked for.

    Raises:
        DataError: The cache must be on disk, and the disk is too small.
    """
    needed = most = None
    if example_bytes is not None:
        each = example_bytes + _OVERHEAD_BYTES
        needed = None if count is None else count * each
        most = int(_SHUFFLE_SHARE * room.memory_bytes / each)
    size = "the examples" if needed is None else f"{count:,} examples ({size_text(needed)} in total)"
    if asked == "memory":
        return Cache("memory", f"in memory (data.cache=memory): {size}")
    if asked == "off":
        return Cache("off", "not cached (data.cache=off)", most)
    if asked == "disk":
        if needed is not None and needed > _DISK_SHARE * room.disk_bytes:
            raise DataError(
                f"data.cache is disk, but {size} do not fit: {size_text(room.disk_bytes)} are free on the run's disk.",
                remedy="Free space, set data.cache=off, or set TPU_CONSOLE_HOME to a folder on a larger disk.",
            )
        return Cache("disk", f"in a file in the run folder (data.cache=disk): {size}", most)
    if not is_fixed:
        return Cache("off", "not cached: your data may give other examples in each epoch", most)
    if needed is None:
        why = "their number is unknown" if count is None else "their sizes differ"
        return Cache("off", f"not cached: {why}", most, _with_remedy(f"Examples are read again in every epoch: {why}."))
    free = f"half of the {size_text(room.memory_bytes)} of free memory"
    if needed <= MEMORY_SHARE * room.memory_bytes:
        return Cache("memory", f"in memory: {size} need less than {free}")
    if needed <= _DISK_SHARE * room.disk_bytes:
        return Cache("disk", f"in a file in the run folder: {size} need more than {free}", most)
    why = f"{size} need more than {free}, and more than the {size_text(room.disk_bytes)} of free disk space"
    return Cache("off", f"not cached: {why}", most, _with_remedy(f"Examples are read again in every epoch: {why}."))


def _with_remedy(sentence: str) -> str:
    return f"{sentence} data.cache=memory or disk caches them anyway."


def room_beside(folder: Path | None) -> Room:
    """Return the free space for cached examples, with the folder of a cache file if there is one."""
    disk = free_bytes(folder.parent) if folder is not None else None
    return Room(free_memory_bytes(), disk or 0)
