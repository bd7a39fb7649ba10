"""The live chart of one group of metrics."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Self

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip

from ..text.numbers import plural
from .frame import AxisMark, framed, with_crosshair
from .gate import RedrawGate
from .legend import Entry, Legend, header_line, legends_of, style_of
from .marks import STRETCHES, Mark, MarkKind, MarkTable
from .mouse import HEADER_ROWS, PointedPlot
from .pens import Pen, alarm_color, pen_for, tone_of
from .raster import Marker
from .scene import Trace, View, build_scene
from .series import Series
from .window import Extent, Mode, resolved
from .y_range import YRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .curve import Curve
    from .scale import Scale

_MANY = 8
_WIDE = 20.0  # the largest part of the smallest value on a linear axis of learning rates
_REST_S = 0.3
_LEAST_ROWS = 4  # two for the curve, and two for the axis
_WAITING = "waiting for the first step"
_DIM = Style(dim=True)
_NEAR_THE_START = 0.05


class MetricChart(PointedPlot):
    """One pane of curves, such as the training and the validation loss.

    Pass it the run's curves whenever they change: `show` only stores them. It draws by itself, at most
    four times a second and on a small share of one core, and immediately if the pane's size, the theme or one
    of the attributes below changes.
    """

    title: reactive[str] = reactive("")  # the pane's title, best the metric's own name: the legend shortens names by it
    # Weight of the moving average, 0 for none. What is read at the cursor, and the best epoch, stay as measured.
    smoothing: reactive[float] = reactive(0.0)
    # Whether the vertical axis is logarithmic; values of 0 and below are dropped with a note.
    log_scale: reactive[bool] = reactive(False)
    # `braille`, `block` (quadrants) or `ascii`, for fonts without the others.
    marker: reactive[Marker] = reactive[Marker]("braille")
    y_range: reactive[YRange] = reactive(YRange.AUTO)  # how the vertical range is chosen

    def __init__(
        self,
        title: str = "",
        *,
        clock: Callable[[], float] = time.perf_counter,
        cost_clock: Callable[[], float] = time.thread_time,
        id: str | None = None,  # noqa: A002  Textual's name
        classes: str | None = None,
    ) -> None:
        """Make an empty chart.

        Redraws are spaced with the clock. The cost is in processor seconds of this thread: training on all cores must
        not make drawing look expensive.
        """
        super().__init__(id=id, classes=classes)
        self.set_reactive(MetricChart.title, title)
        self._cost_clock = cost_clock
        self._gate = RedrawGate(clock)
        self._marks = MarkTable(())
        self._series: dict[str, Series] = {}
        self._strips: list[Strip] = []
        self._fixed: Scale | None = None
        self._drawn_look: tuple[object, ...] | None = None
        self._is_due = True
        self._crosshair: int | None = None  # the column in which it is drawn

    def show(self, curves: Sequence[Curve], *, marks: Sequence[Mark] = (), ruler: Sequence[Curve] = ()) -> None:
        """Set the curves; they are drawn when the next redraw is due.

        Args:
            curves: Each nearly always has the earlier curve of its name as a prefix; then only new samples are read.
            marks: What to mark on the horizontal axis; another sequence object if they change.
            ruler: Curves of another chart, whose horizontal range this chart covers too, so that all charts line up.
        """
        if marks is not self._marks.marks:
            self._marks = MarkTable(marks)
        self._ruler = tuple(ruler)
        was_empty = not self._has_samples
        self._curves = tuple(curves)
        self._gate.mark()
        if was_empty and self._has_samples:
            self.refresh()  # users wait for the first point: draw it immediately
        else:
            self._gate.schedule(self, self.refresh)

    @property
    def _has_samples(self) -> bool:
        return any(len(curve.value) for curve in self._curves)

    def watch_log_scale(self) -> None:
        """Show the whole vertical range, whose unit is another one."""
        self.y_ends = None

    watch_y_range = watch_log_scale

    def on_mount(self) -> None:
        """Draw the curves that were set before the widget was mounted."""
        self._gate.schedule(self, self.refresh)

    def watch_cursor(self, old: float | None, new: float | None) -> None:
        """Move the crosshair; new samples wait until it rests, because drawing them would delay the next key."""
        super().watch_cursor(old, new)
        self.watch_pointed_row()
        self._gate.hold(_REST_S)

    def watch_pointed_row(self) -> None:
        """Write the legend again."""
        if self._strips and self._scene is not None:
            self._strips[0] = self._header()
            self.refresh(Region(0, 0, self.size.width, HEADER_ROWS))

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return rows of the picture; redraw it first if its look has changed or a redraw is due."""
        look = self._look()
        is_due, self._is_due = self._is_due or look != self._drawn_look, False
        if is_due and self._gate.ready(force=look != self._drawn_look):
            began_s = self._cost_clock()
            self._strips = self._draw()
            self._drawn_look = look
            self._gate.drawn(self._cost_clock() - began_s)
        self._crosshair = self._column_of(self.cursor)
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Return one row of the picture, with the crosshair."""
        if y >= len(self._strips):
            return Strip.blank(self.size.width, self.visual_style.rich_style)
        column, plot_row = self._crosshair, y - HEADER_ROWS
        if column is None or self._scene is None or not 0 <= plot_row <= self._scene.y.cells:
            return self._strips[y]
        return with_crosshair(self._strips[y], column, is_axis=plot_row == self._scene.y.cells)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Repaint regions of the picture as it is, or all of it, with the newest samples if a redraw is due."""
        self._is_due = self._is_due or not regions
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def _look(self) -> tuple[object, ...]:
        """Return everything except the samples that decides how the picture looks."""
        return (
            self.size,
            self.app.theme,
            self.visual_style.rich_style,
            self.axis,
            self.smoothing,
            self.log_scale,
            self.marker,
            self.title,
            self.window,
            self.y_range,
            self.y_ends,
            self._has_samples,
        )

    def _draw(self) -> list[Strip]:
        """Return the rows of the picture."""
        self._update_series()
        width, height = self.size
        self._scene = None
        if width < 1 or height < 1:
            return []
        plot = self._draw_plot(width, height - HEADER_ROWS) if height > HEADER_ROWS else []
        return [self._header(), *plot][:height]

    def _header(self) -> Strip:
        line = header_line(self.title, self._legends(), self._notes(), self.size.width)
        style = self.visual_style.rich_style
        return Strip(line.render(self.app.console)).apply_style(style).adjust_cell_length(self.size.width, style)

    def _centred(self, sentence: str, width: int, height: int) -> list[Strip]:
        """Return rows with a dim sentence in the middle of `width` by `height` cells."""
        style = self.visual_style.rich_style
        empty = [Strip.blank(width, style)] * (max(height - 1, 0) // 2)
        return [*empty, Strip([Segment(sentence[:width].center(width), style + _DIM)], width)]

    def _update_series(self) -> None:
        """Append the new samples, and forget curves that are no longer shown."""
        kept: dict[str, Series] = {}
        for curve in self._curves:
            series = self._series.get(curve.name)
            if series is None or not series.continues_in(curve):
                series = Series(curve)
            series.update(curve, self.smoothing)
            kept[curve.name] = series
        self._series = kept

    def _pen(self, curve: Curve) -> Pen:
        tone, has_color = tone_of(self.app.current_theme), not self.app.no_color
        return pen_for(0, self.marker, tone, is_validation=curve.is_validation, has_color=has_color)

    def _started(self) -> list[Series]:
        return [series for series in self._series.values() if series.count]

    @property
    def _is_log(self) -> bool:
        """Whether the vertical axis is logarithmic: an accuracy never has one, a learning rate if it spans much."""
        started = self._started()
        if all(series.curve.metric.is_learning_rate and series.lowest > 0.0 for series in started):
            wide = max(series.highest for series in started) > _WIDE * min(series.lowest for series in started)
            return self.log_scale or wide
        return self.log_scale and all(series.curve.metric.fits_log_scale for series in started)

    @property
    def _alarm(self) -> Style:
        return style_of(alarm_color(tone_of(self.app.current_theme))) + Style(bold=True)

    def _notes(self) -> list[tuple[str, Style]]:
        """Return the notes on the picture, most important first."""
        started, alarm = self._started(), self._alarm
        notes = []
        if lost := sum(series.nonfinite_count for series in started):
            notes.append((f"! {plural(lost, 'NaN report')}", alarm))
        if self._scene is not None and self._scene.y.is_log:
            hidden = any(series.lowest <= 0.0 for series in started)
            notes.append(("log, <=0 hidden" if hidden else "log", alarm if hidden else _DIM))
        if self.window.mode is not Mode.ALL:
            notes.append(("follow" if self.window.mode is Mode.FOLLOW else "zoom", _DIM))
        if self.y_ends is not None:
            notes.append(("y zoom", _DIM))
        elif self.y_range is not YRange.AUTO:
            notes.append((f"y {self.y_range.value}", _DIM))
        if self.smoothing > 0.0:
            notes.append((f"smooth {self.smoothing:g}", _DIM))
        notes.append((self.axis.value, _DIM))
        return notes

    def _legends(self) -> Iterable[Legend]:
        """Return what stands beside the title, in fewer and fewer words."""
        return legends_of(self._entries(), self.title)

    def _entries(self) -> list[Entry]:
        """Return what the legend says of every curve."""
        entries = []
        for series in self._started():
            curve, at = series.curve, series.best
            best, epoch = (None, 0.0) if at is None else (float(curve.value[at]), float(curve.epoch[at]))
            value = series.latest if self.cursor is None else curve.at(self.axis, self.cursor)
            entries.append(
                Entry(curve.name, self._pen(curve), value, best, epoch, curve.running, self._is_pointed(value))
            )
        return entries

    def _is_pointed(self, value: float | None) -> bool:
        """Return whether the pointer is on a curve that has a value below the crosshair."""
        scene, row = self._scene, self.pointed_row
        if value is None or scene is None or row is None or self.cursor is None or (scene.y.is_log and value <= 0.0):
            return False
        return math.isfinite(value) and abs(scene.y.cell(math.log10(value) if scene.y.is_log else value) - row) <= 1

    def stops(self) -> list[float]:
        """Return the places of the best samples and of the marks on the horizontal axis."""
        best = [(series.curve.along(self.axis), series.best) for series in self._started()]
        moments = [mark.begin.along(self.axis) for mark in self._marks.marks if mark.kind not in STRETCHES]
        return [float(x[at]) for x, at in best if at is not None] + moments

    def _draw_plot(self, width: int, height: int) -> list[Strip]:
        started = self._started()
        extent = self._extent
        if not started or extent is None:
            return self._centred(_WAITING, width, height)
        left, right = resolved(self.window, extent)
        if self.window.mode is Mode.ALL and (0.0 < left < _NEAR_THE_START * right or 0.0 < left == right):
            left = 0.0  # a round number, which stays where it is while the run grows
        ends = left, right
        is_full, fixed = self.y_range is YRange.FULL, self._fixed if self.y_range is YRange.FIXED else None
        view = View(width, height, self.axis, self._is_log, self.marker, ends, is_full, fixed, self.y_ends)
        self._scene = build_scene([self._trace(series, ends) for series in started], view)
        if self._scene is None:
            return self._centred("nothing to plot" if height >= _LEAST_ROWS else "no room", width, height)
        self._fixed = self._scene.y
        return framed(self._scene, self._axis_marks(ends), self.visual_style.rich_style, self._alarm)

    def _trace(self, series: Series, ends: Extent) -> Trace:
        """Return what is drawn of a curve."""
        curve, axis = series.curve, self.axis
        sampled = series.sampled(axis, ends)
        # Of a few validations, none is a spike; a learning rate is drawn whole.
        is_whole = curve.metric.is_learning_rate or (curve.is_validation and len(sampled) < _MANY)
        newest, best = (series.point(at, axis, ends) for at in (series.count - 1, series.best))
        raw, smooth = series.whole(axis), series.smooth(axis)
        return Trace(self._pen(curve), raw, smooth, None if is_whole else sampled, newest, best)

    def _axis_marks(self, ends: Extent) -> list[AxisMark]:
        """Return the marks of the run and of NaN on this axis."""
        axis = self.axis
        visible = self._marks.visible(axis, ends, least=(ends[1] - ends[0]) / self.size.width / 2)
        marks = [AxisMark(m.kind, m.begin.along(axis), m.end.along(axis), m.label) for m in visible]
        nan_x = [x for series in self._started() for x in series.nan_positions(axis, ends).tolist()]
        return marks + [AxisMark(MarkKind.NAN, x, x) for x in nan_x]
