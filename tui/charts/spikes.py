"""Marks where samples lie beyond the vertical range of a plot."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from .canvas import Layer
from .ticks import format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .canvas import Canvas
    from .curve import IndexArray
    from .series import Line

ABOVE, BELOW = "▲", "▼"
PLAIN_ABOVE = "^"
"""For ASCII, where the other one would look like the sign of a warning."""
_APART = 2  # columns between two spikes that each have a mark


def spike_layers(lines: Sequence[Line], canvas: Canvas, taken: set[tuple[int, int]], *, log_scale: bool) -> list[Layer]:
    """Mark where samples lie beyond the vertical range, with the farthest value where there is room for it.

    Nothing is drawn into the cells that are taken. In the log scale, values are decimal logarithms.
    """
    layers = []
    above = PLAIN_ABOVE if canvas.marker == "ascii" else ABOVE
    low, high = canvas.y.ends
    for glyph, row, sign, edge in ((above, canvas.y.cells - 1, 1, high), (BELOW, 0, -1, low)):
        peaks = _peaks([(line, np.flatnonzero(sign * line.y > sign * edge)) for line in lines], canvas, sign)
        labels = {at: format_value(10.0**value if log_scale else value, 3) for at, value in peaks.items()}
        text = _beside(labels, glyph, canvas.x.cells, {column for column, at in taken if at == row})
        layers.append(Layer([*text], [row] * len(text), [*text.values()], None))
    return [layer for layer in layers if layer.columns]


def _peaks(outside: Sequence[tuple[Line, IndexArray]], canvas: Canvas, sign: int) -> dict[int, float]:
    """Return the farthest value of each spike by its column.

    A spike is a row of samples beyond the range without a gap, above it if the sign is 1, below it if it is -1.
    """
    spikes = []
    for line, at in outside:
        columns = canvas.x.dots(line.x[at], 1).tolist()
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
