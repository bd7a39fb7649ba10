"""Bar charts in plain text: a label, figures in aligned columns, and a bar that fills the rest of the line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import set_cell_size

from .cells import clipped, widest

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
    labels = [headings[0], *(bar.label for bar in bars)]
    figures = [
        _aligned([heading, *(bar.figures[column] for bar in bars)]) for column, heading in enumerate(headings[1:])
    ]
    taken = sum(len(column[0]) + len(_GAP) for column in figures) + len(_GAP)
    label_cells = min(widest(labels), max(8, min(width // 2, width - taken - _SHORTEST)))
    cells = max(1, min(_LONGEST, width - taken - label_cells))
    top = max((bar.value for bar in bars), default=0) or 1
    fitted = (set_cell_size(clipped(label, label_cells), label_cells) for label in labels)
    drawn = ["", *(_bar(bar.value / top, cells) for bar in bars)]
    return [_GAP.join(row).rstrip() for row in zip(fitted, *figures, drawn, strict=True)]


def _aligned(texts: Sequence[str]) -> list[str]:
    longest = max(len(text) for text in texts)
    return [text.rjust(longest) for text in texts]


def _bar(share: float, cells: int) -> str:
    """Draw a bar; the bar of a value above 0 is always visible."""
    if not share:
        return ""
    whole, eighths = divmod(max(1, round(share * cells * 8)), 8)
    return "█" * whole + (_EIGHTHS[eighths - 1] if eighths else "")
