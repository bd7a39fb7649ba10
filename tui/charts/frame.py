"""A scene as rows of text: its glyphs, the labels on the left, and the horizontal axis with the marks below it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from .legend import style_of
from .marks import STRETCHES, MarkKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .scene import Scene

_SIGNS = {
    MarkKind.VALIDATION: "━",
    MarkKind.COMPILE: "═",
    MarkKind.LEARNING_RATE: "◆",
    MarkKind.PAUSE: "║",
    MarkKind.RESUME: "►",
    MarkKind.ALERT: "!",
    MarkKind.NAN: "!",
}
_ALARMS = {MarkKind.ALERT, MarkKind.NAN}
_FARTHEST = 8  # columns from a mark's place to where it stands if there is no room


@dataclass(frozen=True, slots=True)
class AxisMark:
    """A mark in the unit of the horizontal axis."""

    kind: MarkKind  # what is marked
    begin: float  # where it begins
    end: float  # where it ends
    label: str = ""  # what to write about it
    count: int = 1  # how many it stands for


def framed(scene: Scene, marks: Sequence[AxisMark], plain: Style, alarm: Style) -> list[Strip]:
    """Return the rows of a scene from the top down, with the marks in it; the styles are of text and of warnings."""
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
    axis = Strip([Segment(" " * margin + "└" + _axis(scene, marks), plain)], margin + 1 + columns)
    return [*drawn, axis, _below(scene, marks, margin + 1, plain, alarm)]


def _axis(scene: Scene, marks: Iterable[AxisMark]) -> str:
    """Return the axis with ticks and stretches."""
    line = ["─"] * scene.x.cells
    stretches = [mark for mark in marks if mark.kind in STRETCHES]
    for mark in sorted(stretches, key=lambda mark: [*MarkKind].index(mark.kind)):
        begin, end = scene.x.cell(mark.begin), scene.x.cell(mark.end) + 1
        line[begin:end] = _SIGNS[mark.kind] * (end - begin)
    for tick in scene.x_ticks:
        line[tick.cell] = "┬"
    return "".join(line)


def _below(scene: Scene, marks: Iterable[AxisMark], margin: int, plain: Style, alarm: Style) -> Strip:
    """Return the row below the axis: the labels of the ticks, and between them the moments, alarms first."""
    row = [" "] * (margin + scene.x.cells)
    for tick in scene.x_ticks:
        begin = max(0, min(margin + tick.cell - len(tick.label) // 2, len(row) - len(tick.label)))
        row[begin : begin + len(tick.label)] = tick.label
    styles = [plain] * len(row)
    for mark in _merged(scene, marks):
        count = str(mark.count) if mark.count > 1 else ""
        sign = _SIGNS[mark.kind] + count
        text, begin = _place(row, margin + scene.x.cell(mark.begin), (f"{sign}{' ' * bool(count)}{mark.label}", sign))
        row[begin : begin + len(text)] = text
        if mark.kind in _ALARMS:
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


def _merged(scene: Scene, marks: Iterable[AxisMark]) -> list[AxisMark]:
    """Return the moments, alarms first; those that repeat where there is no room for both are one."""
    moments = [mark for mark in marks if mark.kind not in STRETCHES]
    merged: list[AxisMark] = []
    for mark in sorted(moments, key=lambda mark: (-[*MarkKind].index(mark.kind), mark.label, mark.begin)):
        last = merged[-1] if merged else None
        if last is not None and (last.kind, last.label) == (mark.kind, mark.label):
            distance = scene.x.cell(mark.begin) - scene.x.cell(last.end)
            if distance < len(mark.label) + 4:
                merged[-1] = replace(last, end=mark.begin, count=last.count + mark.count)
                continue
        merged.append(mark)
    return merged


_LINE, _FOOT = "┊", "┴"
_EMPTY = frozenset(" ·")
_AXIS = frozenset("─┬└")


def with_crosshair(strip: Strip, column: int, *, is_axis: bool) -> Strip:
    """Return a row of a chart, or its axis, with the crosshair in a column; curves and marks stay visible."""
    line, empty = (_FOOT, _AXIS) if is_axis else (_LINE, _EMPTY)
    segments, at = list(strip), column
    for number, (text, style, _) in enumerate(segments):
        if at < len(text):  # each character is one cell
            if text[at] not in empty:
                break
            segments[number] = Segment(text[:at] + line + text[at + 1 :], style)
            return Strip(segments, strip.cell_length)
        at -= len(text)
    return strip
