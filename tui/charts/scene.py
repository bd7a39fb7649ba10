"""Lays out reduced curves as characters in cells, independent of widgets and plotext."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .canvas import Canvas, Layer, cell_of
from .edges import SPIKES, Stretch, axis_marks, spike_layers
from .raster import FINENESS, Marker, draw_line, glyphs_of
from .series import NO_LINE, Line
from .ticks import Tick, axis_ticks, value_ticks
from .y_range import full_range, robust_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .curve import Axis, FloatArray
    from .pens import Pen
    from .raster import DotGrid
    from .window import Extent

# Less than this, as a share of the values themselves, is rounding and not a curve worth a whole pane.
_FLAT = 1e-5
_CELLS_BETWEEN_BEADS = 8
_CELLS_BETWEEN_GRID_DOTS = 4
_CELLS_A_POINT = 4
_CELLS_A_TURN = 2
_DASH, _GAP = 4, 2  # in dots
_ROWS_WITH_ROOM = 6
_LEAST_TICKS = 3
_SMALLEST_CANVAS = (6, 2)
_LARGEST = 1e300
_BEST = "★"
_GRID = "·"


@dataclass(frozen=True, slots=True)
class Trace:
    """The visible part of one curve, ready to draw."""

    pen: Pen  # how to draw it
    main: Line  # the line, smoothed where smoothing is on
    raw: Line | None = None  # the samples behind a smoothed line, or None
    # Samples by which the vertical range is chosen; None if every sample is to be seen.
    sampled: FloatArray | None = None
    newest: Line = NO_LINE  # the newest sample, shape `(1,)`, or an empty line
    best: Line = NO_LINE  # the best sample, shape `(1,)`, or an empty line


@dataclass(frozen=True, slots=True)
class View:
    """The size and options that the user has chosen."""

    width: int  # columns of the plot with its axes
    height: int  # rows of the plot with its axes
    axis: Axis  # what runs along the bottom
    log_scale: bool  # whether the vertical axis is logarithmic
    marker: Marker  # kind of glyph
    ends: Extent  # both ends of the horizontal axis
    is_full: bool = False  # whether every sample is to be seen, spikes too
    fixed: Extent | None = None  # the vertical range, if it is fixed


@dataclass(frozen=True, slots=True)
class Scene:
    """A finished plot, in character cells."""

    width: int  # columns inside the axes
    height: int  # rows inside the axes
    layers: list[Layer]  # what is drawn, back to front
    x_ticks: list[tuple[int, str]]  # labels along the bottom by canvas column
    y_ticks: list[tuple[int, str]]  # labels along the left by canvas row
    marks: dict[int, str]  # characters on the horizontal axis by canvas column
    ends: Extent  # both ends of the horizontal axis
    y_range: Extent  # both ends of the vertical axis, in the metric's unit
    spikes: dict[str, int]  # how many groups of samples lie above and below the vertical range, by their mark


def build_scene(traces: Sequence[Trace], view: View, stretches: Sequence[Stretch] = ()) -> Scene | None:
    """Lay out `traces`; None where there is no room or nothing finite to draw."""
    traces = [_on_scale(trace, log_scale=view.log_scale) for trace in traces]
    bounds = _vertical(traces, view)
    if bounds is None:
        return None
    low, high = _with_room(traces, *_widen(*bounds, log_scale=view.log_scale), view)
    left, right = _apart(*view.ends)
    height = view.height - 2  # the axis and its labels
    ticks = _ticks(low, high, height, view)
    width = view.width - 1 - max((len(tick.label) for tick in ticks), default=0)
    if width < _SMALLEST_CANVAS[0] or height < _SMALLEST_CANVAS[1]:
        return None
    canvas = Canvas(left, right, low, high, width, height, view.marker)
    y_ticks = _place_y(ticks, canvas)
    x_ticks = _place_x(canvas, view.axis)
    curves = _curves(traces, canvas)
    taken = {cell for layer in curves for cell in zip(layer.columns, layer.rows, strict=True)}
    spikes = spike_layers([_measured(trace) for trace in traces], canvas, taken, log_scale=view.log_scale)
    return Scene(
        width,
        height,
        [_grid(y_ticks, width), *curves, *spikes],
        x_ticks,
        y_ticks,
        axis_marks(stretches, canvas),
        (left, right),
        (10.0**low, 10.0**high) if view.log_scale else (low, high),
        {glyph: layer.glyphs.count(glyph) for layer in spikes for glyph in SPIKES if glyph in layer.glyphs},
    )


def _ticks(low: float, high: float, rows: int, view: View) -> list[Tick]:
    """Return ticks of the vertical axis, each in its own row if that leaves enough."""
    most = min(rows, max(4, rows // 3 + 1), 8)
    found = [value_ticks(low, high, wanted, log_scale=view.log_scale) for wanted in range(most, _LEAST_TICKS - 1, -1)]
    apart = (ticks for ticks in found if len({_row_of(t, low, high, rows, view.marker) for t in ticks}) == len(ticks))
    return next(apart, found[0] if found else [])


def _row_of(tick: Tick, low: float, high: float, rows: int, marker: Marker) -> int:
    down = FINENESS[marker].down
    return cell_of(tick.position, low, high, rows * down) // down


def column_of(x: float, scene: Scene) -> int:
    """Return the canvas column of a position on the horizontal axis."""
    return cell_of(x, *scene.ends, scene.width)


def _apart(left: float, right: float) -> Extent:
    """Return two ends that differ: beyond 2**53, adding 1 changes nothing."""
    return (left, right) if right > left else (left, left + max(1.0, 1e-9 * abs(left)))


def _on_scale(trace: Trace, *, log_scale: bool) -> Trace:
    change = _logarithm if log_scale else _clipped
    raw = None if trace.raw is None else change(trace.raw)
    sampled = None if trace.sampled is None else change(Line(trace.sampled, trace.sampled)).y
    return Trace(trace.pen, change(trace.main), raw, sampled, change(trace.newest), change(trace.best))


def _clipped(line: Line) -> Line:
    """Keep values off the ends of float64, where the difference of two of them is infinite."""
    return Line(line.x, np.clip(line.y, -_LARGEST, _LARGEST))


def _logarithm(line: Line) -> Line:
    """`line` in decimal logarithms, without the samples that have none."""
    keep = line.y > 0.0
    return Line(line.x[keep], np.log10(line.y[keep]))


def _vertical(traces: Sequence[Trace], view: View) -> Extent | None:
    """Return the vertical range, in decades on a logarithmic scale."""
    if view.fixed is not None and not (view.log_scale and view.fixed[0] <= 0.0):
        low, high = (float(end) for end in (np.log10(view.fixed) if view.log_scale else view.fixed))
        return low, high
    lines = [line.y for trace in traces for line in (trace.main, trace.raw) if line is not None]
    if view.is_full:
        return full_range(lines)
    trimmed = [trace for trace in traces if trace.sampled is not None]
    kept = [line.y for trace in trimmed for line in (trace.newest, trace.best)]
    kept += [trace.main.y for trace in traces if trace.sampled is None]
    samples = [trace.sampled for trace in trimmed if trace.sampled is not None]
    seen = robust_range(samples, [_measured(trace).y for trace in trimmed], np.concatenate([*kept, np.empty(0)]))
    return seen or full_range(lines)


def _widen(low: float, high: float, *, log_scale: bool) -> tuple[float, float]:
    """Add room above and below a constant curve."""
    size = 1.0 if log_scale else max(abs(low), abs(high))
    if high - low > _FLAT * size:
        return low, high
    margin = 0.11 * size if size > 0.0 else 1.0  # a little more than a tenth, where round numbers are
    return low - margin, high + margin


def _with_room(traces: Sequence[Trace], low: float, high: float, view: View) -> Extent:
    """Keep the outermost rows free for the marks of spikes, if there are any."""
    rows = view.height - 2
    if view.fixed is not None or rows < _ROWS_WITH_ROOM:
        return low, high
    row = (high - low) / (rows - 1)
    ys = [_measured(trace).y for trace in traces]
    is_above, is_below = any((y > high).any() for y in ys), any((y < low).any() for y in ys)
    return low - row * is_below, high + row * is_above


def _measured(trace: Trace) -> Line:
    return trace.main if trace.raw is None else trace.raw


def _grid(y_ticks: Sequence[tuple[int, str]], width: int) -> Layer:
    """Faint dots in the rows of the labels."""
    cells = list(itertools.product(range(_CELLS_BETWEEN_GRID_DOTS - 1, width, _CELLS_BETWEEN_GRID_DOTS), y_ticks))
    return Layer([column for column, _ in cells], [row for _, (row, _) in cells], [_GRID] * len(cells), None, True)


def _curves(traces: Sequence[Trace], canvas: Canvas) -> list[Layer]:
    """Raw samples behind everything, then the lines, then points and stars."""
    layers = [_raw(trace.raw, trace.pen, canvas) for trace in traces if trace.raw is not None]
    drawn = [_dots(trace.main, trace.pen, canvas) for trace in traces]
    shown = _shared([_cells_with(dots, canvas) for dots in drawn])
    layers += [_line_layer(*parts, canvas) for parts in zip(traces, drawn, shown, strict=True)]
    points = [_points(t, canvas) for t in traces if t.pen.has_points]
    stars = [_star(t, canvas) for t in traces if len(t.best.x)]
    return layers + points + stars


def _dots(line: Line, pen: Pen, canvas: Canvas) -> DotGrid:
    fine = FINENESS[canvas.marker]
    columns, rows = canvas.width * fine.across, canvas.height * fine.down
    dots = draw_line(*canvas.dots(canvas.clipped(line)), columns, rows)
    if pen.is_dashed:
        dash, gap = (1, 1) if canvas.marker == "ascii" else (_DASH, _GAP)
        dots[:, np.arange(columns) % (dash + gap) >= dash] = False
    return dots


def _raw(line: Line, pen: Pen, canvas: Canvas) -> Layer:
    columns, rows, glyphs = glyphs_of(_dots(line, pen, canvas), canvas.marker, ".")
    return Layer(columns, rows, glyphs, pen.color, is_dim=True)


def _cells_with(dots: DotGrid, canvas: Canvas) -> DotGrid:
    """Return which cells hold dots."""
    fine = FINENESS[canvas.marker]
    return np.asarray(dots.reshape(canvas.height, fine.down, canvas.width, fine.across).any(axis=(1, 3)))


def _shared(cells: Sequence[DotGrid]) -> list[DotGrid]:
    """Return the cells in which each line is drawn: where several meet, they take turns, so that none is hidden."""
    if not cells:
        return []
    number = np.cumsum(cells, axis=0)
    together = np.maximum(number[-1], 1)
    turn = np.arange(cells[0].shape[1]) // _CELLS_A_TURN % together
    return [mine & (order - 1 == turn) for mine, order in zip(cells, number, strict=True)]


def _line_layer(trace: Trace, dots: DotGrid, shown: DotGrid, canvas: Canvas) -> Layer:
    fine = FINENESS[canvas.marker]
    seen = dots & shown.repeat(fine.down, axis=0).repeat(fine.across, axis=1)
    columns, rows, glyphs = glyphs_of(seen, canvas.marker, trace.pen.glyph)
    if len(trace.main.x) == 1:
        glyphs = ["*" if canvas.marker == "ascii" else "•"] * len(glyphs)  # something larger than one dot
    elif trace.pen.has_beads:
        glyphs = _bead(columns, glyphs, trace.pen.glyph)
    return Layer(columns, rows, glyphs, trace.pen.color)


def _bead(columns: list[int], glyphs: list[str], bead: str) -> list[str]:
    """`glyphs` with a bead in the first cell of every few columns and in the last one."""
    strung = list(glyphs)
    done: set[int] = set()
    for i in sorted(range(len(columns)), key=columns.__getitem__):
        if columns[i] // _CELLS_BETWEEN_BEADS not in done:
            strung[i] = bead
            done.add(columns[i] // _CELLS_BETWEEN_BEADS)
    if columns:
        strung[columns.index(max(columns))] = bead
    return strung


def _points(trace: Trace, canvas: Canvas) -> Layer:
    """One glyph per sample, in the very cell in which the line runs, while they are far apart."""
    cells = sorted(set(canvas.cells(canvas.clipped(trace.main))))
    if len(cells) * _CELLS_A_POINT > canvas.width:
        cells = []
    return Layer([c for c, _ in cells], [r for _, r in cells], [trace.pen.glyph] * len(cells), trace.pen.color)


def _star(trace: Trace, canvas: Canvas) -> Layer:
    ((column, row),) = canvas.cells(canvas.clipped(trace.best))
    return Layer([column], [row], [_BEST], trace.pen.color)


def _place_x(canvas: Canvas, axis: Axis) -> list[tuple[int, str]]:
    """Return as many labels along the bottom as fit without touching."""
    for most in range(max(canvas.width // 6, 1), 0, -1):
        placed = [
            (cell_of(tick.position, canvas.left, canvas.right, canvas.width), tick.label)
            for tick in axis_ticks(canvas.left, canvas.right, most, axis)
        ]
        if _stand_apart(placed):
            return placed
    return []


def _stand_apart(placed: Sequence[tuple[int, str]]) -> bool:
    """Whether labels centred on their cells leave gaps, the last one pushed left by half its width."""
    widest = max((len(label) for _, label in placed), default=0)
    columns = [column for column, _ in placed]
    return all(b - a >= 1.5 * widest + 2 for a, b in itertools.pairwise(columns))


def _place_y(ticks: Sequence[Tick], canvas: Canvas) -> list[tuple[int, str]]:
    """Return the labels by row, one per row."""
    rows = {_row_of(tick, canvas.low, canvas.high, canvas.height, canvas.marker): tick.label for tick in ticks}
    return list(rows.items())
