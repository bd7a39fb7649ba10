"""The look of each curve: a colour, and a glyph that identifies it without colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from .raster import Marker

Tone: TypeAlias = Literal["dark", "light", "ansi-dark", "ansi-light"]
# Red, green and blue, or the number of one of the terminal's own sixteen colours.
PenColor: TypeAlias = tuple[int, int, int] | int

# Blue against orange first, which colour-blind people tell apart; every colour of ours has a
# contrast of at least 4.5 to 1 on Textual's own backgrounds.
_TRAINING: dict[Tone, tuple[PenColor, ...]] = {
    "dark": ((92, 167, 255), (94, 208, 140), (205, 150, 255), (80, 208, 214)),
    "light": ((0, 88, 190), (10, 110, 60), (120, 50, 170), (0, 105, 115)),
    "ansi-dark": (12, 10, 13, 14),
    "ansi-light": (4, 2, 6, 8),
}
_VALIDATION: dict[Tone, tuple[PenColor, ...]] = {
    "dark": ((255, 178, 77), (255, 135, 135), (240, 220, 100), (255, 150, 215)),
    "light": ((150, 62, 0), (185, 20, 50), (115, 90, 0), (165, 20, 110)),
    "ansi-dark": (11, 9, 3, 5),
    "ansi-light": (5, 1, 3, 13),
}
_ALARM: dict[Tone, PenColor] = {
    "dark": (255, 110, 110),
    "light": (190, 0, 20),
    "ansi-dark": 9,
    "ansi-light": 1,
}

_TRAINING_GLYPHS = {"unicode": "─◆■▲", "ascii": "*+#%"}
_VALIDATION_GLYPHS = {"unicode": "●○□△", "ascii": "oxvw"}


@dataclass(frozen=True, slots=True)
class Pen:
    """How one curve is drawn.

    Attributes:
        color: Its colour.
        glyph: Marks the curve in the legend and, for points and beads, in the plot.
        is_points: Draw every sample as a glyph of its own and no line.
        has_beads: Put the glyph on the line here and there: a second line needs more than a colour.
    """

    color: PenColor
    glyph: str
    is_points: bool = False
    has_beads: bool = False


def pen_for(slot: int, marker: Marker, tone: Tone, *, is_validation: bool) -> Pen:
    """The pen of the `slot`-th training or validation curve of a chart, counted from 0."""
    glyphs = (_VALIDATION_GLYPHS if is_validation else _TRAINING_GLYPHS)["ascii" if marker == "ascii" else "unicode"]
    colors = (_VALIDATION if is_validation else _TRAINING)[tone]
    # If one character is one dot, the line already consists of its glyph.
    has_beads = not is_validation and slot % len(glyphs) > 0 and marker != "ascii"
    return Pen(colors[slot % len(colors)], glyphs[slot % len(glyphs)], is_validation, has_beads)


def alarm_color(tone: Tone) -> PenColor:
    """Return the colour of errors."""
    return _ALARM[tone]
