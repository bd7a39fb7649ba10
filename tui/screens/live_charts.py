"""The charts of the live screen and of comparisons: their common look, window and cursor, and the keys for these."""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain

from msgspec import Struct
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.reactive import var
from textual.screen import Screen
from textual.widgets import Input, Static

from tpu_console.engine.storage.keyed_store import KeyedStore

from ..charts.chart import MetricChart
from ..charts.curve import Axis, Curve, Window, extent_of, moved, on_axis, snapped
from ..charts.frame import reading_line
from ..charts.scene import Marker, tone_of
from ..text.keys import bind
from ..widgets.basics import PaneTabs
from ..widgets.chart_grid import ChartGrid, read_curves
from ..widgets.host_panes import SystemPane
from .parts import ValueDialog, after, ask_user, console_of

_ZOOM_FACTOR, _PAN_SHARE = 1.25, 0.1
_MARKERS: tuple[Marker, ...] = ("braille", "block", "ascii")
_VALUES: dict[str, tuple[object, ...]] = {
    "smoothing": (0.0, 0.5, 0.8, 0.9, 0.97),
    "log_scale": (False, True),
    "axis": tuple(Axis),
    "is_full": (False, True),
    "marker": _MARKERS,
}
"""The values that a key steps through, by part of the look."""
_FOLLOWED_SHARES = (0.5, 0.2, 0.05, 1.0)  # of the run, that the charts show while they follow it

_LOOK = (*_VALUES, "window")

CURSOR_KEYS = [
    bind("left", "cursor(-1)"),
    bind("right", "cursor(1)"),
    bind("far left", "cursor_far(-1)"),
    bind("far right", "cursor_far(1)"),
    bind("jump"),
    bind("go to", "go_to"),
    bind("first", "cursor_end('first')"),
    bind("last", "cursor_end('last')"),
]
CHART_KEYS = [
    bind("filter"),
    bind("smooth", "next('smoothing')"),
    bind("axis", "next('axis')"),
    bind("range", "next('is_full')"),
    bind("log scale", "next('log_scale')"),
    bind("follow"),
    bind("marker", "next('marker')"),
    bind("zoom in", "zoom_x(1)"),
    bind("zoom out", "zoom_x(-1)"),
    bind("earlier", "pan(-1)"),
    bind("later", "pan(1)"),
    bind("zoom in y", "zoom_y(1)"),
    bind("zoom out y", "zoom_y(-1)"),
    bind("up y", "pan_y(1)"),
    bind("down y", "pan_y(-1)"),
    bind("whole", "show_all"),
    bind("page up", "page(-1)"),
    bind("page down", "page(1)"),
    bind("chart first", "move_chart(-9999)"),  # farther than there are charts
    bind("chart before", "move_chart(-1)"),
    bind("chart after", "move_chart(1)"),
    *(bind(f"number {place}", f"zoom_chart({place})") for place in (1, 2)),
]


class ChartView(Struct, frozen=True):
    """How charts are drawn, in which order, above which pane; smoothing and a log scale belong to the open run."""

    axis: str = "step"  # a value of `tui.charts.curve.Axis`
    marker: str = "braille"  # what curves are drawn with
    order: tuple[str, ...] = ()  # the titles of the charts that come first
    pane: str = "epochs"  # the lower pane that is seen where there is room for one


VIEWS = KeyedStore[ChartView]("views.json", ChartView)  # by preset


