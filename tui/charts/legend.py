"""How curves look, and the line above a chart: its title, the values of every curve, and notes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from ..text.numbers import clock
from .curve import Axis, Curve, Series, newest_at, sample_at
from .scale import format_value

if TYPE_CHECKING:
    from textual.theme import Theme


_DIM = Style(dim=True)
_POINTED = Style(bold=True, underline=True)
_SHORT = {"learning_rate": "lr", "accuracy": "acc"}


Marker: TypeAlias = Literal["braille", "block", "ascii"]
Tone: TypeAlias = Literal["dark", "light", "ansi-dark", "ansi-light"]
# Red, green and blue, or the number of one of the terminal's own sixteen colors.
PenColor: TypeAlias = tuple[int, int, int] | int

# After Okabe and Ito: people who cannot see red, green or blue can distinguish training from validation in each slot.
# Every color has a contrast of at least 4.5 to 1 on Textual's own backgrounds.
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
# The color of errors.
ALARM: dict[Tone, PenColor] = {"dark": (255, 110, 110), "light": (190, 0, 20), "ansi-dark": 9, "ansi-light": 1}
SLOTS = 4
_FAINT = 0.45


class Pen(Struct, frozen=True):
    """How one curve is drawn."""

    color: PenColor  # its color
    faint: PenColor  # the color of what stands behind its line
    glyph: str  # marks the curve in the legend and, for points and beads, in the plot
    has_points: bool = False  # draw every sample as a glyph too, while there is room for that
    is_dashed: bool = False  # draw the line with gaps, and the glyph on it here and there
    has_letters: bool = False  # put the glyph beside the line here and there, where nothing is drawn


def pen_for(slot: int, marker: Marker, tone: Tone, *, is_validation: bool, has_color: bool = True) -> Pen:
    """The pen of a training or validation curve, in one of the `SLOTS` colors that it may have."""
    glyph = ("o" if is_validation else "*") if marker == "ascii" else "●" if is_validation else "─"
    color = (_VALIDATION if is_validation else _TRAINING)[tone][slot]
    is_dashed = is_validation and (marker == "ascii" or not has_color)
    faint = color
    if not isinstance(color, int):  # the terminal's own sixteen are drawn dim instead
        away = 0 if tone == "dark" else 255
        red, green, blue = (round(away + _FAINT * (part - away)) for part in color)
        faint = red, green, blue
    return Pen(color, faint, glyph, is_validation, is_dashed)


def tone_of(theme: Theme) -> Tone:
    """Return the kind of a theme, by which colors are chosen."""
    if (theme.foreground or "").startswith("ansi_"):
        return "ansi-dark" if theme.dark else "ansi-light"
    return "dark" if theme.dark else "light"


class Entry(Struct, frozen=True):
    """What the legend says of one curve."""

    name: str  # the metric's name
    pen: Pen  # how the curve is drawn
    value: float | None  # at the cursor or newest, NaN included; None before the first one
    best: float | None = None  # best value so far of a validation metric; None for others, and while there is none
    best_epoch: float = 0.0  # the epoch in which it was measured
    running: bool = False  # whether the value is the mean of the epoch so far
    is_pointed: bool = False  # whether the pointer is on the curve

    @classmethod
    def of(cls, series: Series, pen: Pen, value: float | None) -> Entry:
        """Return what the legend says of a curve with a value."""
        curve, at = series.curve, series.best
        best, epoch = (None, 0.0) if at is None else (float(curve.value[at]), float(curve.epoch[at]))
        return cls(curve.name, pen, value, best, epoch, curve.running)


Legend: TypeAlias = Sequence[tuple[str, Style | str]]  # what stands beside a title, in pieces of one look
# From the longest to the shortest: the digits of a value, what is said of the best one, what stands between two curves,
# and whether the 0 before the decimal point is dropped, to keep the best epoch.
_WORDINGS = (
    (4, " ★ {best} ({epoch:g})", "  ", False),
    (3, " ★ {best} ({epoch:g})", "  ", False),
    (3, " ★({epoch:g})", "  ", False),
    (3, " ★{epoch:g}", " ", True),
    (3, "", " ", True),
)


def style_of(color: PenColor) -> Style:
    """The rich style of a pen's color."""
    return Style(color=f"color({color})" if isinstance(color, int) else "rgb({},{},{})".format(*color))


