"""Lays out reduced curves as characters in cells, independent of widgets."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .raster import FINENESS, DotGrid, Marker, draw_bars, draw_line, glyphs_of
from .scale import Scale, Tick, format_value, x_scale, x_ticks, y_scale, y_ticks
from .series import NO_LINE, Line
from .y_range import full_range, robust_range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .curve import Axis, FloatArray, IndexArray
    from .pens import Pen, PenColor
    from .window import Extent

# Less than this, as a share of the values themselves, is rounding and not a curve worth a whole pane.
_FLAT = 1e-5
_CELLS_BETWEEN_BEADS = 8
_CELLS_A_POINT = 4
_CELLS_A_TURN = 2
_LETTERS = 4  # along a line
_DASH, _GAP = 4, 2  # in dots
_ROWS_WITH_ROOM = 4
_SMALLEST_CANVAS = (6, 2)
_SMALLEST, _LARGEST = 1e-290, 1e300
_MOST_CUT = 4096
_BEST = "★"
_GRID = "·"
_ABOVE, _BELOW = "▲", "▼"
_PLAIN_ABOVE = "^"  # for ASCII, where the other one would look like the sign of a warning
_APART = 2  # columns between two spikes that each have a mark

Cell: TypeAlias = tuple[int, int]
"""The column and the row of a character, from the bottom left."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One curve, ready to draw."""

    pen: Pen  # how to draw it
    raw: Line  # the samples as measured, in and out of the window, NaN included
    smooth: Line | None = None  # their moving average, where smoothing is on
    # Samples by which the vertical range is chosen; None if every sample is to be seen.
    sampled: FloatArray | None = None
    newest: Line = NO_LINE  # the newest sample, shape `(1,)`, or an empty line
    best: Line = NO_LINE  # the best sample, shape `(1,)`, or an empty line
    is_followed: bool = True  # whether the vertical range fits it

    @property
    def main(self) -> Line:
        """What the line shows."""
        return self.raw if self.smooth is None else self.smooth


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A trace in the unit of the vertical axis, with as many samples as there are dots."""

    trace: Trace
    is_band: bool  # whether there are more samples than dots
    low: Line  # the samples as measured; if there are more than dots, the lowest in each column
    line: Line  # the samples; if there are more than dots side by side, their mean in each column of cells
    high: Line  # the samples as measured; if there are more than dots, the highest in each column
    best: Line  # the best sample


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
    fixed: Scale | None = None  # the vertical scale, if it is fixed
    y_ends: Extent | None = None  # what the vertical axis shows, in its unit, if it is zoomed


@dataclass(frozen=True, slots=True)
class Scene:
    """A finished plot, in character cells."""

    x: Scale  # of the columns inside the axes
    y: Scale  # of the rows inside the axes
    layers: list[Layer]  # what is drawn, back to front
    x_ticks: list[Tick]  # labels along the bottom
    y_ticks: list[Tick]  # labels along the left


def build_scene(traces: Sequence[Trace], view: View) -> Scene | None:
    """Lay out `traces`; None where there is no room or nothing finite to draw.

    A range of less than half a decade has no logarithmic axis: round numbers would lie too far apart.
    """
    visible = [_visible(trace, view) for trace in traces]
    height = view.height - 2  # the axis and its labels
    y = _vertical(visible, view, height) if height >= _SMALLEST_CANVAS[1] else None
    if y is None:
        return None
    if view.log_scale and len(y.round_values) < 2:
        low_high = None if view.y_ends is None else (10.0 ** view.y_ends[0], 10.0 ** view.y_ends[1])
        return build_scene(traces, replace(view, log_scale=False, y_ends=low_high))
    ticks = y_ticks(y)
    width = view.width - 1 - max((len(tick.label) for tick in ticks), default=0)
    if width < _SMALLEST_CANVAS[0]:
        return None
    canvas = Canvas(x_scale(*view.ends, width, view.axis), y, view.marker)
    drawn = [_drawn(trace, canvas) for trace in visible]
    below = x_ticks(canvas.x, view.axis)
    crossings = itertools.product([tick.cell for tick in below], [tick.cell for tick in ticks])
    grid = Layer(dict.fromkeys(crossings, _GRID), None, is_dim=True)
    curves = _curves(drawn, canvas)
    layers = [grid, *curves, *_spike_layers(drawn, canvas, _taken(curves))]
    return Scene(canvas.x, y, [layer for layer in layers if layer.cells], below, ticks)


def _visible(trace: Trace, view: View) -> Trace:
    """Return the part of a trace that can be drawn: inside the window, finite, and above 0 on a logarithmic axis."""

    def part(line: Line) -> Line:
        near = line.part(view.ends, around=1)
        near = near.only(np.isfinite(near.y))
        if view.log_scale:
            near = near.only(near.y > 0.0)
        if len(near.y) > _MOST_CUT:
            return near.part(view.ends)
        # Off the ends of float64, where the difference of two values is infinite.
        return cut_to(Line(near.x, np.clip(near.y, -_LARGEST, _LARGEST)), *view.ends)

    sampled = trace.sampled if trace.sampled is None or not view.log_scale else trace.sampled[trace.sampled > 0.0]
    smooth = None if trace.smooth is None else part(trace.smooth)
    newest, best = part(trace.newest), part(trace.best)
    return Trace(trace.pen, part(trace.raw), smooth, sampled, newest, best, trace.is_followed)


def cut_to(line: Line, left: float, right: float) -> Line:
    """Cut a line that begins before `left` or ends after `right` where it crosses them."""
    x, y = line.x.copy(), line.y.copy()
    if len(x) > 1:
        for end, neighbour, border in ((0, 1, left), (-1, -2, right)):
            share = (border - line.x[end]) / ((line.x[neighbour] - line.x[end]) or 1.0)
            if 0.0 < share <= 1.0:
                x[end], y[end] = border, line.y[end] + share * (line.y[neighbour] - line.y[end])
    return Line(x, y).part((left, right))


def _drawn(trace: Trace, canvas: Canvas) -> _Drawn:
    is_band = len(trace.raw.x) > canvas.dot_columns
    low, line, high = _of_columns(trace.raw, canvas.x) if is_band else (trace.raw, trace.main, trace.raw)
    if is_band and trace.smooth is not None:
        line = _of_columns(trace.smooth, canvas.x)[1]
    lines = [low, line, high, trace.best]
    if canvas.y.is_log:
        lines = [Line(part.x, np.log10(part.y)) for part in lines]
    return _Drawn(trace, is_band, *lines)


def _of_columns(line: Line, x: Scale) -> tuple[Line, Line, Line]:
    """Return the lowest, the mean and the highest sample of each column of cells."""
    begins = np.searchsorted(line.x, x.borders)
    counts = np.diff([0, *begins, len(line.x)])
    filled = np.flatnonzero(counts)
    at, middles = (np.array([0, *begins]))[filled], (x.first + filled) * x.step / x.per_step
    mean = np.add.reduceat(line.y, at) / counts[filled]
    low, high = np.minimum.reduceat(line.y, at), np.maximum.reduceat(line.y, at)
    return Line(middles, low), Line(middles, np.clip(mean, low, high)), Line(middles, high)


def _vertical(traces: Sequence[Trace], view: View, rows: int) -> Scale | None:
    """Return the vertical scale, of decades on a logarithmic axis; None without values."""
    if view.y_ends is not None:
        return y_scale(*_widen(*view.y_ends, log_scale=view.log_scale), rows, is_log=view.log_scale)
    fixed = view.fixed
    if fixed is not None and fixed.is_log == view.log_scale:
        return fixed if fixed.cells == rows else y_scale(*fixed.seen, rows, is_log=fixed.is_log)
    extremes = [_ends(trace.raw.y, view) for trace in traces]
    ends, measured = _range(traces, extremes, view), full_range(extremes)
    if ends is None or measured is None:
        return None
    low, high = _widen(*ends, log_scale=view.log_scale)
    # The outermost rows are free for the marks of spikes, if there are any.
    has_room = rows >= _ROWS_WITH_ROOM
    below, above = has_room and measured[0] < low, has_room and measured[1] > high
    return y_scale(low, high, rows, is_log=view.log_scale, below=below, above=above)


def _ends(values: FloatArray, view: View) -> FloatArray:
    """Return the lowest and the highest of some values in the unit of the vertical axis; nothing if there are none."""
    return _on_axis(np.array([values.min(), values.max()]) if len(values) else values, view)


def _on_axis(values: FloatArray, view: View) -> FloatArray:
    return np.log10(values) if view.log_scale else values


def _range(traces: Sequence[Trace], extremes: Sequence[FloatArray], view: View) -> Extent | None:
    """Return the lowest and the highest value that must be seen; `extremes` are those of each trace."""
    followed = [(trace, ends) for trace, ends in zip(traces, extremes, strict=True) if trace.is_followed and len(ends)]
    if view.is_full or not followed:
        return full_range([*extremes, *(_ends(trace.main.y, view) for trace in traces)])
    samples: list[FloatArray] = []
    outer: list[FloatArray] = []
    kept: list[FloatArray] = []
    for trace, ends in followed:
        if trace.sampled is None:
            kept += [ends, _ends(trace.main.y, view)]
        else:
            samples.append(_on_axis(trace.sampled, view))
            outer.append(ends)
            kept += [_on_axis(line.y, view) for line in (trace.newest, trace.best)]
    return robust_range(samples, outer, kept)


def _widen(low: float, high: float, *, log_scale: bool) -> tuple[float, float]:
    """Add room above and below a constant curve."""
    size = 1.0 if log_scale else max(abs(low), abs(high))
    if high - low > max(_FLAT * size, _SMALLEST):
        return low, high
    margin = 0.11 * size if size > _SMALLEST else 1.0  # a little more than a tenth, where round numbers are
    return low - margin, high + margin


def _curves(drawn: Sequence[_Drawn], canvas: Canvas) -> list[Layer]:
    """Return the samples behind everything, then the lines, then points and stars."""
    layers = [_behind(one, canvas) for one in drawn if one.is_band or one.trace.smooth is not None]
    lines = _line_layers(drawn, canvas)
    layers += lines
    # One glyph per sample, in the very cell in which the line runs, while they are far apart.
    for one in drawn:
        points = canvas.cells(one.line)
        if one.trace.pen.has_points and len(set(points)) * _CELLS_A_POINT <= canvas.x.cells:
            layers.append(Layer(dict.fromkeys(points, one.trace.pen.glyph), one.trace.pen.color))
    layers += [Layer(dict.fromkeys(canvas.cells(one.best), _BEST), one.trace.pen.color) for one in drawn]
    taken = _taken(layers)
    return layers + [_letters(one, canvas, taken) for one in drawn if one.trace.pen.has_letters]


def _taken(layers: Sequence[Layer]) -> set[Cell]:
    """Return the cells in which something is drawn."""
    return set().union(*(layer.cells for layer in layers))


def _dots(line: Line, pen: Pen, canvas: Canvas) -> DotGrid:
    dots = draw_line(*canvas.dots(line), canvas.dot_columns, canvas.dot_rows)
    if pen.is_dashed:
        dash, gap = (1, 1) if canvas.marker == "ascii" else (_DASH, _GAP)
        dots[:, np.arange(canvas.dot_columns) % (dash + gap) >= dash] = False
    return dots


def _behind(drawn: _Drawn, canvas: Canvas) -> Layer:
    """Return the samples as measured: the band that they fill, or a line."""
    pen = drawn.trace.pen
    if drawn.is_band:
        across, _ = FINENESS[canvas.marker]
        columns = (canvas.x.dots(drawn.low.x, 1)[:, np.newaxis] * across + np.arange(across)).ravel()
        low, high = (canvas.dots(line)[1].repeat(across) for line in (drawn.low, drawn.high))
        dots = draw_bars(columns, low, high, canvas.dot_columns, canvas.dot_rows)
    else:
        dots = _dots(drawn.high, pen, canvas)
    return Layer(glyphs_of(dots, canvas.marker, "."), pen.faint, is_dim=isinstance(pen.faint, int))


def _line_layers(drawn: Sequence[_Drawn], canvas: Canvas) -> list[Layer]:
    """Return the lines; in the cells in which several meet, they take turns, so that none is hidden."""
    across, down = FINENESS[canvas.marker]
    dots = np.array([_dots(one.line, one.trace.pen, canvas) for one in drawn])
    filled = dots.reshape(len(drawn), canvas.y.cells, down, canvas.x.cells, across).any(axis=(2, 4))
    number = np.cumsum(filled, axis=0)
    turn = np.arange(canvas.x.cells) // _CELLS_A_TURN % np.maximum(number[-1], 1)
    seen = dots & (filled & (number - 1 == turn)).repeat(down, axis=1).repeat(across, axis=2)
    layers = []
    for one, grid in zip(drawn, seen, strict=True):
        pen, cells = one.trace.pen, glyphs_of(grid, canvas.marker, one.trace.pen.glyph)
        if len(one.line.x) == 1:
            cells = dict.fromkeys(cells, "*" if canvas.marker == "ascii" else "•")  # something larger than one dot
        elif pen.is_dashed and cells:
            beads = {cell[0] // _CELLS_BETWEEN_BEADS: cell for cell in sorted(cells, reverse=True)}
            cells |= dict.fromkeys([*beads.values(), max(cells)], pen.glyph)
        layers.append(Layer(cells, pen.color))
    return layers


def _letters(drawn: _Drawn, canvas: Canvas, taken: set[Cell]) -> Layer:
    """Return the glyph beside the line at its end and in a few other places, where nothing is drawn."""
    cells, found = canvas.cells(drawn.line), list[Cell]()
    for at in dict.fromkeys(np.linspace(len(cells) - 1, 0, _LETTERS).astype(int).tolist() if cells else []):
        column, row = cells[at]
        near = [(column + 1, row), *((column, row + away) for away in (1, -1, 2, -2))]
        free = [
            cell for cell in near if cell not in taken and cell[0] < canvas.x.cells and 0 <= cell[1] < canvas.y.cells
        ]
        found += free[:1]
        taken |= {*free[:1]}
    return Layer(dict.fromkeys(found, drawn.trace.pen.glyph), drawn.trace.pen.color)


@dataclass(frozen=True, slots=True)
class Canvas:
    """The cells inside the axes, and what lies where."""

    x: Scale  # of the columns
    y: Scale  # of the rows, from the bottom
    marker: Marker  # kind of glyph

    @property
    def dot_columns(self) -> int:
        """Dots side by side."""
        return self.x.cells * FINENESS[self.marker][0]

    @property
    def dot_rows(self) -> int:
        """Dots on top of each other."""
        return self.y.cells * FINENESS[self.marker][1]

    def dots(self, line: Line) -> tuple[IndexArray, IndexArray]:
        """The dot column and the dot row of every sample."""
        across, down = FINENESS[self.marker]
        return self.x.dots(line.x, across), self.y.dots(line.y, down)

    def cells(self, line: Line) -> list[Cell]:
        """The cell of every sample, the same as that of its dot."""
        return list(zip(self.x.dots(line.x, 1).tolist(), self.y.dots(line.y, 1).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Layer:
    """Glyphs of one look; a later layer covers an earlier one."""

    cells: Mapping[Cell, str]  # one character each
    color: PenColor | None  # colour of all of them; None for the text's own
    is_dim: bool = False  # whether they are drawn dim, in the background


def _spike_layers(drawn: Sequence[_Drawn], canvas: Canvas, taken: set[Cell]) -> list[Layer]:
    """Mark where samples lie beyond the vertical range, with the farthest value where there is room for it.

    Nothing is drawn into the cells that are taken.
    """
    layers = []
    above = _PLAIN_ABOVE if canvas.marker == "ascii" else _ABOVE
    low, high = canvas.y.ends
    for glyph, row, sign, edge in ((above, canvas.y.cells - 1, 1, high), (_BELOW, 0, -1, low)):
        lines = [one.high if sign > 0 else one.low for one in drawn]
        peaks = _peaks([(line, np.flatnonzero(sign * line.y > sign * edge)) for line in lines], canvas, sign)
        labels = {at: format_value(10.0**value if canvas.y.is_log else value, 3) for at, value in peaks.items()}
        text = _beside(labels, glyph, canvas.x.cells, {column for column, at in taken if at == row})
        layers.append(Layer({(column, row): letter for column, letter in text.items()}, None))
    return layers


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
