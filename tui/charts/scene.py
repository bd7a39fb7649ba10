"""Lays out curves as characters in cells, and has the pens to draw them with; independent of widgets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace
from rich.style import Style

from ..text.tables import BEST
from .curve import Axis, Extent, FloatArray, IndexArray, Line, Series
from .scale import Scale, Tick, few, format_value, full_range, robust_range, x_scale, x_ticks, y_scale, y_ticks

if TYPE_CHECKING:
    from textual.theme import Theme

Marker: TypeAlias = Literal["braille", "block", "ascii"]
Tone: TypeAlias = Literal["dark", "light", "ansi-dark", "ansi-light"]
# Red, green and blue, or the number of one of the terminal's own sixteen colors.
PenColor: TypeAlias = tuple[int, int, int] | int

# After Okabe and Ito: people who cannot see red, green or blue can distinguish training from validation in each slot.
# Every color has a contrast of at least 4.5 to 1 on Textual's own backgrounds.
_TRAINING: dict[Tone, tuple[PenColor, ...]] = {
    "dark": ((86, 180, 233), (214, 130, 178), (0, 168, 122), (140, 130, 255)),
    "light": ((0, 95, 155), (160, 40, 110), (0, 105, 75), (80, 50, 190)),
    "ansi-dark": (12, 13, 10, 14),
    "ansi-light": (4, 5, 2, 6),
}
_VALIDATION: dict[Tone, tuple[PenColor, ...]] = {
    "dark": ((240, 160, 20), (240, 228, 66), (238, 102, 40), (250, 200, 190)),
    "light": ((150, 80, 0), (105, 95, 0), (180, 50, 0), (110, 60, 50)),
    "ansi-dark": (11, 3, 9, 7),
    "ansi-light": (1, 3, 9, 8),
}
# The color of errors.
ALARM: dict[Tone, PenColor] = {"dark": (255, 110, 110), "light": (190, 0, 20), "ansi-dark": 9, "ansi-light": 1}
SLOTS = 4
_FAINT = 0.45


class Pen(Struct, frozen=True):
    """How one curve is drawn."""

    color: PenColor  # its color
    faint: PenColor  # the color of what stands behind its line
    glyph: str  # marks the curve in the legend and, for points and beads, in the plot
    has_points: bool = False  # draw every sample as a glyph too, while there is room for that
    is_dashed: bool = False  # draw the line with gaps, and the glyph on it here and there
    has_letters: bool = False  # put the glyph beside the line here and there, where nothing is drawn


def pen_for(slot: int, marker: Marker, tone: Tone, *, is_validation: bool, has_color: bool = True) -> Pen:
    """The pen of a training or validation curve, in one of the `SLOTS` colors that it may have."""
    glyph = ("o" if is_validation else "*") if marker == "ascii" else "●" if is_validation else "─"
    color = (_VALIDATION if is_validation else _TRAINING)[tone][slot]
    is_dashed = is_validation and (marker == "ascii" or not has_color)
    faint = color
    if not isinstance(color, int):  # the terminal's own sixteen are drawn dim instead
        away = 0 if tone == "dark" else 255
        red, green, blue = (round(away + _FAINT * (part - away)) for part in color)
        faint = red, green, blue
    return Pen(color, faint, glyph, is_validation, is_dashed)


def tone_of(theme: Theme) -> Tone:
    """Return the kind of a theme, by which colors are chosen."""
    if (theme.foreground or "").startswith("ansi_"):
        return "ansi-dark" if theme.dark else "ansi-light"
    return "dark" if theme.dark else "light"


def style_of(color: PenColor) -> Style:
    """The rich style of a pen's color."""
    return Style(color=f"color({color})" if isinstance(color, int) else "rgb({},{},{})".format(*color))


