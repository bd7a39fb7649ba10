"""What stands around the curves: the line above with the legend, the axes with their labels, and the marks of a run."""

import enum
import itertools
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Self, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from tpu_console.engine.monitoring.alerts import lasting_alerts
from tpu_console.engine.runs.events import Steering
from tpu_console.engine.runs.state import RunState

from ..text.numbers import clock
from .curve import Axis, Curve, Place, Series, newest_at, sample_at
from .scale import format_value
from .scene import Pen, Scene, Tone, pen_for, style_of

_DIM = Style(dim=True)
_POINTED = Style(bold=True, underline=True)
_SHORT = {"learning_rate": "lr", "accuracy": "acc"}


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
    def of(cls, series: Series, pen: Pen, value: float | None) -> Self:
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


_FARTHEST = 8  # columns from a mark's place to where it stands if there is no room


class MarkKind(enum.Enum):
    """What is marked, by its sign; later kinds come first if there is no room for all."""

    LEARNING_RATE = "◆"
    PAUSE = "║"
    RESUME = "►"
    ALERT = "!"  # NaN too


class Mark(Struct, frozen=True):
    """A moment of a run."""

    kind: MarkKind  # what happened
    place: Place  # when
    label: str = ""  # what to write about it, such as `lr 1e-4`


def marks_of(state: RunState) -> Iterator[Mark]:
    """Yield the marks of a run: alerts, pauses, resumes and changes of the learning rate."""
    for resumed in state.resumed:
        yield Mark(MarkKind.RESUME, _at_step(state, resumed.step), "rolled back" if resumed.why else "resumed")
    for steered in state.steered:
        place = replace(_at_step(state, steered.step), elapsed_s=steered.elapsed_s)
        if steered.action == Steering.PAUSE and not steered.refused:
            yield Mark(MarkKind.PAUSE, place, "paused")
        elif steered.action == Steering.LEARNING_RATE and steered.after and not steered.refused:
            yield Mark(MarkKind.LEARNING_RATE, place, f"lr {steered.after:.3g}")
    for alert in lasting_alerts(state):
        yield Mark(MarkKind.ALERT, _at_step(state, alert.step), alert.kind.replace("_", " "))
    changed = {event.epoch for event in state.steered if event.action == Steering.LEARNING_RATE}
    for first, before, event in zip(state.epochs, state.epochs[1:], state.epochs[2:], strict=False):
        # A schedule changes the rate in every epoch: only a change after a constant rate is an event.
        rate, known = event.learning_rate, before.learning_rate
        is_event = known is not None and rate is not None and first.learning_rate == known != rate
        if is_event and event.epoch not in changed:
            start = Place(event.step - event.epoch_steps, event.epoch - 1.0, event.elapsed_s - event.seconds)
            yield Mark(MarkKind.LEARNING_RATE, start, f"lr {rate:.3g}")


def _at_step(state: RunState, step: int) -> Place:
    """Return the place of a step, by the next point of the training curves."""
    if not len(train := state.train):
        return Place(step, 0.0, 0.0)
    at = min(int(np.searchsorted(train.step.values, step)), len(train) - 1)
    return Place(step, float(train.epoch.values[at]), float(train.elapsed_s.values[at]))


