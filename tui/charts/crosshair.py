"""Draws the crosshair over rows that are already drawn."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

_LINE, _FOOT = "┊", "┴"
_EMPTY = frozenset(" ·")
_AXIS = frozenset("─┬└")


def with_crosshair(strip: Strip, column: int, *, is_axis: bool) -> Strip:
    """Return a row of a chart, or its axis, with the crosshair in a column; curves and marks stay visible."""
    before, here, after = strip.divide([column, column + 1, strip.cell_length])
    glyph = here.text
    if is_axis:
        glyph = _FOOT if glyph in _AXIS else glyph
    elif glyph in _EMPTY:
        glyph = _LINE
    style = next(iter(here)).style
    return Strip.join([before, Strip([Segment(glyph, style)], 1), after])
