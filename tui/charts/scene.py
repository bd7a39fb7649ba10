"""Lays out reduced curves as characters in cells, independent of widgets and plotext."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .raster import FINENESS, Marker, draw_line, glyphs_of, scale
from .series import Line
from .ticks import Tick, axis_ticks, value_ticks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .curve import Axis, FloatArray, IndexArray
    from .pens import Pen, PenColor

# Less than this, as a share of the values themselves, is rounding and not a curve worth a whole pane.
_FLAT = 1e-5
_CELLS_BETWEEN_BEADS = 12
_SMALLEST_CANVAS = (6, 2)
_LARGEST = 1e300


@dataclass(frozen=True, slots=True)
class Trace:
    """One curve, ready to draw.

    Attributes:
        pen: How to draw it.
        main: The line, smoothed where smoothing is on.
        raw: The samples behind a smoothed line, or None.
        nan_x: Where the metric was NaN or infinite, shape `(n,)`.
    """

    pen: Pen
    main: Line
    raw: Line | None
    nan_x: FloatArray


@dataclass(frozen=True, slots=True)
class View:
    """The size and options that the user has chosen.

    Attributes:
        width: Columns of the plot with its axes.
        height: Rows of the plot with its axes.
        axis: What runs along the bottom.
        log_scale: Whether the vertical axis is logarithmic.
        marker: Kind of glyph.
        alarm: Colour of NaN marks.
    """

    width: int
    height: int
    axis: Axis
    log_scale: bool
    marker: Marker
    alarm: PenColor


@dataclass(frozen=True, slots=True)
class Layer:
    """Glyphs of one look; a later layer covers an earlier one.

    Attributes:
        columns: Canvas column of each glyph.
        rows: Canvas row of each glyph, from the bottom.
        glyphs: One character each.
        color: Colour of all of them.
        is_dim: Whether they are drawn dim, in the background.
    """

    columns: list[int]
    rows: list[int]
    glyphs: list[str]
    color: PenColor
    is_dim: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """A finished plot, in character cells.

    Attributes:
        width: Columns inside the axes.
        height: Rows inside the axes.
        layers: What is drawn, back to front.
        x_ticks: Labels along the bottom by canvas column.
        y_ticks: Labels along the left by canvas row.
    """

    width: int
    height: int
    layers: list[Layer]
    x_ticks: list[tuple[int, str]]
    y_ticks: list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of the plane that is seen, and the canvas cells that show it."""

    left: float
    right: float
    low: float
    high: float
    width: int
    height: int
    floor: int  # lowest row for curves; below it lies the row of NaN marks

    def dots(self, line: Line, across: int, down: int) -> tuple[IndexArray, IndexArray]:
        """`line` in fractions of the canvas, as dot columns and dot rows above the floor."""
        x = scale(line.x, self.left, self.right, self.width * across)
        y = scale(line.y, self.low, self.high, (self.height - self.floor) * down)
        return x, y