# Less than this, as a share of the values themselves, is rounding and not a curve worth a whole pane.
_FLAT = 1e-5
_MARKER_SPACING, _POINT_SPACING, _TURN_WIDTH = 8, 4, 2  # in cells
_LETTERS = 4  # along a line
_AWAY = (0, 1, -1, 2, -2)  # rows from a line to a letter
_DASH, _GAP = 4, 2  # in dots
_ROWS_WITH_ROOM = 4
_SMALLEST = (6, 2)  # columns and rows inside the axes
_TINY, _LARGEST = 1e-290, 1e300
_MOST_CUT = 4096
_MANY = 8  # validations
_GRID = "·"
_ROUNDING = 1e-9  # of a step: a sample on the edge of the range is no spike
_APART = 2  # columns between two spikes that each have a mark
_ABOVE = {"ascii": "^"}  # the triangle's replacement, !, would look like a warning
_NO_LINE = Line(np.empty(0), np.empty(0))

DotGrid: TypeAlias = npt.NDArray[np.bool_]
Cell: TypeAlias = tuple[int, int]  # the column and the row of a character, from the bottom left

# By the sum of the weights of a cell's dots.
_GLYPHS = {"braille": [chr(0x2800 + code) for code in range(256)], "block": " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"}
# Weight of each dot inside a cell, shape (down, across), top row first. Braille numbers its dots by columns
# and came to the fourth row later.
_WEIGHTS: dict[Marker, IndexArray] = {
    "braille": np.array([[1, 8], [2, 16], [4, 32], [64, 128]], dtype=np.int64),
    "block": np.array([[1, 2], [4, 8]], dtype=np.int64),
    "ascii": np.array([[1]], dtype=np.int64),
}

# How many dots one character cell holds: side by side, and on top of each other.
FINENESS: dict[Marker, tuple[int, int]] = {"braille": (2, 4), "block": (2, 2), "ascii": (1, 1)}


class DrawnCurve(Struct, frozen=True):
    """One curve, ready to draw; while it is drawn, what is visible of it, in the unit of the vertical axis."""

    pen: Pen  # how to draw it
    raw: Line  # the samples as measured, NaN included; if there are more than dots, the highest of each column of cells
    mean: Line | None = None  # their moving average, if it is drawn; if there are more than dots, of each column
    low: Line | None = None  # if there are more samples than dots, the lowest of each column
    best: Line = _NO_LINE  # the best sample, shape `(1,)`, or an empty line
    is_whole: bool = True  # whether every sample is to be seen, spikes too
    is_followed: bool = True  # whether the vertical range fits it

    @classmethod
    def of(cls, series: Series, pen: Pen, axis: Axis, ends: Extent) -> DrawnCurve:
        """Return what is drawn of a curve between two ends of the axis."""
        curve, raw = series.curve, series.whole(axis)
        # Of a few validations, none is a spike; a learning rate is drawn whole.
        is_few = curve.is_validation and len(raw.part(ends).x) < _MANY
        is_whole = is_few or curve.metric.is_learning_rate
        return cls(pen, raw, series.smooth(axis), best=series.best_line(axis), is_whole=is_whole)

    @property
    def line(self) -> Line:
        """What the line shows."""
        return self.raw if self.mean is None else self.mean

    def each(self, change: Callable[[Line], Line]) -> DrawnCurve:
        """Return a trace whose samples are changed."""
        mean, low = (None if line is None else change(line) for line in (self.mean, self.low))
        return replace(self, raw=change(self.raw), mean=mean, low=low, best=change(self.best))


class View(Struct, frozen=True):
    """The size and options that the user has chosen."""

    width: int  # columns of the plot with its axes
    height: int  # rows of the plot with its axes
    axis: Axis  # what runs along the bottom
    is_log: bool  # whether the vertical axis is logarithmic
    marker: Marker  # kind of glyph
    ends: Extent  # both ends of the horizontal axis
    is_full: bool = False  # whether every sample is to be seen, spikes too
    y_ends: Extent | None = None  # what the vertical axis shows, in its unit, if it is zoomed


class Layer(Struct, frozen=True):
    """Glyphs of one look; a later layer covers an earlier one."""

    cells: Mapping[Cell, str]  # one character each
    color: PenColor | None  # color of all of them; None for the text's own
    is_dim: bool = False  # whether they are drawn dim, in the background


