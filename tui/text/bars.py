"""Bar charts in plain text: a label, figures in aligned columns, and a bar that fills the rest of the line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = "  "
_LONGEST = 50
_SHORTEST = 8
_EIGHTHS = "▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar."""

    label: str  # what the bar shows
    value: float  # its length, not negative
    figures: tuple[str, ...]  # the texts in the columns beside the label


def bar_chart(bars: Sequence[Bar], headings: Sequence[str], width: int) -> list[str]:
    """Draw a bar chart; the longest bar is the largest value. The headings are of the labels and each column."""
    figures = [_aligned([headings[column + 1], *(bar.figures[column] for bar in bars)])
               for column in range(len(headings) - 1)]  # fmt: skip
    taken = sum(len(column[0]) + len(_GAP) for column in figures) + len(_GAP)
    longest_label = max(cell_len(text) for text in [headings[0], *(bar.label for bar in bars)])
    label_cells = min(longest_label, max(8, min(width // 2, width - taken - _SHORTEST)))
    cells = max(1, min(_LONGEST, width - taken - label_cells))
    top = max((bar.value for bar in bars), default=0) or 1
    lines = []
    for number, label in enumerate([headings[0], *(bar.label for bar in bars)]):
        drawn = "" if number == 0 else _bar(bars[number - 1].value / top, cells)
        lines.append(_GAP.join([_fitted(label, label_cells), *(column[number] for column in figures), drawn]).rstrip())
    return lines


def _aligned(texts: Sequence[str]) -> list[str]:
    longest = max(len(text) for text in texts)
    return [text.rjust(longest) for text in texts]


def _fitted(text: str, cells: int) -> str:
    return set_cell_size(text if cell_len(text) <= cells else set_cell_size(text, cells - 1) + "…", cells)


def _bar(share: float, cells: int) -> str:
    """Draw a bar; the bar of a value above 0 is always visible."""
    if not share:
        return ""
    whole, eighths = divmod(max(1, round(share * cells * 8)), 8)
    return "█" * whole + (_EIGHTHS[eighths - 1] if eighths else "")