def header_line(title: str, legends: Iterable[Legend], notes: Sequence[tuple[str, Style]], width: int) -> Text:
    """The title, the longest of some legends that fits, and on the right the notes, most important first.

    The last note is the first to go; the others go only once no legend is short enough.
    """
    *longer, shortest = legends
    most = len(notes)
    choices = itertools.product((*longer, shortest), (most, max(most - 1, 0)))
    for legend, count in itertools.chain(choices, ((shortest, count) for count in range(most - 2, -1, -1))):
        left = [(title, "bold"), ("  " if title and legend else "", ""), *legend]
        right = "  ".join(note for note, _ in notes[:count])
        if cell_len("".join(text for text, _ in left)) + (2 if right else 0) + cell_len(right) <= width:
            break
    line = Text.assemble(*left, no_wrap=True)
    line.truncate(max(width - cell_len(right), 0), overflow="ellipsis", pad=True)
    return line.append_text(Text("  ").join(Text(note, style) for note, style in notes[:count]))


def legends_of(entries: Sequence[Entry], title: str) -> Iterator[Legend]:
    """Yield the legend of all entries, in drawing order, in fewer and fewer words.

    A curve of the chart's title is `train`, its validation curve `val`; the star is the best value, with its epoch.
    """
    for digits, best, gap, is_dense in _WORDINGS:
        pieces: list[tuple[str, Style | str]] = []
        for entry in entries:
            bare = entry.name.removeprefix("val_")
            name = entry.name if bare != title else "val" if bare != entry.name else "train"
            value = format_value(entry.value, digits)
            value = value.removeprefix("0") if is_dense and value.startswith("0.") else value
            said = f"{name}{'~' if entry.running else ''} {value}".lstrip()
            if entry.best is not None:
                said += best.format(best=format_value(entry.best, digits), epoch=entry.best_epoch)
            pieces += [(gap if pieces else "", ""), (entry.pen.glyph, style_of(entry.pen.color)), (" ", "")]
            pieces.append((said, _POINTED if entry.is_pointed else ""))
        yield pieces


def reading_line(curves: Sequence[Curve], axis: Axis, x: float, width: int, tone: Tone) -> Text | None:
    """Write the newest sample of every curve at or before `x`, and where it is; None if there are no samples.

    The line has at most `width` columns: fewer words if that is too long, and then fewer curves. Values have the
    colors of their curves.
    """
    if (ruler := newest_at(curves, axis, x)) is None:
        return None
    place = ruler.place(sample_at(ruler.along(axis), x))
    for digits, words in ((4, "step {:,.0f} · epoch {:.4g} · {}"), (3, "step {:,.0f} ep {:.4g} {}")):
        line, before = Text(words.format(place.step, place.epoch, clock(place.elapsed_s)), no_wrap=True), ""
        is_whole = True
        for curve in curves:
            bare = curve.name.removeprefix("val_")
            name = _SHORT.get(bare, bare) if digits == 3 or bare == "learning_rate" else bare
            if curve.is_validation:
                name = "val" if bare == before else f"val {name}"
            # Both curves of a metric stand close together, and metrics apart.
            name, before = f"{' ' if bare == before else '  '}{name}{'~' if curve.running else ''} ", bare
            value = format_value(curve.at(axis, x), digits)
            if not (is_whole := len(line) + len(name) + len(value) <= width):
                break
            color = pen_for(0, "braille", tone, is_validation=curve.is_validation).color
            line.append(name, _DIM).append(value, style_of(color))
        if is_whole and len(line) <= width:
            break
    line.truncate(width, overflow="ellipsis")
    return line
