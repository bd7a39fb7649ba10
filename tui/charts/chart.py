"""The live chart of one group of metrics."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style
from textual.events import Click, MouseDown, MouseEvent, MouseMove, MouseScrollDown, MouseScrollUp, MouseUp
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from ..text.numbers import plural
from .curve import Axis, Curve, Extent, Mode, Series, Window, extent_of, snapped
from .frame import Entry, Legend, Mark, MarkKind, framed, header_line, legends_of, with_crosshair
from .scene import ALARM, DrawnCurve, Marker, Pen, Scene, View, build_scene, pen_for, style_of, tone_of

_HEADER_ROWS = 1
_WHEEL = 1.25
_WIDE = 20.0  # the largest part of the smallest value on a linear axis of learning rates
_LEAST_WAIT_S, _LONGEST_WAIT_S = 0.25, 2.0
_REST_S = 0.3
_LEAST_ROWS = 4  # two for the curve, and two for the axis
_DIM = Style(dim=True)
_NEAR_THE_START = 0.05


class RedrawGate:
    """Delays redraws so that drawing takes at most `max_share` of one core from training.

    There are at most four a second, and at least one in two seconds, so that a costly chart still updates.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.max_share = 0.03
        self._next_s = self._drawn_s = float("-inf")

    def wait_s(self) -> float:
        """Seconds until the next redraw is allowed; 0 when it is allowed now."""
        return max(0.0, self._next_s - self._clock())

    def hold(self, seconds: float) -> None:
        """Delay the next redraw, but never for long, because something quicker is drawn now."""
        self._next_s = max(self._next_s, min(self._clock() + seconds, self._drawn_s + _LONGEST_WAIT_S))

    def drawn(self, cost_s: float) -> None:
        """Report a redraw that has just ended and took `cost_s` seconds."""
        self._drawn_s = self._clock()
        self._next_s = self._drawn_s + min(max(_LEAST_WAIT_S, cost_s / self.max_share), _LONGEST_WAIT_S)


