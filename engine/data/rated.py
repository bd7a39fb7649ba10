"""Packs what each user rated into a short text that a run saves, about two bytes per rating."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUMBERS = np.dtype("<i4")
_LARGEST_SIZE, _LARGEST_EXPANSION = 64 << 20, 100
"""A text that unpacks to more than the first (bytes) and grows by more than the second (a factor) is refused: real
ratings only double in size."""


def packed(users: NDArray[np.int32], items: NDArray[np.int32]) -> str:
    """Pack the number of ratings of each user, followed by the rated items, user by user; 0 means unknown."""
    known = (users > 0) & (items > 0)
    users, items = users[known], items[known]
    counts = np.bincount(users)[1:]
    numbers = np.concatenate([counts, items[np.lexsort((items, users))]])
    return base64.b64encode(zlib.compress(numbers.astype(_NUMBERS).tobytes())).decode("ascii")


def unpacked(text: str, users: int) -> list[NDArray[np.int32]]:
    """Return the items that each user rated, starting with user 1; raise `ValueError` if `packed` did not write it."""
    try:
        given = base64.b64decode(text, validate=True)
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(given, max(_LARGEST_SIZE, _LARGEST_EXPANSION * len(given)))
        if not unpacking.eof:
            raise ValueError("it is cut off, or larger than ratings are")
        numbers = np.frombuffer(content, _NUMBERS)
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from error
    ends, items = np.cumsum(numbers[:users]), numbers[users:]
    if len(ends) != users or ends[-1] != len(items):
        raise ValueError(f"it is not about {users} users")
    return np.split(items, ends[:-1])
