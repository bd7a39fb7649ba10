"""What stands at the edges of a plot: spikes beyond its range, and marks on the horizontal axis."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .canvas import Canvas, Layer
from .marks import STRETCHES, MarkKind
from .raster import scale
from .ticks import format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .curve import IndexArray
    from .series import Line

ABOVE, BELOW = "▲", "▼"
PLAIN_ABOVE = "^"
"""For ASCII, where the other one would look like the sign of a warning."""
SPIKES = (ABOVE, PLAIN_ABOVE, BELOW)
_APART = 2  # columns between two spikes that each have a mark
_MARKS = {
    MarkKind.VALIDATION: "━",
    MarkKind.COMPILE: "═",
    MarkKind.LEARNING_RATE: "◆",
    MarkKind.PAUSE: "║",
    MarkKind.RESUME: "►",
    MarkKind.ALERT: "!",
    MarkKind.NAN: "!",
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A mark in the axis's unit."""

    kind: MarkKind  # what is marked
    begin: float  # where it begins
    end: float  # where it ends
    label: str = ""  # what to write about it


def spike_layers(lines: Sequence[Line], canvas: Canvas, taken: set[tuple[int, int]], *, log_scale: bool) -> list[Layer]:
    """Mark where samples lie beyond the vertical range, with the farthest value where there is room for it.

    Nothing is drawn into the cells that are taken. In the log scale, values are decimal logarithms.
    """
    layers = []
    above = PLAIN_ABOVE if canvas.marker == "ascii" else ABOVE
    for glyph, row, sign, edge in ((above, canvas.height - 1, 1, canvas.high), (BELOW, 0, -1, canvas.low)):
        peaks = _peaks([(line, np.flatnonzero(sign * line.y > sign * edge)) for line in lines], canvas, sign)
        labels = {at: format_value(10.0**value if log_scale else value, 3) for at, value in peaks.items()}
        text = _beside(labels, glyph, canvas.width, {column for column, at in taken if at == row})
        layers.append(Layer([*text], [row] * len(text), [*text.values()], None))
    return [layer for layer in layers if layer.columns]


def _peaks(outside: Sequence[tuple[Line, IndexArray]], canvas: Canvas, sign: int) -> dict[int, float]:
    """Return the farthest value of each spike by its column.

    A spike is a row of samples beyond the range without a gap, above it if the sign is 1, below it if it is -1.
    """
    spikes = []
    for line, at in outside:
        columns = scale(line.x[at], canvas.left, canvas.right, canvas.width).tolist()
        begins = [0, *(np.flatnonzero(np.diff(at) > 1) + 1).tolist(), len(at)]
        for begin, end in itertools.pairwise(begins):
            if begin < end:
                far = begin + int(np.argmax(sign * line.y[at[begin:end]]))
                spikes.append((columns[begin], columns[end - 1], columns[far], float(line.y[at[far]])))
    peaks: list[tuple[int, float]] = []
    reached = -_APART - 1
    for first, last, column, value in sorted(spikes):
        if first - reached > _APART:
            peaks.append((column, value))
        elif sign * value > sign * peaks[-1][1]:
            peaks[-1] = column, value
        reached = max(reached, last)
    return dict(peaks)


def _beside(labels: dict[int, str], glyph: str, width: int, busy: set[int]) -> dict[int, str]:
    """Return the characters of a row by column: glyphs, with their labels on the right or left.

    Labels stand where the row is empty or else, once there are no others in the way, over the curve next to the spike.
    """
    row = dict.fromkeys(labels, glyph)
    for column, label in labels.items():
        right, left = (column + 1, f" {label}"), (column - len(label) - 1, f"{label} ")
        for taken, (begin, text) in itertools.product((busy, set[int]()), (right, left)):
            places = range(begin, begin + len(text))
            around = {begin - 1, *places, places[-1] + 1} - {column}
            if begin >= 0 and places[-1] < width and not (taken | row.keys()) & around:
                row |= dict(zip(places, text, strict=True))
                break
    return row


def axis_marks(stretches: Sequence[Stretch], canvas: Canvas) -> dict[int, str]:
    """Return what stands on the horizontal axis by column: visible stretches, and moments with their labels."""
    order = [*MarkKind]
    a_cell = (canvas.right - canvas.left) / canvas.width
    marks: dict[int, str] = {}
    labels: list[tuple[int, str]] = []
    for stretch in sorted(stretches, key=lambda stretch: order.index(stretch.kind)):
        if not (stretch.end >= canvas.left and stretch.begin <= canvas.right):
            continue
        is_moment = stretch.kind not in STRETCHES
        if not is_moment and stretch.end - stretch.begin < a_cell / 2:
            continue
        ends = scale(np.array([stretch.begin, stretch.end]), canvas.left, canvas.right, canvas.width).tolist()
        marks |= dict.fromkeys(range(ends[0], ends[1] + 1), _MARKS[stretch.kind])
        if is_moment:
            labels.append((ends[1] + 1, stretch.label))
    # After all glyphs, so that none stands inside a label; alerts first.
    for begin, label in reversed(labels):
        places = range(begin, begin + len(label))
        if places and places[-1] < canvas.width and not marks.keys() & {*places}:
            marks |= dict(zip(places, label, strict=True))
    return marks
