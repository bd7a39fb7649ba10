"""Columns of numbers and sequences that grow while a run goes on.

A `Series` or `GrowingSequence` is immutable: appending returns a new one. Both share one buffer as long as the newest
is the one that grows, so that a million appends cost a million stores and not a million copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import eq
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

Item = TypeVar("Item")


class _Buffer:
    """Storage shared by the versions of one series; `used` counts the values of the newest."""

    __slots__ = ("data", "used")

    def __init__(self, capacity: int) -> None:
        self.data: NDArray[np.float64] = np.empty(capacity, dtype=np.float64)
        self.used = 0


class Series:
    """An immutable column of float64 values."""

    __slots__ = ("_buffer", "_length")

    def __init__(self, values: Sequence[float] | NDArray[Any] = ()) -> None:
        self._buffer = _Buffer(max(16, len(values)))
        self._buffer.data[: len(values)] = values
        self._buffer.used = self._length = len(values)

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Series) and np.array_equal(self.values, other.values, equal_nan=True)

    def __hash__(self) -> int:
        return hash((self._length, self.last))

    def __repr__(self) -> str:
        return f"Series({self.values.tolist()!r})"

    @property
    def values(self) -> NDArray[np.float64]:
        """The values, shape ``(len,)``, as a read-only view."""
        view = self._buffer.data[: self._length]
        view.flags.writeable = False
        return view

    @property
    def last(self) -> float | None:
        """The newest value, or None when there is none."""
        return float(self._buffer.data[self._length - 1]) if self._length else None

    def extended(self, values: Sequence[float] | NDArray[Any]) -> Series:
        """Return a series with the values appended; this one stays as it is."""
        length = self._length + len(values)
        buffer = self._buffer
        if buffer.used != self._length or length > len(buffer.data):
            buffer = _Buffer(max(16, 4 * length))  # pages that are never written take no memory
            buffer.data[: self._length] = self._buffer.data[: self._length]
        buffer.data[self._length : length] = values
        buffer.used = length
        new = Series.__new__(Series)
        new._buffer, new._length = buffer, length  # noqa: SLF001  another instance of this class
        return new


class GrowingSequence(Sequence[Item]):
    """An immutable sequence; `appended` takes constant time. It is equal to any sequence of equal items."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items = [*items]
        self._length = len(self._items)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._items[place] for place in range(self._length)[index]]
        return self._items[range(self._length)[index]]

    def __iter__(self) -> Iterator[Item]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"GrowingSequence({[*self]!r})"

    def appended(self, item: Item) -> GrowingSequence[Item]:
        """Return a sequence with the item appended; this one stays as it is."""
        new: GrowingSequence[Item] = GrowingSequence()
        new._items = self._items if len(self._items) == self._length else [*self]
        new._items.append(item)
        new._length = self._length + 1
        return new
