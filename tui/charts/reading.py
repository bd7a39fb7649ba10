"""Writes what the curves are at the cursor in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from ..text.numbers import clock
from .legend import style_of
from .pens import pen_for
from .ticks import format_value

if TYPE_CHECKING:
    from .cursor import Reading, ReadValue
    from .pens import Tone

_SHORT = {"learning_rate": "lr", "accuracy": "acc"}


def reading_line(reading: Reading, width: int, tone: Tone | None = None) -> Text:
    """Write the place and every value in one line of at most `width` columns, shorter where that is too long.

    Args:
        reading: What to write.
        width: Width in columns.
        tone: The kind of theme, for values in the colours of their curves; None for no colours.
    """
    line = Text()
    for digits, is_short in ((4, False), (4, True), (3, True)):
        line = _line(reading, tone, digits, is_short=is_short)
        if line.cell_len <= width:
            return line
    line.truncate(width, overflow="ellipsis")
    return line


def _line(reading: Reading, tone: Tone | None, digits: int, *, is_short: bool) -> Text:
    if is_short:
        line = Text(f"{reading.step:,.0f} ep {reading.epoch:.4g} {clock(reading.elapsed_s)}", no_wrap=True)
    else:
        place = f"step {reading.step:,.0f} · epoch {reading.epoch:.4g} · {clock(reading.elapsed_s)}"
        line = Text(place, no_wrap=True)
    before = ""
    for value in reading.values:
        bare = value.name.removeprefix("val_")
        name = _SHORT.get(bare, bare) if is_short or bare == "learning_rate" else bare
        if value.is_validation:
            name = "val" if bare == before else f"val {name}"
        # Both values of a metric are close together, and metrics apart.
        gap = "  " if bare == before or is_short else "    "
        line.append(gap).append(_written(value, name, tone, digits))
        before = bare
    return line


def _written(value: ReadValue, name: str, tone: Tone | None, digits: int) -> Text:
    number = "n/a" if value.value is None else format_value(value.value, digits)
    color = Style() if tone is None else style_of(pen_for(0, "braille", tone, is_validation=value.is_validation).color)
    return Text.assemble((f"{name}{'~' if value.running else ''}", Style(dim=True)), " ", (number, color))
