"""Reads and writes short texts in plain Python, without TensorFlow or pandas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEPARATORS = ("::", "\t", ";", ",")


def first_of(items: Sequence[str], most: int = 10, separator: str = ", ") -> str:
    """Write the first items of a list and say how many more there are, such as ``a, b and 3 more``."""
    more = len(items) - most
    text = separator.join(items[:most])
    return f"{text}{separator.rstrip(', ')} and {more:,} more" if more > 0 else text


def short_name(name: str, most: int = 60) -> str:
    """Shorten a long file name in its middle; its beginning and its ending say the most."""
    kept = max(2, most - 1)
    return name if len(name) <= most else f"{name[: kept - kept // 3]}…{name[-(kept // 3) :]}"


def layout_of(first_line: str) -> tuple[str, bool]:
    """Return what separates a table's columns (``::``, a tab, ``;`` or ``,``), and whether it has a header.

    A first line of numbers alone is not a header.
    """
    first = first_line.strip()
    separator = next((mark for mark in _SEPARATORS if mark in first), ",")
    return separator, not all(is_number(cell) for cell in first.split(separator))


def is_number(text: str) -> bool:
    """Return whether a cell holds a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def class_order(name: str) -> tuple[float, str]:
    """Return the sort key of a class: numbers by value, before names in alphabetical order."""
    value = float(name) if is_number(name) else math.inf
    return (value if math.isfinite(value) else math.inf), name
