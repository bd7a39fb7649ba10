"""The width of texts in cells of the terminal: two for an East Asian character, none for an accent or a joiner.

As Rich counts them; but Rich alone takes longer to import than everything else that `show` needs.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_NO_WIDTH = {"Mn", "Me", "Cf"}  # accents, variation selectors and joiners


def cell_len(text: str) -> int:
    """Return a text's width."""
    return len(text) if text.isascii() else sum(map(_width, text))


def widest(texts: Collection[str]) -> int:
    """Return the width of the widest text; a column of a table may have ten thousand."""
    return max(map(len if all(map(str.isascii, texts)) else cell_len, texts), default=0)


@lru_cache(4096)
def _width(character: str) -> int:
    if unicodedata.category(character) in _NO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def set_cell_size(text: str, cells: int) -> str:
    """Cut off or pad a text to a width."""
    if text.isascii():
        return text[: max(0, cells)].ljust(cells)
    left = cells
    for place, character in enumerate(text):
        width = _width(character)
        if width > left:
            return text[:place] + " " * left
        left -= width
    return text + " " * left


def clipped(text: str, cells: int) -> str:
    """Cut a text that is too wide off, with an ellipsis."""
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def end_of(text: str, cells: int) -> str:
    """Cut the beginning of a text that is too wide off: names and paths differ at their end."""
    return text if cell_len(text) <= cells else "…" + set_cell_size(text[::-1], cells - 1).rstrip()[::-1]
