"""A plot that the mouse reads, zooms and pans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from .curve import Axis, Curve, snapped
from .window import Extent, Window, extent_of, panned, zoomed

if TYPE_CHECKING:
    from textual.events import Click, MouseDown, MouseEvent, MouseMove, MouseScrollDown, MouseScrollUp, MouseUp

    from .scene import Scene

HEADER_ROWS = 1
_WHEEL = 1.25
_CLOSE = 6  # columns


class PointedPlot(Widget):
    """Turns what the mouse does into messages; it changes no window and no cursor itself."""

    DEFAULT_CSS = "PointedPlot { width: 1fr; height: 1fr; }"
    ALLOW_SELECT = False  # dragging pans

    axis: reactive[Axis] = reactive(Axis.STEP)  # what runs along the bottom
    window: reactive[Window] = reactive(Window())  # the part of the horizontal axis that is shown
    y_ends: reactive[Extent | None] = reactive(None)  # what a zoomed vertical axis shows, in its unit
    cursor: reactive[float | None] = reactive(None, repaint=False)  # where the crosshair stands, or None
    pointed_row: reactive[int | None] = reactive(None, repaint=False)  # below the pointer, from the bottom

    class CursorMoved(Message):
        """The mouse moved the crosshair to a sample, or away; the screen moves it in all charts."""

        def __init__(self, x: float | None) -> None:
            super().__init__()
            self.x = x

    class WindowChanged(Message):
        """The mouse zoomed or panned; the screen does the same in all charts."""

        def __init__(self, window: Window) -> None:
            super().__init__()
            self.window = window

    def __init__(
        self,
        *,
        id: str | None,  # noqa: A002  Textual's name
        classes: str | None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._curves: tuple[Curve, ...] = ()
        self._ruler: tuple[Curve, ...] = ()
        self._scene: Scene | None = None
        self._hovered: float | None = None
        self._dragged_from: tuple[int, int, Window, Extent | None] | None = None
        self._has_dragged = False

    @property
    def _extent(self) -> Extent | None:
        """Both ends of the run on the axis."""
        return extent_of([*self._curves, *self._ruler], self.axis)

    def _column_of(self, cursor: float | None) -> int | None:
        """The column of the widget in which the crosshair stands."""
        if cursor is None or self._scene is None:
            return None
        left, right = self._scene.x.ends
        return self._margin + self._scene.x.cell(cursor) if left <= cursor <= right else None

    @property
    def _margin(self) -> int:
        """Columns left of the canvas."""
        return self.size.width - self._scene.x.cells if self._scene is not None else 0

    def watch_cursor(self, old: float | None, new: float | None) -> None:
        """Move the crosshair, which needs no new picture but two columns of it, in one region if they are close."""
        columns = sorted({column for cursor in (old, new) if (column := self._column_of(cursor)) is not None})
        if self._scene is None or not columns:
            return
        parts = [columns] if columns[-1] - columns[0] < _CLOSE else [[column] for column in columns]
        rows = self._scene.y.cells + 1
        self.refresh(*(Region(part[0], HEADER_ROWS, part[-1] - part[0] + 1, rows) for part in parts))

    def on_mouse_move(self, event: MouseMove) -> None:
        """Pan while a button is held, else move the crosshair unless a click or a key has put it down."""
        if self._dragged_from is not None:
            self._drag(event)
            return
        x, place = self._x_below(event), event.get_content_offset(self)
        if place is not None and self._scene is not None:
            self.pointed_row = self._scene.y.cells - 1 - (place.y - HEADER_ROWS)
        if x is not None and (self.cursor is None or self.cursor == self._hovered):
            x = snapped(x, self._curves, self.axis)
            if x != self._hovered:
                self._hovered = x
                self.post_message(self.CursorMoved(x))

    def on_leave(self) -> None:
        """Remove a crosshair that hovered."""
        if self.cursor is not None and self.cursor == self._hovered:
            self.post_message(self.CursorMoved(None))
        self._hovered = self.pointed_row = None

    def on_mouse_down(self, event: MouseDown) -> None:
        """Begin to pan."""
        if self._x_below(event) is not None:
            self._dragged_from = (event.screen_x, event.screen_y, self.window, self.y_ends)
            self._has_dragged = False
            self.capture_mouse()

    def on_mouse_up(self, _event: MouseUp) -> None:
        """End panning."""
        self._dragged_from = None
        self.release_mouse()

    def _drag(self, event: MouseMove) -> None:
        extent = self._extent
        if self._dragged_from is None or self._scene is None or extent is None:
            return
        from_x, from_y, window, y_ends = self._dragged_from
        distance, climb = from_x - event.screen_x, event.screen_y - from_y
        if distance or climb:
            self._has_dragged = True
        if y_ends is not None:
            self.y_ends = y_ends
            self.pan_y(climb / self._scene.y.cells)
        self.post_message(self.WindowChanged(panned(window, extent, distance / self._scene.x.cells)))

    def on_click(self, event: Click) -> None:
        """Put the crosshair down; a double click shows everything."""
        if event.chain == 2:
            self.y_ends = None
            self.post_message(self.WindowChanged(Window()))
        elif not self._has_dragged and (x := self._x_below(event)) is not None:
            self._hovered = None
            self.post_message(self.CursorMoved(snapped(x, self._curves, self.axis)))

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Zoom in at the pointer."""
        self._zoom(event, _WHEEL)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Zoom out."""
        self._zoom(event, 1.0 / _WHEEL)

    def zoom_y(self, factor: float, at: float | None = None) -> None:
        """Show `1 / factor` of the vertical range; `at`, by default its middle, stays where it is."""
        if self._scene is None:
            return
        low, high = self.y_ends or self._scene.y.seen
        middle = (low + high) / 2 if at is None else min(max(at, low), high)
        self.y_ends = middle - (middle - low) / factor, middle + (high - middle) / factor

    def pan_y(self, share: float) -> None:
        """Show higher values, by a share of the vertical range, or lower ones."""
        if self._scene is not None:
            low, high = self.y_ends or self._scene.y.seen
            self.y_ends = low + share * (high - low), high + share * (high - low)

    def _zoom(self, event: MouseEvent, factor: float) -> None:
        place = event.get_content_offset(self)
        if place is not None and self._scene is not None and place.x < self._margin and place.y >= HEADER_ROWS:
            event.stop()
            self.zoom_y(factor, self._scene.y.value(self._scene.y.cells - 1 - (place.y - HEADER_ROWS)))
            return
        extent = self._extent
        at = self._x_below(event)
        if extent is not None and at is not None:
            event.stop()
            self.post_message(self.WindowChanged(zoomed(self.window, extent, factor, at)))

    def _x_below(self, event: MouseEvent) -> float | None:
        """Return the position on the axis below the pointer, or None outside the plot."""
        place = event.get_content_offset(self)
        if place is None or self._scene is None:
            return None
        column = place.x - self._margin
        if not 0 <= column < self._scene.x.cells or place.y < HEADER_ROWS:
            return None
        return self._scene.x.value(column)