class Scene(Struct, frozen=True):
    """A plot in character cells, and what lies where."""

    x: Scale  # of the columns inside the axes
    y: Scale  # of the rows inside the axes, from the bottom
    axis: Axis  # what runs along the bottom
    marker: Marker  # kind of glyph
    x_ticks: list[Tick]  # labels along the bottom
    y_ticks: list[Tick]  # labels along the left
    layers: Sequence[Layer] = ()  # what is drawn, back to front

    @property
    def dot_grid(self) -> tuple[int, int]:
        """How many dots are side by side, and on top of each other."""
        across, down = FINENESS[self.marker]
        return self.x.cells * across, self.y.cells * down

    def dots(self, line: Line) -> tuple[IndexArray, IndexArray]:
        """The dot column and the dot row of every sample."""
        across, down = FINENESS[self.marker]
        return self.x.dots(line.x, across), self.y.dots(line.y, down)

    def cells(self, line: Line) -> list[Cell]:
        """The cell of every sample, the same as that of its dot."""
        return list(zip(self.x.dots(line.x, 1).tolist(), self.y.dots(line.y, 1).tolist(), strict=True))


def build_scene(traces: Sequence[DrawnCurve], view: View) -> Scene | None:
    """Lay out `traces`; None if there is no room or nothing finite to draw.

    A range of less than half a decade has no logarithmic axis: round numbers would lie too far apart.
    """
    visible = [trace.each(partial(_visible, view=view)) for trace in traces]
    height = view.height - 2  # the axis and its labels
    y = _vertical(visible, view, height) if height >= _SMALLEST[1] else None
    if y is None:
        return None
    if view.is_log and len(y.round_values) < 2:
        low_high = None if view.y_ends is None else (10.0 ** view.y_ends[0], 10.0 ** view.y_ends[1])
        return build_scene(traces, replace(view, is_log=False, y_ends=low_high))
    ticks = y_ticks(y)
    width = view.width - 1 - max((len(tick.label) for tick in ticks), default=0)
    if width < _SMALLEST[0]:
        return None
    x = x_scale(*view.ends, width, view.axis)
    scene = Scene(x, y, view.axis, view.marker, x_ticks(x, view.axis), ticks)
    drawn = []  # in the unit of the vertical axis, with as many samples as there are dots
    for trace in visible:
        reduced = trace
        if len(trace.raw.x) > scene.dot_grid[0]:
            low, mean, high = _of_columns(trace.raw, x)
            mean = mean if trace.mean is None else _of_columns(trace.mean, x)[1]
            reduced = replace(trace, raw=high, mean=mean, low=low)
        drawn.append(reduced.each(lambda line: Line(line.x, np.log10(line.y))) if y.is_log else reduced)
    crossings = itertools.product([tick.cell for tick in scene.x_ticks], [tick.cell for tick in ticks])
    grid = Layer(dict.fromkeys(crossings, _GRID), None, is_dim=True)
    curves = _curves(drawn, scene)
    layers = [grid, *curves, *_spikes(drawn, scene, _cells_of(curves))]
    return replace(scene, layers=[layer for layer in layers if layer.cells])


def _visible(line: Line, view: View) -> Line:
    """Return the part of a line that can be drawn: inside the window, finite, and above 0 on a logarithmic axis."""
    near = line.part(view.ends, around=1)
    near = near.only(np.isfinite(near.y))
    if view.is_log:
        near = near.only(near.y > 0.0)
    if len(near.y) > _MOST_CUT:
        return near.part(view.ends)
    # Away from the ends of float64, where the difference of two values is infinite.
    return cut_to(Line(near.x, np.clip(near.y, -_LARGEST, _LARGEST)), *view.ends)


def cut_to(line: Line, left: float, right: float) -> Line:
    """Cut a line that begins before `left` or ends after `right` where it crosses them."""
    x, y = line.x.copy(), line.y.copy()
    for end, neighbor, border in ((0, 1, left), (-1, -2, right)) if len(x) > 1 else ():
        share = (border - line.x[end]) / ((line.x[neighbor] - line.x[end]) or 1.0)
        if 0.0 < share <= 1.0:
            x[end], y[end] = border, line.y[end] + share * (line.y[neighbor] - line.y[end])
    return Line(x, y).part((left, right))


