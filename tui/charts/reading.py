"""Writes what the curves are at the cursor in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from ..text.numbers import clock
from .ticks import format_value

if TYPE_CHECKING:
    from .cursor import Reading, ReadValue


def reading_line(reading: Reading, width: int) -> Text:
    """Write the place and every value in one line of at most `width` columns."""
    place = f"step {reading.step:,.0f} · epoch {reading.epoch:.4g} · {clock(reading.elapsed_s)}"
    line = Text(place, no_wrap=True)
    for value in reading.values:
        line.append("  ").append(_written(value))
    line.truncate(width, overflow="ellipsis")
    return line


def _written(value: ReadValue) -> Text:
    number = "–" if value.value is None else format_value(value.value)
    return Text.assemble((value.name, Style(dim=True)), " ", number)
