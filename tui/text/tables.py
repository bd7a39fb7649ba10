"""Tables that fit a width by dropping whole columns, and aligned names and values."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from .cells import cell_len, clipped, set_cell_size, widest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GAP = "  "
NAME_CELLS = 13
"""The column in which `labelled` starts its text."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    title: str  # its heading
    importance: int  # if there is too little room, the most important columns are kept
    right: bool = False  # whether its values are aligned to the right
    width: int = 0  # its width in cells, if that is fixed

    def cell(self, text: str) -> str:
        """Pad a text or cut it off to the column's width."""
        if text.isascii():
            text = text[: self.width]
            return text.rjust(self.width) if self.right else text.ljust(self.width)
        left = self.width - cell_len(text)
        return " " * left + text if self.right and left > 0 else set_cell_size(text, self.width)


ColumnT = TypeVar("ColumnT", bound=Column)


def fitting(columns: Sequence[ColumnT], width: int | None, gap: int = len(_GAP)) -> list[ColumnT]:
    """Return the columns that fit side by side, preferring the most important ones; at least one is kept."""
    if width is None:
        return list(columns)
    first, *others = sorted(columns, key=lambda column: -column.importance)
    shown, room = [first], width - first.width
    for column in others:
        if column.width + gap <= room:
            shown.append(column)
            room -= column.width + gap
    return [column for column in columns if any(column is kept for kept in shown)]


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Lay out a table: the heading and one line per row, without line feeds.

    None is wider than `width` cells; None for no limit, as in a pipe.
    """
    by_column = [*zip([column.title for column in columns], *rows, strict=True)]
    wide = [replace(column, width=widest(texts)) for column, texts in zip(columns, by_column, strict=True)]
    shown = fitting(wide, width)
    cells = [
        map(column.cell, texts)
        for column, texts in zip(wide, by_column, strict=True)
        if any(column is one for one in shown)
    ]
    lines = [_GAP.join(row).rstrip() for row in zip(*cells, strict=True)]
    if width is None or len(shown) > 1:
        return lines
    return [clipped(line, width) for line in lines]  # one column may be wider than all the room


def fields(pairs: Sequence[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Align names and values; the lines of a value stay in its column."""
    longest = widest([name for name, _ in pairs])
    lines = []
    for name, value in pairs:
        for number, part in enumerate(value.splitlines() or [""]):
            head = name if number == 0 else ""
            lines.append(f"{indent}{set_cell_size(head, longest)}{_GAP}{part}".rstrip())
    return lines


def paragraphs(blocks: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of blocks with an empty line between two of them; empty blocks are dropped."""
    lines: list[str] = []
    for block in filter(None, blocks):
        lines += ["", *block] if lines else block
    return lines


def labelled(name: str, text: str) -> str:
    """Write a line that begins with a name; all such texts start in the same column."""
    return f"{name:<{NAME_CELLS}}{text}".rstrip()


def wrapped(name: str, text: str, width: int) -> list[str]:
    """Write such a line, wrapped to a width with a hanging indent."""
    first, *others = textwrap.wrap(text, max(20, width - NAME_CELLS), break_on_hyphens=False) or [""]
    return [labelled(name, first), *(labelled("", line) for line in others)]