def framed(scene: Scene, marks: Iterable[Mark], plain: Style, alarm: Style) -> list[Strip]:
    """Return the rows of a scene from the top down, with the marks below it; the styles are of text and of warnings."""
    columns, rows = scene.x.cells, scene.y.cells
    glyphs, looks = [[" "] * columns for _ in range(rows)], [[0] * columns for _ in range(rows)]
    styles = [plain]
    for look, layer in enumerate(scene.layers, 1):
        color = Style() if layer.color is None else style_of(layer.color)
        styles.append(plain + color + Style(dim=layer.is_dim))
        for (column, row), glyph in layer.cells.items():
            glyphs[row][column], looks[row][column] = glyph, look
    labels = {tick.cell: tick.label for tick in scene.y_ticks}
    margin = max(map(len, labels.values()), default=0)
    drawn = []
    for row in reversed(range(rows)):
        segments = [Segment(f"{labels.get(row, ''):>{margin}}{'┤' if row in labels else '│'}", plain)]
        for look, cells in itertools.groupby(zip(looks[row], glyphs[row], strict=True), key=itemgetter(0)):
            segments.append(Segment("".join(glyph for _, glyph in cells), styles[look]))
        drawn.append(Strip(segments, margin + 1 + columns))
    ticks = {tick.cell for tick in scene.x_ticks}
    axis = " " * margin + "└" + "".join("┬" if column in ticks else "─" for column in range(columns))
    return [*drawn, Strip([Segment(axis, plain)], len(axis)), _below(scene, marks, margin + 1, plain, alarm)]


def _below(scene: Scene, marks: Iterable[Mark], margin: int, plain: Style, alarm: Style) -> Strip:
    """Return the row below the axis: the labels of the ticks, and between them the marks, alerts first."""
    row = [" "] * (margin + scene.x.cells)
    for tick in scene.x_ticks:
        begin = max(0, min(margin + tick.cell - len(tick.label) // 2, len(row) - len(tick.label)))
        row[begin : begin + len(tick.label)] = tick.label
    styles = [plain] * len(row)
    for mark, columns in _merged(scene, marks):
        sign, gap = (f"{mark.kind.value}×{len(columns)}", " ") if len(columns) > 1 else (mark.kind.value, "")
        text, begin = _place(row, margin + columns[0], (f"{sign}{gap}{mark.label}", sign))
        row[begin : begin + len(text)] = text
        if mark.kind is MarkKind.ALERT:
            styles[begin : begin + len(text)] = [plain + alarm] * len(text)
    return Strip(Segment(sign, style) for sign, style in zip(row, styles, strict=True)).simplify()


def _place(row: Sequence[str], column: int, texts: Sequence[str]) -> tuple[str, int]:
    """Return the first of some texts for which there is room near a column, and where; else nothing."""
    for text in texts:
        for away in sorted(range(-_FARTHEST, _FARTHEST + 1), key=abs):
            begin = column + away
            around = row[max(begin - 1, 0) : begin + len(text) + 1]
            if begin >= 0 and begin + len(text) <= len(row) and not "".join(around).strip():
                return text, begin
    return "", column


def _merged(scene: Scene, marks: Iterable[Mark]) -> list[tuple[Mark, list[int]]]:
    """Return the visible marks with their columns; those that repeat where there is no room for both are one."""
    left, right = scene.x.ends
    visible = [(mark, x) for mark in marks if left <= (x := mark.place.along(scene.axis)) <= right]
    visible.sort(key=lambda seen: (-[*MarkKind].index(seen[0].kind), seen[0].label, seen[1]))
    at = scene.x.dots(np.array([x for _, x in visible]), 1).tolist()
    merged: list[tuple[Mark, list[int]]] = []
    for (mark, _), column in zip(visible, at, strict=True):
        last, columns = merged[-1] if merged else (mark, [])
        is_same = (last.kind, last.label) == (mark.kind, mark.label)
        if columns and is_same and column - columns[-1] < len(mark.label) + 4:
            columns.append(column)
        else:
            merged.append((mark, [column]))
    return merged


def with_crosshair(strip: Strip, column: int, *, is_axis: bool) -> Strip:
    """Return a row of a chart, or its axis, with the crosshair in a column; curves and marks stay visible."""
    line, empty = ("┴", "─┬└") if is_axis else ("┊", " ·")
    segments, at = list(strip), column
    for number, (text, style, _) in enumerate(segments):
        if at < len(text):  # each character is one cell
            if text[at] not in empty:
                break
            segments[number] = Segment(text[:at] + line + text[at + 1 :], style)
            return Strip(segments, strip.cell_length)
        at -= len(text)
    return strip
