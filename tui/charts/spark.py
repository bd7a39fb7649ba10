"""Sparklines on the horizontal axis of a chart: one bar per cell, empty if nothing was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .curve import Axis, FloatArray
from .scale import x_scale, x_ticks

if TYPE_CHECKING:
    from .series import Series

_HELD_S = 5.0
_HELD_GAPS = 3.0


def cells_of(series: Series, axis: Axis, left: float, right: float, width: int, *, is_cut: bool = False) -> FloatArray:
    """Return the highest sample of each cell, shape ``(width,)``; NaN where there is none.

    Between two samples that follow each other as closely as samples do, the earlier one holds. Samples left of `left`
    are not drawn. A sample past the right end is drawn in the last cell, unless the part is cut: what is measured now
    is seen even while the curves stand still.
    """
    line, seconds = series.raw_line(axis), series.raw_line(Axis.TIME).x
    inside = (line.x >= left) & (line.x <= (right if is_cut else np.inf))
    x, y, seconds = line.x[inside], line.y[inside], seconds[inside]
    cells = np.full(width, np.nan)
    if not len(x):
        return cells
    scale = x_scale(left, right, width, axis)
    column = scale.dots(np.minimum(x, right), 1)
    gaps = np.diff(seconds)
    held = max(_HELD_S, _HELD_GAPS * float(np.median(gaps))) if len(gaps) else 0.0
    for at in np.flatnonzero((np.diff(column) > 1) & (gaps <= held)):
        cells[column[at] + 1 : column[at + 1]] = y[at]
    np.fmax.at(cells, column, y)
    return cells


def spark_rows(cells: FloatArray, top: float, height: int, levels: str) -> list[str]:
    """Return a sparkline's rows from the top down, each as wide as there are cells.

    Nothing is drawn where a cell is NaN, and a bar of the least height for 0; `top` is the value of a bar that fills
    all rows.
    """
    steps = len(levels)
    share = np.clip(np.nan_to_num(cells) / (top or 1.0), 0.0, 1.0)
    filled = np.where(np.isnan(cells), 0, np.maximum(1, np.rint(share * steps * height))).astype(np.int64)
    drawn = " " + levels
    return [
        "".join(drawn[level] for level in np.clip(filled - steps * row, 0, steps).tolist())
        for row in reversed(range(height))
    ]


def axis_row(axis: Axis, left: float, right: float, width: int) -> str:
    """Return the labels along the bottom, each starting in its cell, in at most `width` cells."""
    row = ""
    for tick in x_ticks(x_scale(left, right, width, axis), axis):
        if tick.cell + len(tick.label) <= width:
            row = row.ljust(tick.cell) + tick.label
    return row