class ChartedScreen(Screen[None]):
    """Has a `ChartGrid` whose charts share one look, one window and one cursor."""

    DEFAULT_CSS = """
    ChartedScreen {
        overflow: hidden;
        #charts { layout: grid; grid-rows: 1fr; width: 1fr; height: 1fr; }
        #between { height: auto; }
        #tabs { width: auto; }
        #chart-bar {
            width: 1fr; height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; text-align: right;
            &.-blank { display: none; }
        }
        &.-reading #chart-bar { text-align: left; }
        #filter { display: none; width: 1fr; &.-bad { color: $text-error; } }
        &.-filtering #filter { display: block; }
        &.-filtering #chart-bar, &.-filtering #tabs, &.-reading #tabs { display: none; }
    }
    """

    smoothing: var[float] = var(0.0)
    log_scale: var[bool] = var(False)
    axis: var[Axis] = var(Axis.STEP)
    marker: var[Marker] = var[Marker]("braille", init=False)  # what charts are drawn with
    window: var[Window] = var(Window())
    cursor: var[float | None] = var(None)
    zoomed: var[str] = var("")  # the id of what has all the room, `charts` for one chart; empty if all share it
    is_full: var[bool] = var(False)  # whether vertical ranges have every sample

    def __init__(self, marker: Marker) -> None:
        super().__init__()
        self.set_reactive(ChartedScreen.marker, marker)
        self.curves: Mapping[str, Sequence[Curve]] = {}  # of all charts, by title
        self._followed_share = _FOLLOWED_SHARES[-1]
        self._filter = ""
        self._preset = ""
        self._chosen: set[str] = set()  # the parts of the `ChartView` that the user changed
        self._kept_marker: Marker = "braille"  # the terminal's own one, or that of an option, is not remembered

    def on_mount(self) -> None:
        for name in _LOOK:
            self.watch(self, name, self._apply_look_to_all, init=False)
        self.watch(self, "cursor", self._move_cursor, init=False)

    def bar(self, panes: Mapping[str, str]) -> ComposeResult:
        """Make the line below the charts: the tabs of panes, the values at the cursor, and the field of the filter."""
        with Horizontal(id="between"):
            yield PaneTabs(panes)
            yield Static(id="chart-bar", classes="-blank")
            yield Input(placeholder="charts that match a regular expression", id="filter", compact=True)

    @property
    def grid(self) -> ChartGrid:
        return self.query_one(ChartGrid)

    def apply_look(self, chart: MetricChart) -> None:
        for name in (*_LOOK, "cursor"):
            setattr(chart, name, getattr(self, name))

    def _apply_look_to_all(self) -> None:
        for grid in self.query(ChartGrid):
            for chart in grid.on_page:
                self.apply_look(chart)
        for pane in self.query(SystemPane):
            pane.along(self.axis, self.window)
        self.draw_bar()

    async def _move_cursor(self, cursor: float | None) -> None:
        with self.app.batch_update():
            for chart in self.grid.on_page:
                chart.cursor = cursor
            self.draw_bar()
            await asyncio.sleep(0)  # until every chart has asked to be painted: one frame instead of two

    def watch_axis(self, old: Axis, new: Axis) -> None:
        curves = [*chain(*self.curves.values())]
        self.window = self.window.on_axis(curves, old, new)
        self.cursor = None if self.cursor is None else on_axis(self.cursor, curves, old, new)

    def draw_bar(self) -> None:
        """Show the values at the cursor, or else which charts are shown."""
        self.set_class(self.cursor is not None, "-reading")
        line = Text(self.grid.place, "dim", no_wrap=True)
        if self.cursor is not None:
            line = self.reading_at(self.cursor, self.size.width - 2)
        bar = self.query_one("#chart-bar", Static)
        bar.set_class(not line.plain, "-blank")
        bar.update(line, layout=False)  # one line, whatever it says

    def reading_at(self, x: float, width: int) -> Text:
        return reading_line(self.read_curves, self.axis, x, width, tone_of(self.app.current_theme)) or Text()

    @on(ChartGrid.Rearranged)
    def _show_page(self) -> None:
        """Say above the charts what filters them, and below them which are shown; keep the focus among them."""
        for note in self.query("#filtered").results(Static):
            found = self.grid.found
            note.display = bool(self._filter and found)
            note.update(Content(f"{found} {self._filter}  (Esc: show all)"))
        if isinstance(self.focused, MetricChart) and self.focused not in self.grid.on_page:
            self.set_focus(next(iter(self.grid.on_page), None))
        self.draw_bar()

    @on(MetricChart.CursorMoved)
    def _take_cursor(self, message: MetricChart.CursorMoved) -> None:
        self.cursor = message.x

    @on(MetricChart.WindowChanged)
    def _take_window(self, message: MetricChart.WindowChanged) -> None:
        self.window = message.window

    @property
    def _extent(self) -> tuple[float, float]:
        return extent_of([*chain(*self.curves.values())], self.axis) or (0.0, 0.0)

    @property
    def _ends(self) -> tuple[float, float]:
        return self.window.resolved(self._extent)

    @property
    def read_curves(self) -> Sequence[Curve]:
        """The curves that are read at the cursor, which stops at their samples."""
        return read_curves(self.curves, [chart.title for chart in self.grid.on_page])

    def action_cursor(self, direction: int) -> None:
        self._put_cursor(moved(self.cursor, self.read_curves, self.axis, direction))

    def action_cursor_far(self, direction: int) -> None:
        """Move the cursor by a tenth of what is visible, at least to the next sample."""
        curves, (left, right) = self.read_curves, self._ends
        there = moved(self.cursor, curves, self.axis, direction)
        if self.cursor is not None and there is not None:
            far = snapped(self.cursor + direction * (right - left) / 10, curves, self.axis)
            there = max(there, far) if direction > 0 else min(there, far)
        self._put_cursor(there)

    def action_cursor_end(self, side: str) -> None:
        curves, (left, right) = self.read_curves, self._ends
        cursor = snapped(left if side == "first" else right, curves, self.axis)
        inside = (cursor < left) - (cursor > right)  # the nearest sample may be one too far
        self.cursor = moved(cursor, curves, self.axis, inside) if curves and inside else cursor

    def action_jump(self) -> None:
        stops = sorted({x for chart in self.grid.on_page for x in chart.stops()})
        if stops:
            here = self.cursor if self.cursor is not None else -math.inf
            self._put_cursor(next((x for x in stops if x > here), stops[0]))

    def action_go_to(self) -> None:
        def place(text: str) -> float:
            with suppress(ValueError):
                return float(text.replace(",", ""))
            return math.nan

        def problem(text: str) -> str:
            return "" if math.isfinite(place(text)) else "Enter a number."

        def go_to(text: str) -> None:
            self._put_cursor(snapped(place(text), self.read_curves, self.axis))

        if self.read_curves:
            (left, right), unit = self._extent, "seconds" if self.axis is Axis.TIME else f"{self.axis.value}s"
            about = f"The curves go from {left:,.4g} to {right:,.7g} {unit}."
            ask_user(self.app, ValueDialog(f"Go to {self.axis.value}", about, f"{right:.0f}", problem), go_to)

    def _put_cursor(self, cursor: float | None) -> None:
        left, right = self._ends
        self.cursor = cursor
        if cursor is not None and not left <= cursor <= right:
            self.window = self.window.panned(self._extent, (cursor - (left + right) / 2) / (right - left))

    def action_zoom_x(self, direction: int) -> None:
        self.window = self.window.zoomed(self._extent, _ZOOM_FACTOR**direction, self.cursor)

    def action_pan(self, direction: int) -> None:
        self.window = self.window.panned(self._extent, direction * _PAN_SHARE)

    def action_zoom_y(self, direction: int) -> None:
        for chart in self.grid.on_page:
            chart.zoom_y(_ZOOM_FACTOR**direction)

    def action_pan_y(self, direction: int) -> None:
        for chart in self.grid.on_page:
            chart.pan_y(direction * _PAN_SHARE)

    def action_show_all(self) -> None:
        self.window = Window()
        for chart in self.grid.on_page:
            chart.y_ends = None

    def action_follow(self) -> None:
        self._followed_share = after(_FOLLOWED_SHARES, self._followed_share)
        self.window = Window.newest(self._extent, self._followed_share)

    def action_next(self, part: str) -> None:
        """Draw with the next value of a part of the look; after the last one, with the first."""
        setattr(self, part, after(_VALUES[part], getattr(self, part)))
        if part == "marker":
            self._kept_marker = self.marker
        if part in {"marker", "axis"}:
            self._keep_view(part)

    def watch_marker(self, marker: Marker) -> None:
        console_of(self).draw_with(marker)

    def action_page(self, pages: int) -> None:
        self.grid.turn(pages)

    def action_move_chart(self, places: int) -> None:
        if isinstance(chart := self.focused, MetricChart):
            self.grid.move(chart.title, places)
            self._keep_view("order")

    def action_filter(self) -> None:
        self.cursor = None
        self.add_class("-filtering")
        field = self.query_one("#filter", Input)
        field.value = self._filter
        field.focus()

    @on(Input.Changed, "#filter")
    def _filter_while_typing(self, message: Input.Changed) -> None:
        pattern = None
        with suppress(re.error):  # then the last valid expression stays in use
            pattern = re.compile(message.value, re.IGNORECASE)
            self._filter = message.value
            self.grid.filter(pattern if message.value else None)
        message.input.set_class(pattern is None, "-bad")

    @on(Input.Submitted, "#filter")
    def _leave_filter(self) -> None:
        """Close the field; the charts stay filtered."""
        self.remove_class("-filtering")
        self.set_focus(next(iter(self.grid.on_page), None))
        self.draw_bar()

    def _remove_filter(self) -> None:
        self._filter = ""
        self.grid.filter(None)
        self._leave_filter()

    def watch_zoomed(self, name: str) -> None:
        """Give a part all the room, or show everything again."""
        self.set_class(bool(name), "-zoomed")
        if name != "charts":
            for grid in self.query(ChartGrid):
                grid.zoom("")

    def action_zoom_chart(self, place: int = 0) -> None:
        """Zoom the chart at a place of the page, from 1, by default the focused or the first one; again goes back."""
        focused = self.focused
        title = focused.title if not place and isinstance(focused, MetricChart) else self.grid.title_at(place or 1)
        if (self.zoomed and not place) or (title and self.grid.zoomed == title):
            self.zoomed = ""
        elif title:
            self.grid.zoom(title)
            self.zoomed = "charts"
            for chart in self.grid.on_page:
                chart.focus()

    def leave_zoom(self) -> bool:
        """Show everything again; return whether a part was zoomed."""
        was_zoomed, self.zoomed = bool(self.zoomed), ""
        return was_zoomed

    def action_back(self) -> None:
        """Leave what was entered last; if nothing was, this screen."""
        if self.has_class("-filtering"):
            self._remove_filter()
        elif self.cursor is not None:
            self.cursor = None
        elif self.window != Window() or any(chart.y_ends for chart in self.grid.on_page):
            self.action_show_all()
        elif self._filter:
            self._remove_filter()
        elif self.leave_zoom():
            return
        elif len(self.app.screen_stack) > 1:
            self.dismiss()
        else:
            from .runs import RunsScreen

            self.app.push_screen(RunsScreen(is_first=True))

    @on(PaneTabs.Chosen)
    def _keep_pane(self) -> None:
        self._keep_view("pane")

    def _keep_view(self, *changed: str) -> None:
        """Keep the look for the next run of this preset, without delay: the terminal may close."""
        self._chosen.update(changed)
        if self._preset:
            tabs = self.query_one(PaneTabs)
            VIEWS.put(self._preset, ChartView(self.axis.value, self._kept_marker, self.grid.order, tabs.current))

    def use_view(self, preset: str, view: ChartView | None) -> None:
        """Take over the look kept for a preset, except for what the user has changed already."""
        self._preset = preset
        if view is not None and view.axis in {axis.value for axis in Axis}:  # else another version has written it
            if "axis" not in self._chosen:
                self.axis = Axis(view.axis)
            if "order" not in self._chosen:
                self.grid.reorder(view.order)
            if view.marker in _MARKERS and "marker" not in self._chosen:
                self._kept_marker = view.marker
                self.marker = view.marker if self.marker == "braille" else self.marker  # the terminal's choice
            tabs = self.query_one(PaneTabs)
            # After a failure, the log is seen.
            if view.pane in tabs.panes and "pane" not in self._chosen and not self.has_class("-failed"):
                tabs.current = view.pane
        if self._chosen:
            self._keep_view()
