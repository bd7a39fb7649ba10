"""Aligned tables in plain text that fit a terminal by leaving whole columns out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = "  "
_NAME_CELLS = 13


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Args:
        title: Its heading.
        importance: Columns of the least importance are left out first where there is no room.
        right: Whether its values are numbers and end in one line.
    """

    title: str
    importance: int
    right: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Lay out a table.

    Args:
        columns: The columns, in order.
        rows: One text a column.
        width: Cells available; None for no limit, as in a pipe.

    Returns:
        The heading and one line a row, without line feeds; none is wider than `width`.
    """
    widths = [
        max(len(text) for text in [column.title, *(row[index] for row in rows)]) for index, column in enumerate(columns)
    ]
    shown = set(range(len(columns)))
    while width is not None and len(shown) > 1 and _total(widths, shown) > width:
        shown.remove(min(shown, key=lambda index: columns[index].importance))
    lines = [_line([column.title for column in columns], columns, widths, shown)]
    lines += [_line(row, columns, widths, shown) for row in rows]
    return lines if width is None else [_clipped(line, width) for line in lines]


def _total(widths: Sequence[int], shown: set[int]) -> int:
    return sum(widths[index] for index in shown) + len(_GAP) * (len(shown) - 1)


def _line(texts: Sequence[str], columns: Sequence[Column], widths: Sequence[int], shown: set[int]) -> str:
    cells = [
        texts[index].rjust(widths[index]) if columns[index].right else texts[index].ljust(widths[index])
        for index in sorted(shown)
    ]
    return _GAP.join(cells).rstrip()


def _clipped(line: str, width: int) -> str:
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


def fields(pairs: Sequence[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Lay out names and values below one another; a value of several lines stays in its column."""
    longest = max((len(name) for name, _ in pairs), default=0)
    lines = []
    for name, value in pairs:
        for number, part in enumerate(value.splitlines() or [""]):
            head = name if number == 0 else ""
            lines.append(f"{indent}{head.ljust(longest)}{_GAP}{part}".rstrip())
    return lines


def labelled(name: str, text: str) -> str:
    """Write a line that begins with a name, in the column all such lines share."""
    return f"{name:<{_NAME_CELLS}}{text}".rstrip()
