"""The two lines above a chart: its title with notes, and the values of every curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rich.style import Style
from rich.text import Text

from .ticks import format_value

if TYPE_CHECKING:
    from .pens import Pen, PenColor


@dataclass(frozen=True, slots=True)
class Entry:
    """What the legend says of one curve."""

    name: str  # the metric's name
    pen: Pen  # how the curve is drawn
    latest: float  # newest value, NaN included
    best: float | None = None  # best value so far of a validation metric; None for others, and while there is none
    best_epoch: float = 0.0  # the epoch in which it was measured
    running: bool = False  # whether the value is the mean of the epoch so far


_Wording: TypeAlias = Callable[[Entry, str], str]


def style_of(color: PenColor) -> Style:
    """The rich style of a pen's colour."""
    if isinstance(color, int):
        return Style(color=f"color({color})")
    red, green, blue = color
    return Style(color=f"rgb({red},{green},{blue})")


def legend_line(entries: Sequence[Entry], title: str, width: int) -> Text:
    """All `entries`, in drawing order, in one line of at most `width` columns, in fewer words the narrower it is.

    A curve of the chart's title is `train`, its validation curve `val`.
    """
    wordings = (_in_full, _best_in_full, _best_starred, _best_rounded, _best_latest, _best_epoch, _latest_rounded)
    line = Text()
    for wording in wordings:
        line = _assemble(entries, wording, title)
        if line.cell_len <= width:
            break
    line.truncate(width, overflow="ellipsis")
    return line


def title_line(title: str, notes: Sequence[tuple[str, Style]], width: int) -> Text:
    """The title on the left and as many `notes`, most important first, as fit on the right."""
    left, right = Text(title, "bold"), Text()
    for fitting in range(len(notes), -1, -1):
        right = Text("  ").join(Text(note, style) for note, style in notes[:fitting])
        if left.cell_len + 1 + right.cell_len <= width:
            break
    left.truncate(max(width - right.cell_len, 0), overflow="ellipsis", pad=True)
    return left.append_text(right)


def _assemble(entries: Sequence[Entry], wording: _Wording, title: str) -> Text:
    return Text("  ").join(
        Text.assemble((entry.pen.glyph, style_of(entry.pen.color)), " ", wording(entry, title)) for entry in entries
    )


def _short_name(entry: Entry, title: str) -> str:
    bare = entry.name.removeprefix("val_")
    return entry.name if bare != title else "val" if bare != entry.name else "train"


def _marked_name(entry: Entry, title: str) -> str:
    return f"{_short_name(entry, title)}~" if entry.running else _short_name(entry, title)


def _in_full(entry: Entry, title: str) -> str:
    running = " (running)" if entry.running else ""
    return f"{_short_name(entry, title)}{running} {format_value(entry.latest)}{_best_words(entry)}"


def _best_in_full(entry: Entry, title: str) -> str:
    return f"{_marked_name(entry, title)} {format_value(entry.latest)}{_best_words(entry)}"


def _best_words(entry: Entry) -> str:
    return "" if entry.best is None else f" (best {format_value(entry.best)} in epoch {entry.best_epoch:g})"


def _best_starred(entry: Entry, title: str) -> str:
    best = "" if entry.best is None else f" ★{format_value(entry.best)} ep {entry.best_epoch:g}"
    return f"{_marked_name(entry, title)} {format_value(entry.latest)}{best}"


def _best_rounded(entry: Entry, title: str) -> str:
    best = "" if entry.best is None else f" ★{format_value(entry.best, 3)} ep{entry.best_epoch:g}"
    return _latest_rounded(entry, title) + best


def _best_latest(entry: Entry, title: str) -> str:
    """Write the latest value, which shows overfitting beside that of training, and the best epoch."""
    best = "" if entry.best is None else f" ★ep{entry.best_epoch:g}"
    return _latest_rounded(entry, title) + best


def _best_epoch(entry: Entry, title: str) -> str:
    if entry.best is None:
        return _latest_rounded(entry, title)
    return f"{_marked_name(entry, title)} ★ep{entry.best_epoch:g}"


def _latest_rounded(entry: Entry, title: str) -> str:
    return f"{_marked_name(entry, title)} {format_value(entry.latest, 3)}"
