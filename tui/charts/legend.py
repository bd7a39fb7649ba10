"""The line above a chart: its title, the values of every curve, and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rich.style import Style
from rich.text import Text

from ..text.numbers import clock
from .pens import pen_for
from .scale import format_value

if TYPE_CHECKING:
    from .cursor import Reading
    from .pens import Pen, PenColor, Tone

_DIM = Style(dim=True)
_POINTED = Style(bold=True, underline=True)
_SHORT = {"learning_rate": "lr", "accuracy": "acc"}


@dataclass(frozen=True, slots=True)
class Entry:
    """What the legend says of one curve."""

    name: str  # the metric's name
    pen: Pen  # how the curve is drawn
    value: float  # at the cursor or newest, NaN included
    best: float | None = None  # best value so far of a validation metric; None for others, and while there is none
    best_epoch: float = 0.0  # the epoch in which it was measured
    running: bool = False  # whether the value is the mean of the epoch so far
    is_pointed: bool = False  # whether the pointer is on the curve


_Wording: TypeAlias = Callable[[Entry, str], str]


def style_of(color: PenColor) -> Style:
    """The rich style of a pen's colour."""
    if isinstance(color, int):
        return Style(color=f"color({color})")
    red, green, blue = color
    return Style(color=f"rgb({red},{green},{blue})")


def legend_line(entries: Sequence[Entry], title: str, width: int) -> Text:
    """All `entries`, in drawing order, in one line of at most `width` columns, in fewer words the narrower it is.

    A curve of the chart's title is `train`, its validation curve `val`; the star is the best value, with its epoch.
    """
    lines = legends_of(entries, title)
    line = next((line for line in lines if line.cell_len <= width), lines[-1])
    line.truncate(width, overflow="ellipsis")
    return line


def header_line(title: str, legends: Sequence[Text], notes: Sequence[tuple[str, Style]], width: int) -> Text:
    """The title, the longest of some legends that fits, and on the right the notes, most important first.

    The last note is the first to go; the others go only once no legend is short enough.
    """
    choices = [(legend, count) for legend in legends for count in (len(notes), max(len(notes) - 1, 0))]
    choices += [(legends[-1], count) for count in range(len(notes) - 2, -1, -1)]
    for legend, count in choices:
        left = Text.assemble((title, "bold"), "  " if legend.plain else "", legend, no_wrap=True)
        right = Text("  ").join(Text(note, style) for note, style in notes[:count])
        if left.cell_len + (2 if right else 0) + right.cell_len <= width:
            break
    left.truncate(max(width - right.cell_len, 0), overflow="ellipsis", pad=True)
    return left.append_text(right)


def legends_of(entries: Sequence[Entry], title: str) -> list[Text]:
    """The legend in fewer and fewer words."""
    return [_assemble(entries, wording, title, gap) for wording, gap in _WORDINGS]


def _assemble(entries: Sequence[Entry], wording: _Wording, title: str, gap: str) -> Text:
    return Text(gap).join(
        Text.assemble(
            (entry.pen.glyph, style_of(entry.pen.color)),
            " ",
            (wording(entry, title), _POINTED if entry.is_pointed else ""),
        )
        for entry in entries
    )


def _short_name(entry: Entry, title: str) -> str:
    bare = entry.name.removeprefix("val_")
    return entry.name if bare != title else "val" if bare != entry.name else "train"


def _marked_name(entry: Entry, title: str) -> str:
    return f"{_short_name(entry, title)}~" if entry.running else _short_name(entry, title)


def _in_full(entry: Entry, title: str) -> str:
    best = "" if entry.best is None else f" ★ {format_value(entry.best)} ({entry.best_epoch:g})"
    return f"{_marked_name(entry, title)} {format_value(entry.value)}{best}".lstrip()


def _rounded(entry: Entry, title: str) -> str:
    best = "" if entry.best is None else f" ★ {format_value(entry.best, 3)} ({entry.best_epoch:g})"
    return _latest(entry, title) + best


def _best_epoch(entry: Entry, title: str) -> str:
    """Write the latest value, which shows overfitting beside that of training, and the best epoch."""
    return _latest(entry, title) + ("" if entry.best is None else f" ★({entry.best_epoch:g})")


def _latest(entry: Entry, title: str) -> str:
    return f"{_marked_name(entry, title)} {format_value(entry.value, 3)}".lstrip()


def _dense(entry: Entry, title: str) -> str:
    """Leave the 0 before the point out too, rather than the best epoch."""
    best = "" if entry.best is None else f" ★{entry.best_epoch:g}"
    value = format_value(entry.value, 3)
    return f"{_marked_name(entry, title)} {value[value.startswith('0.') :]}{best}".lstrip()


_WORDINGS = ((_in_full, "  "), (_rounded, "  "), (_best_epoch, "  "), (_dense, " "), (_latest, "  "))


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