def build_scene(traces: Sequence[Trace], view: View) -> Scene | None:
    """Lay out `traces`; None where there is no room or nothing finite to draw."""
    traces = [_in_decades(trace) if view.log_scale else _in_range(trace) for trace in traces]
    lines = [line for trace in traces for line in (trace.main, trace.raw) if line is not None]
    bounds = _bounds([line.y for line in lines])
    across = _bounds([line.x for line in lines] + [trace.nan_x for trace in traces])
    if bounds is None or across is None:
        return None
    low, high = _widen(*bounds, log_scale=view.log_scale)
    # Beyond 2**53, adding 1 changes nothing.
    left, right = across if across[1] > across[0] else (across[0], across[0] + max(1.0, 1e-9 * abs(across[0])))
    height = view.height - 2  # the axis and its labels
    ticks = value_ticks(low, high, min(height // 3 + 1, 8), log_scale=view.log_scale)
    width = view.width - 1 - max((len(tick.label) for tick in ticks), default=0)
    if width < _SMALLEST_CANVAS[0] or height < _SMALLEST_CANVAS[1]:
        return None
    floor = int(any(len(trace.nan_x) for trace in traces))
    window = _Window(left, right, low, high, width, height, floor)
    return Scene(
        width,
        height,
        _layers(traces, window, view),
        _place_x(window, view.axis),
        _place_y(ticks, window, view.marker),
    )


def _in_range(trace: Trace) -> Trace:
    """Keep values off the ends of float64, where the difference of two of them is infinite."""
    raw = None if trace.raw is None else _clipped(trace.raw)
    return Trace(trace.pen, _clipped(trace.main), raw, trace.nan_x)


def _clipped(line: Line) -> Line:
    return Line(line.x, np.clip(line.y, -_LARGEST, _LARGEST))


def _in_decades(trace: Trace) -> Trace:
    raw = None if trace.raw is None else _logarithm(trace.raw)
    return Trace(trace.pen, _logarithm(trace.main), raw, trace.nan_x)


def _logarithm(line: Line) -> Line:
    """`line` in decimal logarithms, without the samples that have none."""
    keep = line.y > 0.0
    return Line(line.x[keep], np.log10(line.y[keep]))


def _bounds(parts: Iterable[FloatArray]) -> tuple[float, float] | None:
    filled = [part for part in parts if len(part)]
    if not filled:
        return None
    return float(min(part.min() for part in filled)), float(max(part.max() for part in filled))


def _widen(low: float, high: float, *, log_scale: bool) -> tuple[float, float]:
    """Add room above and below a constant curve."""
    size = 1.0 if log_scale else max(abs(low), abs(high))
    if high - low > _FLAT * size:
        return low, high
    margin = 0.1 * size if size > 0.0 else 1.0
    return low - margin, high + margin


def _layers(traces: Sequence[Trace], window: _Window, view: View) -> list[Layer]:
    """Raw samples behind everything, held-out points in front of the lines, NaN marks on top."""
    back = [_line_layer(t.raw, t.pen, window, view.marker, is_raw=True) for t in traces if t.raw is not None]
    front = [_line_layer(t.main, t.pen, window, view.marker) for t in traces if not t.pen.is_points]
    points = [_point_layer(t, window, view.marker) for t in traces if t.pen.is_points]
    marks = [_nan_layer(t.nan_x, window, view.alarm) for t in traces if len(t.nan_x)]
    return back + front + points + marks


def _line_layer(line: Line, pen: Pen, window: _Window, marker: Marker, *, is_raw: bool = False) -> Layer:
    fine = FINENESS[marker]
    x, y = window.dots(line, fine.across, fine.down)
    rows = window.height - window.floor
    dots = draw_line(x, y, window.width * fine.across, rows * fine.down)
    columns, cells, glyphs = glyphs_of(dots, marker, "." if is_raw else pen.glyph)
    if len(line.x) == 1:
        glyphs = [_speck(marker)]
    elif pen.has_beads and not is_raw:
        glyphs = _bead(columns, glyphs, pen.glyph)
    return Layer(columns, [cell + window.floor for cell in cells], glyphs, pen.color, is_raw)


def _speck(marker: Marker) -> str:
    """A first sample, alone, as something larger than one dot."""
    return "*" if marker == "ascii" else "•"


def _bead(columns: list[int], glyphs: list[str], bead: str) -> list[str]:
    """`glyphs` with a bead in every twelfth column and in the last one."""
    last = max(columns, default=0)
    strung = list(glyphs)
    done: set[int] = set()
    for i, column in enumerate(columns):
        if column not in done and (column == last or column % _CELLS_BETWEEN_BEADS == 0):
            strung[i] = bead
            done.add(column)
    return strung


def _point_layer(trace: Trace, window: _Window, marker: Marker) -> Layer:
    """One glyph a sample, in the very cell in which a line through it would run."""
    fine = FINENESS[marker]
    x, y = window.dots(trace.main, fine.across, fine.down)
    cells = sorted(set(zip((x // fine.across).tolist(), (y // fine.down).tolist(), strict=True)))
    columns = [column for column, _ in cells]
    rows = [row + window.floor for _, row in cells]
    return Layer(columns, rows, [trace.pen.glyph] * len(cells), trace.pen.color)


def _nan_layer(nan_x: FloatArray, window: _Window, alarm: PenColor) -> Layer:
    columns = sorted(set(scale(nan_x, window.left, window.right, window.width).tolist()))
    return Layer(columns, [0] * len(columns), ["!"] * len(columns), alarm)


def _place_x(window: _Window, axis: Axis) -> list[tuple[int, str]]:
    """Return as many labels along the bottom as fit without touching."""
    for most in range(max(window.width // 6, 1), 0, -1):
        placed = [
            (_cell(tick.position, window.left, window.right, window.width), tick.label)
            for tick in axis_ticks(window.left, window.right, most, axis)
        ]
        if _stand_apart(placed):
            return placed
    return []


def _stand_apart(placed: Sequence[tuple[int, str]]) -> bool:
    """Whether labels centred on their cells leave gaps, the last one pushed left by half its width."""
    densest = max((len(label) for _, label in placed), default=0)
    columns = [column for column, _ in placed]
    return all(b - a >= 1.5 * densest + 2 for a, b in itertools.pairwise(columns))


def _place_y(ticks: Sequence[Tick], window: _Window, marker: Marker) -> list[tuple[int, str]]:
    down = FINENESS[marker].down
    rows = window.height - window.floor
    return [
        (_cell(tick.position, window.low, window.high, rows * down) // down + window.floor, tick.label)
        for tick in ticks
    ]


def _cell(position: float, low: float, high: float, cells: int) -> int:
    return int(scale(np.array([position]), low, high, cells)[0])
