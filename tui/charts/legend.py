"""The two lines above a chart: its title with notes, and the values of every curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rich.style import Style
from rich.text import Text

from tpu_console.engine.runs.state import lower_is_better

from .ticks import format_value

if TYPE_CHECKING:
    from .pens import Pen, PenColor


@dataclass(frozen=True, slots=True)
class Entry:
    """What the legend says of one curve.

    Attributes:
        name: The metric's name.
        pen: How the curve is drawn.
        latest: Newest value, NaN where it is one.
        best: Best value so far, NaN while there is none.
    """

    name: str
    pen: Pen
    latest: float
    best: float


_Wording: TypeAlias = Callable[[Entry, str], str]


def style_of(color: PenColor) -> Style:
    """The rich style of a pen's colour."""
    if isinstance(color, int):
        return Style(color=f"color({color})")
    red, green, blue = color
    return Style(color=f"rgb({red},{green},{blue})")


def legend_line(entries: Sequence[Entry], title: str, width: int) -> Text:
    """All `entries` in one line of at most `width` columns, in fewer words the narrower it is.

    Args:
        entries: The curves, in drawing order.
        title: The chart's title; a curve of that name is `train`, its held-out counterpart `val`.
        width: Width in columns.
    """
    wordings = (
        _in_full,
        _best_in_full,
        _best_as_arrow,
        _rounded_arrow,
        _held_out_arrow,
        _latest,
        _latest_rounded,
    )
    lines = (_assemble(entries, wording, title) for wording in wordings)
    line, fits = next(
        ((line, True) for line in lines if line.cell_len <= width),
        (_assemble(entries, _latest_rounded, title), False),
    )
    if not fits:
        line.truncate(width, overflow="ellipsis")
    return line


def title_line(title: str, notes: Sequence[tuple[str, Style]], width: int) -> Text:
    """The title on the left and as many `notes`, most important first, as fit on the right."""
    head = title
    fitting = len(notes)
    while fitting and len(head) + 1 + _width_of(notes[:fitting]) > width:
        fitting -= 1
    right = Text("  ").join(Text(note, style) for note, style in notes[:fitting])
    left = Text.assemble((head, "bold"))
    left.truncate(max(width - right.cell_len, 0), overflow="ellipsis", pad=True)
    return left.append_text(right)


def _width_of(notes: Sequence[tuple[str, Style]]) -> int:
    return sum(len(note) for note, _ in notes) + 2 * max(len(notes) - 1, 0)


def _assemble(entries: Sequence[Entry], wording: _Wording, title: str) -> Text:
    parts = []
    for entry in entries:
        words = wording(entry, title)
        parts.append(Text.assemble((entry.pen.glyph, style_of(entry.pen.color)), " ", words))
    return Text("  ").join(parts)


def _short_name(entry: Entry, title: str) -> str:
    bare = entry.name.removeprefix("val_")
    if bare != title:
        return entry.name
    return "val" if bare != entry.name else "train"


def _arrow(entry: Entry) -> str:
    return "↓" if lower_is_better(entry.name) else "↑"


def _in_full(entry: Entry, _title: str) -> str:
    return f"{entry.name} {format_value(entry.latest)} (best {format_value(entry.best)})"


def _best_in_full(entry: Entry, title: str) -> str:
    return f"{_short_name(entry, title)} {format_value(entry.latest)} (best {format_value(entry.best)})"


def _best_as_arrow(entry: Entry, title: str) -> str:
    best = f"{_arrow(entry)}{format_value(entry.best)}"
    return f"{_short_name(entry, title)} {format_value(entry.latest)} {best}"


def _rounded_arrow(entry: Entry, title: str) -> str:
    best = f"{_arrow(entry)}{format_value(entry.best, 3)}"
    return f"{_short_name(entry, title)} {format_value(entry.latest, 3)}{best}"


def _held_out_arrow(entry: Entry, title: str) -> str:
    """Write the best value of validation metrics, by which checkpoints are chosen, and the latest of others."""
    return (_best_as_arrow if entry.pen.is_points else _latest)(entry, title)


def _latest(entry: Entry, title: str) -> str:
    return f"{_short_name(entry, title)} {format_value(entry.latest)}"


def _latest_rounded(entry: Entry, title: str) -> str:
    return f"{_short_name(entry, title)} {format_value(entry.latest, 3)}"
