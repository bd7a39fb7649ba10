"""The look of each curve: a colour, and a glyph that identifies it without colour."""

from __future__ import annotations

import zlib
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
_TRAINING_GLYPHS = {"unicode": "─■+×", "ascii": "*+#%"}
_VALIDATION_GLYPHS = {"unicode": "●○□△", "ascii": "oxvw"}


@dataclass(frozen=True, slots=True)
class Pen:
    """How one curve is drawn."""

    color: PenColor  # its colour
    faint: PenColor  # the colour of what stands behind its line
    glyph: str  # marks the curve in the legend and, for points and beads, in the plot
    has_points: bool = False  # draw every sample as a glyph too, while there is room for that
    has_beads: bool = False  # put the glyph on the line here and there: a second line needs more than a colour
    is_dashed: bool = False  # draw the line with gaps: without colours, validation needs more than beads
    has_letters: bool = False  # put the glyph beside the line here and there, where nothing is drawn


def pen_for(slot: int, marker: Marker, tone: Tone, *, is_validation: bool, has_color: bool = True) -> Pen:
    """The pen of the training or validation curve of the metric with a number in its chart, from 0."""
    glyphs = (_VALIDATION_GLYPHS if is_validation else _TRAINING_GLYPHS)["ascii" if marker == "ascii" else "unicode"]
    colors = (_VALIDATION if is_validation else _TRAINING)[tone]
    # If one character is one dot, the line already consists of its glyph.
    has_beads = marker != "ascii" and (slot % len(glyphs) > 0 or (is_validation and not has_color))
    is_dashed = is_validation and (marker == "ascii" or not has_color)
    color = colors[slot % len(colors)]
    return Pen(color, _faint(color, tone), glyphs[slot % len(glyphs)], is_validation, has_beads, is_dashed)


def _faint(color: PenColor, tone: Tone) -> PenColor:
    """Return a colour nearer to the background; the terminal's own sixteen are drawn dim instead."""
    if isinstance(color, int):
        return color
    away = 0 if tone == "dark" else 255
    red, green, blue = (round(away + _FAINT * (part - away)) for part in color)
    return red, green, blue


def slot_of(name: str, title: str, taken: dict[str, int]) -> int:
    """Return a metric's number in its chart, and note it in `taken`: the same in every run, if no other one has it.

    The metric of the chart's title is number 0; with `val_`, it is the same metric.
    """
    bare = name.removeprefix("val_")
    if bare not in taken:
        others, wish = SLOTS - 1, zlib.crc32(bare.encode())
        order = [0] if bare == title else [*(1 + (wish + i) % others for i in range(others)), 0]
        taken[bare] = next((slot for slot in order if slot not in taken.values()), order[0])
    return taken[bare]


def tone_of(theme: Theme) -> Tone:
    """Return the kind of a theme, by which colours are chosen."""
    if (theme.foreground or "").startswith("ansi_"):
        return "ansi-dark" if theme.dark else "ansi-light"
    return "dark" if theme.dark else "light"


def alarm_color(tone: Tone) -> PenColor:
    """Return the colour of errors."""
    return _ALARM[tone]
