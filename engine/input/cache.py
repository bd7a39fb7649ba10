"""Decides where decoded examples are kept after the first epoch: in memory, in a file beside the run, or nowhere."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DataError
from ..machine.resources import free_memory_bytes
from ..storage.disk_space import size_text

if TYPE_CHECKING:
    from pathlib import Path

MEMORY_SHARE = 0.5
"""Share of free memory that kept examples may take."""

# Of free memory, for a shuffle of examples that are not kept in memory anyway. They come and go in threads of their
# own, which costs the allocator three times their size (measured with glibc).
_SHUFFLE_SHARE = 0.125
_DISK_SHARE = 0.9
_OVERHEAD_BYTES = 256  # what TensorFlow needs to keep an example beside its values


@dataclass(frozen=True, slots=True)
class Cache:
    """Where decoded examples are kept.

    Args:
        kind: ``memory``, ``disk`` or ``off``.
        reason: Where and why, in one sentence.
        shuffle_most: Most examples that a shuffle may hold in memory; None where there is no bound.
        notice: What a person should know; empty when all is as expected.
    """

    kind: str
    reason: str
    shuffle_most: int | None = None
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Room:
    """What there is to keep examples in.

    Args:
        memory_bytes: Free memory.
        disk_bytes: Free disk beside the run; 0 where there is no folder for it.
    """

    memory_bytes: int
    disk_bytes: int


def choose_cache(asked: str, count: int | None, example_bytes: int | None, room: Room) -> Cache:
    """Decide where examples are kept.

    Args:
        asked: The configuration's ``data.cache``.
        count: Training and validation examples; None when the dataset does not tell, or has no end.
        example_bytes: Bytes of one, decoded; None when they differ.
        room: What there is.

    Raises:
        DataError: A file was asked for, and the disk is too small.
    """
    needed = most = None
    if example_bytes is not None:
        each = example_bytes + _OVERHEAD_BYTES
        needed = None if count is None else count * each
        most = int(_SHUFFLE_SHARE * room.memory_bytes / each)
    size = "the examples" if needed is None else f"{count:,} examples of {size_text(needed)} in all"
    if asked == "memory":
        return Cache("memory", f"in memory: asked for; {size}")
    if asked == "off":
        return Cache("off", "not kept: asked for", most)
    if asked == "disk":
        if needed is not None and needed > _DISK_SHARE * room.disk_bytes:
            raise DataError(
                f"data.cache is disk, and {size} do not fit: {size_text(room.disk_bytes)} are free beside the run.",
                remedy="Free space, set data.cache=off, or set TPU_CONSOLE_HOME to a folder on a larger disk.",
            )
        return Cache("disk", f"in a file beside the run: asked for; {size}", most)
    if needed is None:
        why = "their number is not known" if count is None else "their sizes differ"
        return Cache("off", f"not kept: {why}", most, _told(f"Examples are read anew in every epoch: {why}."))
    free = f"half of the {size_text(room.memory_bytes)} of memory that is free"
    if needed <= MEMORY_SHARE * room.memory_bytes:
        return Cache("memory", f"in memory: {size} are less than {free}")
    if needed <= _DISK_SHARE * room.disk_bytes:
        return Cache("disk", f"in a file beside the run: {size} are more than {free}", most)
    why = f"{size} are more than {free}, and than the {size_text(room.disk_bytes)} that the disk has free"
    return Cache("off", f"not kept: {why}", most, _told(f"Examples are read anew in every epoch: {why}."))


def _told(sentence: str) -> str:
    return f"{sentence} data.cache=memory or disk keeps them all the same."


def room_beside(folder: Path | None) -> Room:
    """Look at what there is to keep examples in.

    Args:
        folder: Where a file would be kept; None when nowhere.
    """
    disk = 0
    if folder is not None:
        with suppress(OSError):
            disk = shutil.disk_usage(folder.parent).free
    return Room(free_memory_bytes(), disk)