def _of_columns(line: Line, x: Scale) -> tuple[Line, Line, Line]:
    """Return the lowest, the mean and the highest sample of each column of cells."""
    begins = np.searchsorted(line.x, x.borders)
    counts = np.diff([0, *begins, len(line.x)])
    filled = np.flatnonzero(counts)
    at, middles = (np.array([0, *begins]))[filled], (x.first + filled) * x.step / x.per_step
    mean = np.add.reduceat(line.y, at) / counts[filled]
    low, high = np.minimum.reduceat(line.y, at), np.maximum.reduceat(line.y, at)
    return Line(middles, low), Line(middles, np.clip(mean, low, high)), Line(middles, high)


def _vertical(traces: Sequence[DrawnCurve], view: View, rows: int) -> Scale | None:
    """Return the vertical scale, of decades on a logarithmic axis; None without values."""
    if view.y_ends is not None:
        return y_scale(*_widen(*view.y_ends, is_log=view.is_log), rows, is_log=view.is_log)
    extremes = [_ends(trace.raw.y, view) for trace in traces]
    ends, measured = _range(traces, extremes, view), full_range(extremes)
    if ends is None or measured is None:
        return None
    low, high = _widen(*ends, is_log=view.is_log)
    # The outermost rows are free for the marks of spikes, if there are any.
    has_room = rows >= _ROWS_WITH_ROOM
    below, above = has_room and measured[0] < low, has_room and measured[1] > high
    return y_scale(low, high, rows, is_log=view.is_log, below=below, above=above)


def _ends(values: FloatArray, view: View) -> FloatArray:
    """Return the lowest and the highest of some values in the unit of the vertical axis; nothing if there are none."""
    return _on_axis(np.array([values.min(), values.max()]) if len(values) else values, view)


def _on_axis(values: FloatArray, view: View) -> FloatArray:
    return np.log10(values) if view.is_log else values


def _range(traces: Sequence[DrawnCurve], extremes: Sequence[FloatArray], view: View) -> Extent | None:
    """Return the lowest and the highest value that must be seen; `extremes` are those of each trace."""
    followed = [(trace, ends) for trace, ends in zip(traces, extremes, strict=True) if trace.is_followed and len(ends)]
    if view.is_full or not followed:
        return full_range([*extremes, *(_ends(trace.line.y, view) for trace in traces)])
    spiky = [(trace, ends) for trace, ends in followed if not trace.is_whole]
    kept = [part for trace, ends in followed if trace.is_whole for part in (ends, _ends(trace.line.y, view))]
    kept += [_on_axis(values, view) for trace, _ in spiky for values in (trace.raw.y[-1:], trace.best.y)]
    return robust_range([_on_axis(few(trace.raw.y), view) for trace, _ in spiky], [ends for _, ends in spiky], kept)


def _widen(low: float, high: float, *, is_log: bool) -> Extent:
    """Add room above and below a constant curve."""
    size = 1.0 if is_log else max(abs(low), abs(high))
    if high - low > max(_FLAT * size, _TINY):
        return low, high
    margin = 0.11 * size if size > _TINY else 1.0  # a little more than a tenth, where round numbers are
    return low - margin, high + margin


def _curves(drawn: Sequence[DrawnCurve], scene: Scene) -> list[Layer]:
    """Return the samples behind everything, then the lines, then points and stars."""
    layers = []
    for one in drawn:
        if one.low is not None:  # the band that they fill
            across, _ = FINENESS[scene.marker]
            columns = (scene.x.dots(one.low.x, 1)[:, np.newaxis] * across + np.arange(across)).ravel()
            low, high = (scene.dots(line)[1].repeat(across) for line in (one.low, one.raw))
            dots = draw_bars(columns, low, high, *scene.dot_grid)
        elif one.mean is not None:
            dots = _dots(one.raw, one.pen, scene)
        else:
            continue
        faint = one.pen.faint
        layers.append(Layer(glyphs_of(dots, scene.marker, "."), faint, is_dim=isinstance(faint, int)))
    layers += _line_layers(drawn, scene)
    # One glyph per sample, in the very cell in which the line runs, while they are far apart.
    for one in drawn:
        points = scene.cells(one.line)
        if one.pen.has_points and len(set(points)) * _POINT_SPACING <= scene.x.cells:
            layers.append(Layer(dict.fromkeys(points, one.pen.glyph), one.pen.color))
    layers += [Layer(dict.fromkeys(scene.cells(one.best), BEST), one.pen.color) for one in drawn]
    taken = _cells_of(layers)
    return layers + [_letters(one, scene, taken) for one in drawn if one.pen.has_letters]