class MetricChart(Widget, can_focus=True):
    """One pane of curves, such as the training and the validation loss. Keys zoom and move the one with the focus.

    New curves are drawn when the gate allows it, and immediately if the pane's size, the theme or one of the attributes
    below changes. The mouse changes no window and no cursor: it sends messages.
    """

    DEFAULT_CSS = "MetricChart { width: 1fr; height: 1fr; }"
    ALLOW_SELECT = False  # dragging pans

    title: reactive[str] = reactive("")  # the pane's title, best the metric's own name: the legend shortens names by it
    # Weight of the moving average, 0 for none. What is read at the cursor, and the best epoch, stay as measured.
    smoothing: reactive[float] = reactive(0.0)
    # Whether the vertical axis is logarithmic; values of 0 and below are dropped with a note.
    log_scale: reactive[bool] = reactive(False)
    # `braille`, `block` (quadrants) or `ascii`, for fonts without the others.
    marker: reactive[Marker] = reactive[Marker]("braille")
    is_full: reactive[bool] = reactive(False)  # whether the vertical range has every sample, spikes too
    axis: reactive[Axis] = reactive(Axis.STEP)  # what runs along the bottom
    window: reactive[Window] = reactive(Window())  # the part of the horizontal axis that is shown
    y_ends: reactive[Extent | None] = reactive(None)  # what a zoomed vertical axis shows, in its unit
    cursor: reactive[float | None] = reactive(None, repaint=False)  # where the crosshair stands, or None
    pointed_row: reactive[int | None] = reactive(None, repaint=False)  # below the pointer, from the bottom
    _timer: Timer | None = None

    @dataclass
    class CursorMoved(Message):
        """The mouse moved the crosshair to a sample, or away; the screen moves it in all charts."""

        x: float | None

    @dataclass
    class WindowChanged(Message):
        """The mouse zoomed or panned; the screen does the same in all charts."""

        window: Window

    def __init__(self, title: str = "", *, clock: Callable[[], float] = time.perf_counter) -> None:
        """Make an empty chart, whose redraws are spaced with the clock."""
        super().__init__()
        self.set_reactive(MetricChart.title, title)
        self.gate = RedrawGate(clock)
        self._curves: Sequence[Curve] = ()
        self._ruler: Sequence[Curve] = ()
        self._marks: Sequence[Mark] = ()
        self._series: dict[str, Series] = {}
        self._scene: Scene | None = None
        self._strips: list[Strip] = []
        self._drawn_look: tuple[object, ...] = ()
        self._is_due = self._is_stale = False  # whether to draw at the next repaint, and whether there is anything new
        self._crosshair: int | None = None  # the column in which it is drawn
        self._hovered: float | None = None
        self._dragged_from: tuple[int, int, Window, Extent | None] | None = None
        self._has_dragged = False

    def show(self, curves: Sequence[Curve], *, marks: Sequence[Mark] = (), ruler: Sequence[Curve] = ()) -> None:
        """Set the curves and what to mark on the horizontal axis; they are drawn when the next redraw is due.

        The chart covers the horizontal range of the ruler, too, so that all charts line up.
        """
        was_empty = not self._has_samples
        self._curves, self._marks, self._ruler, self._is_stale = curves, marks, ruler, True
        if was_empty and self._has_samples:
            self.refresh()  # users wait for the first point: draw it immediately
        else:
            self._redraw_when_due()

    def _redraw_when_due(self) -> None:
        """Draw what is new now or, by one timer, when that is allowed."""

        def end_wait() -> None:
            self._timer = None
            self._redraw_when_due()

        if self._is_stale and self._timer is None:
            if wait_s := self.gate.wait_s():
                self._timer = self.set_timer(wait_s, end_wait, name="redraw")
            else:
                self.refresh()

    @property
    def _has_samples(self) -> bool:
        return any(len(curve.value) for curve in self._curves)

    def watch_log_scale(self) -> None:
        self.y_ends = None

    watch_is_full = watch_log_scale

    def watch_cursor(self, old: float | None, new: float | None) -> None:
        """Move the crosshair; new samples wait until it rests, because drawing them would delay the next key."""
        self.watch_pointed_row()
        self.gate.hold(_REST_S)
        columns = [column for cursor in (old, new) if (column := self._column_of(cursor)) is not None]
        if self._scene is not None and columns:
            left, width = min(columns), max(columns) - min(columns) + 1
            self.refresh(Region(left, _HEADER_ROWS, width, self._scene.y.cells + 1))

    def watch_pointed_row(self) -> None:
        if self._strips and self._scene is not None:
            self._strips[0] = self._header()
            self.refresh(Region(0, 0, self.size.width, _HEADER_ROWS))

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return rows of the picture; draw it first if that is due, or for another size or theme."""
        look = self.size, self.app.theme
        if self._is_due or look != self._drawn_look:
            began_s = time.thread_time()  # of this thread: training on all cores must not make drawing look expensive
            self._strips = self._draw()
            self._drawn_look, self._is_due, self._is_stale = look, False, False
            self.gate.drawn(time.thread_time() - began_s)
        self._crosshair = self._column_of(self.cursor)
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        if y >= len(self._strips):
            return Strip.blank(self.size.width, self.visual_style.rich_style)
        column, plot_row = self._crosshair, y - _HEADER_ROWS
        if column is None or self._scene is None or not 0 <= plot_row <= self._scene.y.cells:
            return self._strips[y]
        return with_crosshair(self._strips[y], column, is_axis=plot_row == self._scene.y.cells)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Repaint regions of the picture as it is, or draw all of it with the newest samples."""
        self._is_due = self._is_due or not regions
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def _draw(self) -> list[Strip]:
        """Return the rows of the picture, with the new samples."""
        known = self._series
        self._series = {one.name: Series.grown(known.get(one.name), one, self.smoothing) for one in self._curves}
        width, height = self.size
        self._scene = None
        if width < 1 or height < 1:
            return []
        plot = self._draw_plot(width, height - _HEADER_ROWS) if height > _HEADER_ROWS else []
        return [self._header(), *plot][:height]

    def _header(self) -> Strip:
        line = header_line(self.title, self._legends(), self._notes(), self.size.width)
        style = self.visual_style.rich_style
        return Strip(line.render(self.app.console)).apply_style(style).adjust_cell_length(self.size.width, style)

    def _notes(self) -> list[tuple[str, Style]]:
        """Return the notes on the picture, most important first."""
        started, alarm = self._started(), self._alarm
        lost = sum(series.nonfinite_count for series in started)
        is_log = self._scene is not None and self._scene.y.is_log
        is_cut = is_log and any(series.lowest <= 0.0 for series in started)
        notes = [
            (f"! {plural(lost, 'NaN report')}" if lost else "", alarm),
            (f"log{', <=0 hidden' * is_cut}" if is_log else "", alarm if is_cut else _DIM),
            (self.window.mode.value, _DIM),
            ("y zoom" if self.y_ends is not None else "y full" if self.is_full else "", _DIM),
            (f"smooth {self.smoothing:g}" if self.smoothing > 0.0 else "", _DIM),
            (self.axis.value, _DIM),
        ]
        return [(note, style) for note, style in notes if note]

    def _legends(self) -> Iterable[Legend]:
        """Return the legend beside the title, the longest form first."""
        return legends_of(self._entries(), self.title)

    def _entries(self) -> list[Entry]:
        """Return what the legend says of every curve."""
        entries, scene, row = [], self._scene, self.pointed_row
        for series in self._started():
            value = series.latest if self.cursor is None else series.curve.at(self.axis, self.cursor)
            entry = Entry.of(series, self._pen(series.curve), value)
            if scene is not None and row is not None and self.cursor is not None and value is not None:
                at = value if not scene.y.is_log else math.log10(value) if value > 0.0 else math.nan
                entry = replace(entry, is_pointed=math.isfinite(at) and abs(scene.y.cell(at) - row) <= 1)
            entries.append(entry)
        return entries

    def _pen(self, curve: Curve) -> Pen:
        tone, has_color = tone_of(self.app.current_theme), not self.app.no_color
        return pen_for(0, self.marker, tone, is_validation=curve.is_validation, has_color=has_color)

    def _started(self) -> list[Series]:
        return [series for series in self._series.values() if series.count]

    @property
    def _alarm(self) -> Style:
        return style_of(ALARM[tone_of(self.app.current_theme)]) + Style(bold=True)

    def stops(self) -> list[float]:
        """Return the positions of the best samples and of the marks on the horizontal axis."""
        best = [x for series in self._started() for x in series.best_line(self.axis).x.tolist()]
        return best + [mark.place.along(self.axis) for mark in self._marks]

    def _draw_plot(self, width: int, height: int) -> list[Strip]:
        style = self.visual_style.rich_style

        def said(sentence: str) -> list[Strip]:
            empty = [Strip.blank(width, style)] * (max(height - 1, 0) // 2)
            return [*empty, Strip([Segment(sentence[:width].center(width), style + _DIM)], width)]

        started, extent = self._started(), self._extent
        if not started or extent is None:
            return said("waiting for the first step")
        ends = left, right = self.window.resolved(extent)
        if self.window.mode is Mode.ALL and (0.0 < left < _NEAR_THE_START * right or 0.0 < left == right):
            ends = 0.0, right  # a round number, which stays where it is while the run grows
        # An accuracy never has a logarithmic axis; a learning rate has one if its range is wide.
        is_log = self.log_scale and all(series.curve.metric.fits_log_scale for series in started)
        if all(series.curve.metric.is_learning_rate and series.lowest > 0.0 for series in started):
            widest = max(series.highest for series in started) / min(series.lowest for series in started)
            is_log = self.log_scale or widest > _WIDE
        view = View(width, height, self.axis, is_log, self.marker, ends, self.is_full, self.y_ends)
        self._scene = build_scene([self._trace(series, ends) for series in started], view)
        if self._scene is None:
            return said("nothing to plot" if height >= _LEAST_ROWS else "no room")
        lost = [(series.curve, at) for series in started for at in series.lost(self.axis, ends).tolist()]
        marks = [*self._marks, *(Mark(MarkKind.ALERT, curve.place(at), "NaN") for curve, at in lost)]
        return framed(self._scene, marks, style, self._alarm)

    def _trace(self, series: Series, ends: Extent) -> DrawnCurve:
        """Return what is drawn of a curve."""
        return DrawnCurve.of(series, self._pen(series.curve), self.axis, ends)

    @property
    def _extent(self) -> Extent | None:
        """Both ends of the run on the axis."""
        return extent_of([*self._curves, *self._ruler], self.axis)

    def _column_of(self, cursor: float | None) -> int | None:
        """Return the column of the widget in which the crosshair stands."""
        if cursor is None or self._scene is None:
            return None
        x = self._scene.x
        left, right = x.ends
        return self.size.width - x.cells + x.cell(cursor) if left <= cursor <= right else None

    def _below(self, event: MouseEvent) -> tuple[Scene, int, int] | None:
        """Return the scene, and the column and the row (from the bottom) of the pointer, inside the plot or outside."""
        place, scene = event.get_content_offset(self), self._scene
        if place is None or scene is None:
            return None
        return scene, place.x - (self.size.width - scene.x.cells), scene.y.cells - 1 - (place.y - _HEADER_ROWS)

    def _x_below(self, event: MouseEvent) -> float | None:
        """Return the position on the axis below the pointer, or None outside the plot."""
        if (below := self._below(event)) is None:
            return None
        scene, column, row = below
        return scene.x.value(column) if 0 <= column < scene.x.cells and row < scene.y.cells else None

    def on_mouse_move(self, event: MouseMove) -> None:
        """Pan while a button is held, else move the crosshair unless a click or a key has put it down."""
        if self._dragged_from is not None:
            from_x, from_y, window, y_ends = self._dragged_from
            distance, climb = from_x - event.screen_x, event.screen_y - from_y
            self._has_dragged = self._has_dragged or bool(distance or climb)
            if self._scene is not None and (extent := self._extent) is not None:
                if y_ends is not None:
                    self.y_ends = y_ends
                    self.pan_y(climb / self._scene.y.cells)
                self.post_message(self.WindowChanged(window.panned(extent, distance / self._scene.x.cells)))
            return
        if (below := self._below(event)) is not None:
            self.pointed_row = below[2]
        x = self._x_below(event)
        if x is not None and (self.cursor is None or self.cursor == self._hovered):
            x = snapped(x, self._curves, self.axis)
            if x != self._hovered:
                self._hovered = x
                self.post_message(self.CursorMoved(x))

    def on_leave(self) -> None:
        if self.cursor is not None and self.cursor == self._hovered:
            self.post_message(self.CursorMoved(None))
        self._hovered = self.pointed_row = None

    def on_mouse_down(self, event: MouseDown) -> None:
        if self._x_below(event) is not None:
            self._dragged_from = (event.screen_x, event.screen_y, self.window, self.y_ends)
            self._has_dragged = False
            self.capture_mouse()

    def on_mouse_up(self, _event: MouseUp) -> None:
        self._dragged_from = None
        self.release_mouse()

    def on_click(self, event: Click) -> None:
        """Put the crosshair down; a double click shows everything."""
        if event.chain == 2:
            self.y_ends = None
            self.post_message(self.WindowChanged(Window()))
        elif not self._has_dragged and (x := self._x_below(event)) is not None:
            self._hovered = None
            self.post_message(self.CursorMoved(snapped(x, self._curves, self.axis)))

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self._zoom(event, _WHEEL)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self._zoom(event, 1.0 / _WHEEL)

    def _zoom(self, event: MouseEvent, factor: float) -> None:
        """Zoom the axis on which the pointer is, or the horizontal one on the plot."""
        below, extent = self._below(event), self._extent
        if below is not None and below[1] < 0 and below[2] < below[0].y.cells:
            event.stop()
            self.zoom_y(factor, below[0].y.value(below[2]))
        elif extent is not None and (at := self._x_below(event)) is not None:
            event.stop()
            self.post_message(self.WindowChanged(self.window.zoomed(extent, factor, at)))

    def zoom_y(self, factor: float, at: float | None = None) -> None:
        """Show `1 / factor` of the vertical range; `at`, by default its middle, stays where it is."""
        if self._scene is not None:
            low, high = self.y_ends or self._scene.y.seen
            middle = (low + high) / 2 if at is None else min(max(at, low), high)
            self.y_ends = middle - (middle - low) / factor, middle + (high - middle) / factor

    def pan_y(self, share: float) -> None:
        """Show higher values, by a share of the vertical range, or lower ones."""
        if self._scene is not None:
            low, high = self.y_ends or self._scene.y.seen
            self.y_ends = low + share * (high - low), high + share * (high - low)
