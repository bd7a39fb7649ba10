"""What each user rated, as one short text that a run keeps: a rating takes about two bytes of it."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUMBERS = np.dtype("<i4")
_LARGEST_SIZE, _LARGEST_EXPANSION = 64 << 20, 100
"""A text that unpacks to more bytes than the first is refused if it also grows more than the second many times: ratings
take about half their size when they are packed."""


def packed(users: NDArray[np.int32], items: NDArray[np.int32]) -> str:
    """Pack what was rated: how much each user did, user by user, then what, in the same order.

    Args:
        users: Each rating's user, as a number from 1; 0 for users without a number, which are left out.
        items: Its item likewise.
    """
    known = (users > 0) & (items > 0)
    users, items = users[known], items[known]
    counts = np.bincount(users)[1:]
    numbers = np.concatenate([counts, items[np.lexsort((items, users))]])
    return base64.b64encode(zlib.compress(numbers.astype(_NUMBERS).tobytes())).decode("ascii")


def unpacked(text: str, users: int) -> list[NDArray[np.int32]]:
    """Return the items that each user rated: one array a user, of whom the first has the number 1.

    Args:
        text: What `packed` returned.
        users: How many users there are.

    Raises:
        ValueError: The text is something else.
    """
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
