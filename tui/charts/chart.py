"""The live chart of one group of metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

from rich.style import Style
from rich.text import Text
from textual.message import Message
from textual.reactive import reactive
from textual_plotext import PlotextPlot

from tpu_console.engine.runs.state import lower_is_better

from ..terminal.plotext_compat import set_plot_size
from .curve import Axis, Curve
from .gate import RedrawGate
from .legend import Entry, legend_line, style_of, title_line
from .pens import Pen, Tone, alarm_color, pen_for
from .raster import Marker
from .scene import Scene, Trace, View, build_scene
from .series import Series
from .window import Window
from .y_range import YRange

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.timer import Timer

    from .cursor import Cursor
    from .marks import Mark

_MAX_SMOOTHING = 0.99
_HEADER_ROWS = 2
# Textual turns the picture into strips after `render`: about a third of the drawing time again.
_COST_WITH_STRIPS = 1.4
_WAITING = "waiting for the first step"
_DIM = Style(dim=True)
# The characters with which plotext draws axes, for fonts that have only ASCII.

_Look: TypeAlias = tuple[int, int, str, Axis, float, bool, Marker, str, bool]


class MetricChart(PlotextPlot):
    """One pane of curves, such as the training and the validation loss.

    Pass it the run's curves whenever they change: `show` only stores them. It draws by itself, at most
    four times a second and on a small share of one core, and immediately if the pane's size, the theme or one
    of the attributes below changes.

    Attributes:
        title: The pane's title, best the metric's own name: the legend shortens names by it.
        axis: What runs along the bottom.
        smoothing: Weight of the moving average over training curves, 0 (off) to 0.99; held-out metrics
            are few and stay as measured.
        log_scale: Whether the vertical axis is logarithmic; values of 0 and below are dropped with a note.
        marker: `braille`, `block` (quadrants) or `ascii`, for fonts without the others.
        window: The part of the horizontal axis that is shown.
        cursor: Where the crosshair stands, or None.
        y_range: How the vertical range is chosen.
    """

    class CursorMoved(Message):
        """The mouse moved the crosshair, which is for the screen to pass to all its charts as it is.

        Args:
            x: The sample below the pointer, in the axis's unit; None to remove the crosshair.
        """

        def __init__(self, x: float | None) -> None:
            super().__init__()
            self.x = x

    class WindowChanged(Message):
        """The mouse zoomed or panned, which is for the screen to pass to all its charts.

        Args:
            window: What to show.
        """

        def __init__(self, window: Window) -> None:
            super().__init__()
            self.window = window

    title: reactive[str] = reactive("")
    axis: reactive[Axis] = reactive(Axis.STEP)
    smoothing: reactive[float] = reactive(0.0)
    log_scale: reactive[bool] = reactive(False)
    marker: reactive[Marker] = reactive[Marker]("braille")
    window: reactive[Window] = reactive(Window())
    cursor: reactive[Cursor | None] = reactive(None)
    y_range: reactive[YRange] = reactive(YRange.AUTO)

    def __init__(
        self,
        title: str = "",
        *,
        max_share: float = 0.03,
        clock: Callable[[], float] = time.perf_counter,
        cost_clock: Callable[[], float] = time.thread_time,
        name: str | None = None,
        id: str | None = None,  # noqa: A002  Textual's name
        classes: str | None = None,
        disabled: bool = False,
    ) -> None:
        """Make an empty chart.

        Args:
            title: The pane's title.
            max_share: Largest share of one core that drawing this pane may take.
            clock: Seconds on a clock that never goes back; redraws are spaced with it.
            cost_clock: Processor seconds of this thread: training on all cores must not make drawing look expensive.
            name: The widget's name.
            id: The widget's id.
            classes: The widget's CSS classes.
            disabled: Whether the widget is disabled.
        """
        super().__init__(name=name, id=id, classes=classes, disabled=disabled)
        self.set_reactive(MetricChart.title, title)
        self._cost_clock = cost_clock
        self._gate = RedrawGate(clock, max_share=max_share)
        self._timer: Timer | None = None
        self._curves: tuple[Curve, ...] = ()
        self._marks: tuple[Mark, ...] = ()
        self._ruler: tuple[Curve, ...] = ()
        self._series: dict[str, Series] = {}
        self._slots: dict[bool, dict[str, int]] = {False: {}, True: {}}
        self._picture = Text()
        self._drawn_look: _Look | None = None

    def show(self, curves: Sequence[Curve], *, marks: Sequence[Mark] = (), ruler: Sequence[Curve] = ()) -> None:
        """Set the curves; they are drawn when the next redraw is due.

        Args:
            curves: Each has the earlier curve of its name as a prefix, unless `reset` came in between.
            marks: What to mark on the horizontal axis.
            ruler: Curves of other charts: this chart extends as far as they do, so that all charts show the same.
        """
        self._marks, self._ruler = tuple(marks), tuple(ruler)
        was_empty = not self._has_samples
        self._curves = tuple(curves)
        self._gate.mark()
        if was_empty and self._has_samples:
            self.refresh()  # users wait for the first point: draw it immediately
        else:
            self._schedule()

    @property
    def _has_samples(self) -> bool:
        return any(len(curve.value) for curve in self._curves)

    def reset(self) -> None:
        """Forget every curve, for instance to show another run."""
        self._series.clear()
        for slots in self._slots.values():
            slots.clear()
        self.show(())

    def validate_smoothing(self, smoothing: float) -> float:
        """Keep the weight inside `[0, 0.99]`."""
        return min(max(smoothing, 0.0), _MAX_SMOOTHING)

    def on_mount(self) -> None:
        """Draw the curves that were set before the widget was mounted."""
        self._schedule()

    def render(self) -> Text:
        """Return the picture; redraw it if its look has changed or a redraw is due."""
        look = self._look()
        if self._gate.ready(force=look != self._drawn_look):
            began_s = self._cost_clock()
            self._picture = self._draw()
            self._drawn_look = look
            self._gate.drawn((self._cost_clock() - began_s) * _COST_WITH_STRIPS)
        return self._picture

    def _look(self) -> _Look:
        """Return everything except the samples that decides how the picture looks."""
        return (
            self.size.width,
            self.size.height,
            self.app.theme,
            self.axis,
            self.smoothing,
            self.log_scale,
            self.marker,
            self.title,
            self._has_samples,
        )

    def _schedule(self) -> None:
        """Refresh now or, by one timer, when the gate opens."""
        if self._timer is not None or not self.is_mounted or not self._gate.changed:
            return
        wait_s = self._gate.wait_s()
        if wait_s > 0.0:
            self._timer = self.set_timer(wait_s, self._refresh_late, name="chart redraw")
        else:
            self.refresh()

    def _refresh_late(self) -> None:
        self._timer = None
        self._schedule()

    @property
    def _tone(self) -> Tone:
        theme = self.app.current_theme
        if (theme.foreground or "").startswith("ansi_"):
            return "ansi-dark" if theme.dark else "ansi-light"
        return "dark" if theme.dark else "light"

    def _draw(self) -> Text:
        self._update_series()
        width, height = self.size
        if width < 1 or height < 1:
            return Text()
        lines = [self._title_line(width), self._legend_line(width)][:height]
        if height > _HEADER_ROWS:
            lines.append(self._draw_plot(width, height - _HEADER_ROWS))
        return Text("\n", no_wrap=True).join(lines)

    def _update_series(self) -> None:
        """Append the new samples, and forget curves that are no longer shown."""
        kept: dict[str, Series] = {}
        for curve in self._curves:
            series = self._series.get(curve.name)
            if series is None or len(curve.value) < series.raw.count:
                series = Series(curve)
            series.update(curve, self.smoothing)
            kept[curve.name] = series
        self._series = kept

    def _pen(self, curve: Curve) -> Pen:
        """Return a curve's pen, which stays the same when other curves come and go."""
        slots = self._slots[curve.is_validation]
        slot = slots.setdefault(curve.name, len(slots))
        return pen_for(slot, self.marker, self._tone, is_validation=curve.is_validation)

    def _started(self) -> list[Series]:
        return [series for series in self._series.values() if series.raw.count]

    def _title_line(self, width: int) -> Text:
        return title_line(self.title, self._notes(), width)

    def _notes(self) -> list[tuple[str, Style]]:
        """Return the notes on the picture, most important first."""
        started = self._started()
        alarm = style_of(alarm_color(self._tone)) + Style(bold=True)
        notes = []
        if lost := sum(series.raw.nonfinite_count for series in started):
            notes.append((f"! {lost} NaN", alarm))
        if self.log_scale:
            hidden = any(series.raw.minimum <= 0.0 for series in started)
            notes.append(("log, <=0 hidden" if hidden else "log", alarm if hidden else _DIM))
        if self.smoothing > 0.0:
            notes.append((f"smooth {self.smoothing:g}", _DIM))
        notes.append((self.axis.value, _DIM))
        return notes

    def _legend_line(self, width: int) -> Text:
        entries = []
        for series in self._started():
            name = series.curve.name
            best = series.best(lowest=lower_is_better(name))
            entries.append(Entry(name, self._pen(series.curve), series.latest, best))
        return legend_line(entries, self.title, width)

    def _draw_plot(self, width: int, height: int) -> Text:
        started = self._started()
        if not started:
            return _centred(_WAITING, width, height)
        alarm = alarm_color(self._tone)
        view = View(width, height, self.axis, self.log_scale, self.marker, alarm)
        scene = build_scene([self._trace(series) for series in started], view)
        if scene is None:
            return _centred("nothing to plot", width, height)
        return self._paint(scene, width, height)

    def _trace(self, series: Series) -> Trace:
        raw = series.raw_line(self.axis)
        nan_x = series.nan_positions(self.axis)
        pen = self._pen(series.curve)
        if series.is_smoothed:
            return Trace(pen, series.smooth_line(self.axis), raw, nan_x)
        return Trace(pen, raw, None, nan_x)

    def _paint(self, scene: Scene, width: int, height: int) -> Text:
        """Draw the scene's glyphs and axes with plotext; one data unit is one cell."""
        plot = self.plt
        plot.clear_data()
        # Use no plotext colours: text and background follow the widget's theme.
        plot.theme("clear")
        set_plot_size(plot, width, height)
        plot.xaxes(True, False)
        plot.yaxes(True, False)
        plot.xlim(0, scene.width - 1)
        plot.ylim(0, scene.height - 1)
        plot.xticks([column for column, _ in scene.x_ticks], [label for _, label in scene.x_ticks])
        plot.yticks([row for row, _ in scene.y_ticks], [label for _, label in scene.y_ticks])
        for layer in scene.layers:
            plot.scatter(
                layer.columns,
                layer.rows,
                marker=layer.glyphs,  # type: ignore[arg-type]  # the stub lacks one marker per point
                color=layer.color,
                style="dim" if layer.is_dim else "default",
            )
        built = plot.build().rstrip("\n")
        return Text.from_ansi(built)


def _centred(sentence: str, width: int, height: int) -> Text:
    """Return a dim sentence in the middle of `width` by `height` cells."""
    above = "\n" * (max(height - 1, 0) // 2)
    return Text(above + sentence[:width].center(width), _DIM, no_wrap=True)
