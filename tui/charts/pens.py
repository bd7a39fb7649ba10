"""The look of each curve: a colour, and a glyph that identifies it without colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from textual.theme import Theme

    from .raster import Marker

Tone: TypeAlias = Literal["dark", "light", "ansi-dark", "ansi-light"]
# Red, green and blue, or the number of one of the terminal's own sixteen colours.
PenColor: TypeAlias = tuple[int, int, int] | int

# After Okabe and Ito: people who cannot see red, green or blue can distinguish training from validation in each slot.
# Every colour has a contrast of at least 4.5 to 1 on Textual's own backgrounds.
_TRAINING: dict[Tone, tuple[PenColor, ...]] = {
    "dark": ((86, 180, 233), (214, 130, 178), (0, 168, 122), (140, 130, 255)),
    "light": ((0, 95, 155), (160, 40, 110), (0, 105, 75), (80, 50, 190)),
    "ansi-dark": (12, 13, 10, 14),
    "ansi-light": (4, 5, 2, 6),
}
_VALIDATION: dict[Tone, tuple[PenColor, ...]] = {
    "dark": ((240, 160, 20), (240, 228, 66), (238, 102, 40), (250, 200, 190)),
    "light": ((150, 80, 0), (105, 95, 0), (180, 50, 0), (110, 60, 50)),
    "ansi-dark": (11, 3, 9, 7),
    "ansi-light": (1, 3, 9, 8),
}
_ALARM: dict[Tone, PenColor] = {"dark": (255, 110, 110), "light": (190, 0, 20), "ansi-dark": 9, "ansi-light": 1}

SLOTS = 4
_FAINT = 0.45


@dataclass(frozen=True, slots=True)
class Pen:
    """How one curve is drawn."""

    color: PenColor  # its colour
    faint: PenColor  # the colour of what stands behind its line
    glyph: str  # marks the curve in the legend and, for points and beads, in the plot
    has_points: bool = False  # draw every sample as a glyph too, while there is room for that
    is_dashed: bool = False  # draw the line with gaps, and the glyph on it here and there
    has_letters: bool = False  # put the glyph beside the line here and there, where nothing is drawn


def pen_for(slot: int, marker: Marker, tone: Tone, *, is_validation: bool, has_color: bool = True) -> Pen:
    """The pen of a training or validation curve, in one of the `SLOTS` colours that it may have."""
    glyph = ("o" if is_validation else "*") if marker == "ascii" else "●" if is_validation else "─"
    color = (_VALIDATION if is_validation else _TRAINING)[tone][slot]
    is_dashed = is_validation and (marker == "ascii" or not has_color)
    return Pen(color, _faint(color, tone), glyph, is_validation, is_dashed)


def _faint(color: PenColor, tone: Tone) -> PenColor:
    """Return a colour nearer to the background; the terminal's own sixteen are drawn dim instead."""
    if isinstance(color, int):
        return color
    away = 0 if tone == "dark" else 255
    red, green, blue = (round(away + _FAINT * (part - away)) for part in color)
    return red, green, blue


def tone_of(theme: Theme) -> Tone:
    """Return the kind of a theme, by which colours are chosen."""
    if (theme.foreground or "").startswith("ansi_"):
        return "ansi-dark" if theme.dark else "ansi-light"
    return "dark" if theme.dark else "light"


def alarm_color(tone: Tone) -> PenColor:
    """Return the colour of errors."""
    return _ALARM[tone]
