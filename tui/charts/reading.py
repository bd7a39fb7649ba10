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
    from .cursor import Reading
    from .pens import Tone

_DIM = Style(dim=True)
_SHORT = {"learning_rate": "lr", "accuracy": "acc"}


def reading_line(reading: Reading, width: int, tone: Tone | None = None) -> Text:
    """Write the place and every value in one line of at most `width` columns, shorter where that is too long.

    The tone is the kind of theme, for values in the colours of their curves; None for no colours.
    """
    parts: list[tuple[str, Style]] = []
    for digits, is_short in ((4, False), (4, True), (3, True)):
        parts = _parts(reading, tone, digits, is_short=is_short)
        if sum(len(text) for text, _ in parts) <= width:
            break
    else:
        parts[0] = parts[0][0].removeprefix("step "), Style()
    while len(parts) > 1 and sum(len(text) for text, _ in parts) > width:
        del parts[-2:]  # a name and its value, not a part of a number
    line = Text.assemble(*parts, no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line


def _parts(reading: Reading, tone: Tone | None, digits: int, *, is_short: bool) -> list[tuple[str, Style]]:
    place = f"step {reading.step:,.0f} ep {reading.epoch:.4g} {clock(reading.elapsed_s)}"
    if not is_short:
        place = f"step {reading.step:,.0f} · epoch {reading.epoch:.4g} · {clock(reading.elapsed_s)}"
    parts = [(place, Style())]
    colors = [
        Style() if tone is None else style_of(pen_for(0, "braille", tone, is_validation=bool(held)).color)
        for held in (0, 1)
    ]
    before = ""
    for value in reading.values:
        bare = value.name.removeprefix("val_")
        name = _SHORT.get(bare, bare) if is_short or bare == "learning_rate" else bare
        if value.is_validation:
            name = "val" if bare == before else f"val {name}"
        # Both values of a metric are close together, and metrics apart.
        gap = " " * ((1 if bare == before else 2) * (1 if is_short else 2))
        number = "n/a" if value.value is None else format_value(value.value, digits)
        parts += [(f"{gap}{name}{'~' if value.running else ''} ", _DIM), (number, colors[value.is_validation])]
        before = bare
    return parts
