"""The line above a chart: its title, the values of every curve, and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from ..text.numbers import clock
from .curve import Axis, Curve, newest_at, sample_at
from .pens import Pen, PenColor, Tone, pen_for
from .scale import format_value

_DIM = Style(dim=True)
_POINTED = Style(bold=True, underline=True)
_SHORT = {"learning_rate": "lr", "accuracy": "acc"}


@dataclass(frozen=True, slots=True)
class Entry:
    """What the legend says of one curve."""

    name: str  # the metric's name
    pen: Pen  # how the curve is drawn
    value: float | None  # at the cursor or newest, NaN included; None before the first one
    best: float | None = None  # best value so far of a validation metric; None for others, and while there is none
    best_epoch: float = 0.0  # the epoch in which it was measured
    running: bool = False  # whether the value is the mean of the epoch so far
    is_pointed: bool = False  # whether the pointer is on the curve


Legend: TypeAlias = Sequence[tuple[str, Style | str]]
"""What stands beside a title, in pieces of one look."""

# From the longest to the shortest: the digits of a value, what is said of the best one, what stands between two curves,
# and whether the 0 before the point goes too, rather than the best epoch.
_WORDINGS = (
    (4, " ★ {best} ({epoch:g})", "  ", False),
    (3, " ★ {best} ({epoch:g})", "  ", False),
    (3, " ★({epoch:g})", "  ", False),
    (3, " ★{epoch:g}", " ", True),
    (3, "", "  ", False),
    (3, "", " ", True),
)


def style_of(color: PenColor) -> Style:
    """The rich style of a pen's colour."""
    if isinstance(color, int):
        return Style(color=f"color({color})")
    red, green, blue = color
    return Style(color=f"rgb({red},{green},{blue})")


def header_line(title: str, legends: Sequence[Legend], notes: Sequence[tuple[str, Style]], width: int) -> Text:
    """The title, the longest of some legends that fits, and on the right the notes, most important first.

    The last note is the first to go; the others go only once no legend is short enough.
    """
    choices = [(legend, count) for legend in legends for count in (len(notes), max(len(notes) - 1, 0))]
    choices += [(legend, count) for count in range(len(notes) - 2, -1, -1) for legend in legends]
    for legend, count in choices:
        left = [(title, "bold"), ("  " if title and legend else "", ""), *legend]
        right = "  ".join(note for note, _ in notes[:count])
        if cell_len("".join(text for text, _ in left)) + (2 if right else 0) + cell_len(right) <= width:
            break
    line = Text.assemble(*left, no_wrap=True)
    line.truncate(max(width - cell_len(right), 0), overflow="ellipsis", pad=True)
    return line.append_text(Text("  ").join(Text(note, style) for note, style in notes[:count]))


def legends_of(entries: Sequence[Entry], title: str) -> list[Legend]:
    """The legend of all entries, in drawing order, in fewer and fewer words.

    A curve of the chart's title is `train`, its validation curve `val`; the star is the best value, with its epoch.
    """
    return [
        [
            piece
            for number, entry in enumerate(entries)
            for piece in (
                (gap * (number > 0), ""),
                (entry.pen.glyph, style_of(entry.pen.color)),
                (" ", ""),
                (_worded(entry, title, digits, best, is_dense=is_dense), _POINTED if entry.is_pointed else ""),
            )
        ]
        for digits, best, gap, is_dense in _WORDINGS
    ]


def _worded(entry: Entry, title: str, digits: int, best: str, *, is_dense: bool) -> str:
    bare = entry.name.removeprefix("val_")
    name = entry.name if bare != title else "val" if bare != entry.name else "train"
    value = written(entry.value, digits)
    if is_dense and value.startswith("0."):
        value = value[1:]
    said = "" if entry.best is None else best.format(best=format_value(entry.best, digits), epoch=entry.best_epoch)
    return f"{name}{'~' if entry.running else ''} {value}{said}".lstrip()


def written(value: float | None, digits: int) -> str:
    """Write a value that may not have been measured yet."""
    return "n/a" if value is None else format_value(value, digits)


def reading_line(curves: Sequence[Curve], axis: Axis, x: float, width: int, tone: Tone) -> Text | None:
    """Write the newest sample of every curve at or before `x`, and where it is; None if there are no samples.

    The line has at most `width` columns, and fewer words where that is too long. Values have the colours of their
    curves.
    """
    if (ruler := newest_at(curves, axis, x)) is None:
        return None
    at = sample_at(ruler.along(axis), x)
    place = [float(column[at]) for column in (ruler.step, ruler.epoch, ruler.elapsed_s)]
    values = [(curve, curve.at(axis, x)) for curve in curves]
    parts: list[tuple[str, Style]] = []
    for digits, is_short in ((4, False), (4, True), (3, True)):
        parts = _parts(place, values, tone, digits, is_short=is_short)
        if sum(len(text) for text, _ in parts) <= width:
            break
    else:
        parts[0] = parts[0][0].removeprefix("step "), Style()
    while len(parts) > 1 and sum(len(text) for text, _ in parts) > width:
        del parts[-2:]  # a name and its value, not a part of a number
    line = Text.assemble(*parts, no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line


def _parts(
    place: Sequence[float], values: Sequence[tuple[Curve, float | None]], tone: Tone, digits: int, *, is_short: bool
) -> list[tuple[str, Style]]:
    step, epoch, elapsed_s = place
    words = ("step {:,.0f} ep {:.4g} {}" if is_short else "step {:,.0f} · epoch {:.4g} · {}").format(
        step, epoch, clock(elapsed_s)
    )
    parts = [(words, Style())]
    before = ""
    for curve, value in values:
        bare = curve.name.removeprefix("val_")
        name = _SHORT.get(bare, bare) if is_short or bare == "learning_rate" else bare
        if curve.is_validation:
            name = "val" if bare == before else f"val {name}"
        # Both values of a metric are close together, and metrics apart.
        gap = " " * ((1 if bare == before else 2) * (1 if is_short else 2))
        look = style_of(pen_for(0, "braille", tone, is_validation=curve.is_validation).color)
        parts += [(f"{gap}{name}{'~' if curve.running else ''} ", _DIM), (written(value, digits), look)]
        before = bare
    return parts