def _cells_of(layers: Sequence[Layer]) -> set[Cell]:
    return set[Cell]().union(*(layer.cells for layer in layers))


def _dots(line: Line, pen: Pen, scene: Scene) -> DotGrid:
    dots = draw_line(*scene.dots(line), *scene.dot_grid)
    if pen.is_dashed:
        dash, gap = (1, 1) if scene.marker == "ascii" else (_DASH, _GAP)
        dots[:, np.arange(scene.dot_grid[0]) % (dash + gap) >= dash] = False
    return dots


def _line_layers(drawn: Sequence[DrawnCurve], scene: Scene) -> list[Layer]:
    """Return the lines; in the cells in which several meet, they take turns, so that none is hidden."""
    across, down = FINENESS[scene.marker]
    dots = np.array([_dots(one.line, one.pen, scene) for one in drawn])
    filled = dots.reshape(len(drawn), scene.y.cells, down, scene.x.cells, across).any(axis=(2, 4))
    number = np.cumsum(filled, axis=0)
    turn = np.arange(scene.x.cells) // _TURN_WIDTH % np.maximum(number[-1], 1)
    seen = dots & (filled & (number - 1 == turn)).repeat(down, axis=1).repeat(across, axis=2)
    layers = []
    for one, grid in zip(drawn, seen, strict=True):
        pen, cells = one.pen, glyphs_of(grid, scene.marker, one.pen.glyph)
        if len(one.line.x) == 1:
            cells = dict.fromkeys(cells, "*" if scene.marker == "ascii" else "•")  # something larger than one dot
        elif pen.is_dashed and cells:
            markers = {cell[0] // _MARKER_SPACING: cell for cell in sorted(cells, reverse=True)}
            cells |= dict.fromkeys([*markers.values(), max(cells)], pen.glyph)
        layers.append(Layer(cells, pen.color))
    return layers


def _letters(drawn: DrawnCurve, scene: Scene, taken: set[Cell]) -> Layer:
    """Return the glyph at the line's end and in a few other places, in no cell that looks like a part of a curve."""
    cells, found = scene.cells(drawn.line), list[Cell]()
    for at in dict.fromkeys(np.linspace(len(cells) - 1, 0, _LETTERS).astype(int).tolist() if cells else []):
        column, row = cells[at]
        for away in _AWAY:
            beside = (0, 1, -1) if away else (0, 1)  # columns from the letter in which nothing else may be
            letter, *around = [(column + 1 + side, row + away) for side in beside]
            is_inside = letter[0] < scene.x.cells and 0 <= letter[1] < scene.y.cells
            if is_inside and taken.isdisjoint((letter, *around)):
                found.append(letter)
                taken.add(letter)
                break
    return Layer(dict.fromkeys(found, drawn.pen.glyph), drawn.pen.color)


def _spikes(drawn: Sequence[DrawnCurve], scene: Scene, taken: set[Cell]) -> list[Layer]:
    """Mark where samples lie beyond the vertical range: where each row of such samples without a gap is farthest.

    The value stands beside the mark, where the row is empty or else over the curve of the spike.
    """
    layers = []
    for glyph, row, sign in ((_ABOVE.get(scene.marker, "▲"), scene.y.cells - 1, 1), ("▼", 0, -1)):
        edge = sign * scene.y.ends[sign > 0] + _ROUNDING * scene.y.step
        farthest = np.full(scene.x.cells, -np.inf)  # times the sign, by column
        for one in drawn:
            line = one.low if sign < 0 and one.low is not None else one.raw
            columns, far = scene.x.dots(line.x, 1), sign * line.y
            outside = np.flatnonzero(far > edge)
            for at in outside[:-1][np.diff(outside) == 1]:  # what the line between two such samples crosses
                between = slice(columns[at], columns[at + 1])
                farthest[between] = np.maximum(farthest[between], edge)
            np.maximum.at(farthest, columns[outside], far[outside])
        found = np.flatnonzero(farthest > -np.inf)
        spikes = np.split(found, np.flatnonzero(np.diff(found) > _APART) + 1) if len(found) else []
        peaks = [int(spike[farthest[spike].argmax()]) for spike in spikes]
        cells = {(peak, row): glyph for peak in peaks}
        for peak in peaks:
            value = sign * float(farthest[peak])
            label = format_value(10.0**value if scene.y.is_log else value, 3)
            sides = (peak + 1, f" {label}"), (peak - len(label) - 1, f"{label} ")
            for busy, (begin, text) in itertools.product((taken, set[Cell]()), sides):
                around = {(column, row) for column in range(begin - 1, begin + len(text) + 1)} - {(peak, row)}
                if 0 <= begin <= scene.x.cells - len(text) and not around & (busy | cells.keys()):
                    cells |= {(begin + number, row): letter for number, letter in enumerate(text)}
                    break
        layers.append(Layer(cells, None))
    return layers


def draw_line(xs: IndexArray, ys: IndexArray, width: int, height: int) -> DotGrid:
    """Dots of the polyline through points ``(n,)`` in a grid of ``(height, width)`` dots; row 0 is at the bottom."""
    # Points that follow each other in one column become one vertical bar; only the bars are then joined.
    starts = np.flatnonzero(np.diff(xs, prepend=-1))
    ends = np.append(starts, len(xs))[1:] - 1
    columns = xs[starts]
    dots = draw_bars(columns, np.minimum.reduceat(ys, starts), np.maximum.reduceat(ys, starts), width, height)
    # The straight parts from each column's last point to the next column's first one.
    across, climb = np.diff(columns), ys[starts][1:] - ys[ends][:-1]
    lengths = np.maximum(np.abs(across), np.abs(climb))
    part = np.repeat(np.arange(len(lengths)), lengths)
    share = (np.arange(len(part)) - np.repeat(lengths.cumsum() - lengths, lengths)) / lengths[part]
    x = np.rint(columns[part] + share * across[part]).astype(np.int64)
    y = np.rint(ys[ends][part] + share * climb[part]).astype(np.int64)
    dots[y, x] = True
    return dots


def draw_bars(xs: IndexArray, low: IndexArray, high: IndexArray, width: int, height: int) -> DotGrid:
    """Dots of vertical bars between two rows, which lie inside the grid of ``(height, width)`` dots."""
    edges = np.zeros((height + 1, width), dtype=np.int64)
    np.add.at(edges, (low, xs), 1)
    np.add.at(edges, (high + 1, xs), -1)
    dots: DotGrid = edges.cumsum(axis=0)[:height] > 0
    return dots


def glyphs_of(dots: DotGrid, marker: Marker, plain: str) -> dict[tuple[int, int], str]:
    """The characters of the cells that are not empty, by column and row; the plain one where a cell is one dot.

    The dots have the shape `(rows * down, columns * across)` for the marker's fineness; row 0 is at the bottom.
    """
    across, down = FINENESS[marker]
    height, width = dots.shape
    cells = dots.reshape(height // down, down, width // across, across)
    # Top dot row first, as the glyph tables count.
    codes = np.einsum("rjci,ji->rc", cells[:, ::-1], _WEIGHTS[marker])
    rows, columns = np.nonzero(codes)
    known = _GLYPHS.get(marker, (" ", plain))
    glyphs = [known[code] for code in codes[rows, columns].tolist()]
    return dict(zip(zip(columns.tolist(), rows.tolist(), strict=True), glyphs, strict=True))
