"""The panes of the live screen: how the curves are drawn, and which pane has the room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Footer

from ..charts.curve import Axis
from ..charts.raster import Marker
from ..widgets.chart_pane import ChartPane
from ..widgets.pane_tabs import PaneTabs
from ..widgets.system_pane import SystemPane
from .live_keys import BOTTOM_PANES, CHARTS, LEFT_PANES, PANES, SMOOTHINGS, after

if TYPE_CHECKING:
    from textual.events import Resize

    from ..widgets.rows_pane import RowsPane


# Classes that `live.tcss` lays the screen out by, from so many columns and rows on.
_WIDTHS = [(0, "-narrow"), (120, "-wide"), (170, "-roomy")]
_HEIGHTS = [(0, "-short"), (30, "-medium"), (42, "-tall")]
_FOOTER_WITH_PALETTE = 112  # columns


class PanedScreen(Screen[None]):
    """Arranges charts above and panes below, by size and keys; a subclass fills them.

    Args:
        marker: What charts are drawn with.
    """

    HORIZONTAL_BREAKPOINTS = _WIDTHS
    VERTICAL_BREAKPOINTS = _HEIGHTS

    smoothing: reactive[float] = reactive(0.0)
    log_scale: reactive[bool] = reactive(False)
    axis: reactive[Axis] = reactive(Axis.STEP)
    marker: reactive[Marker] = reactive[Marker]("braille")
    bottom_pane: reactive[str] = reactive("epochs")
    zoomed: reactive[str] = reactive("")

    def __init__(self, marker: Marker) -> None:
        super().__init__()
        self.set_reactive(PanedScreen.marker, marker)
        self._bottom_panes: tuple[str, ...] = BOTTOM_PANES

    def on_resize(self, event: Resize) -> None:
        """Show the palette's key where there is room for it."""
        footer = self.query_one(Footer)
        has_room = event.size.width >= _FOOTER_WITH_PALETTE
        if footer.show_command_palette != has_room:
            footer.compact = not has_room
            footer.show_command_palette = has_room
            footer.refresh(recompose=True)

    def _new_pane(self, pane: RowsPane) -> RowsPane:
        """Give a pane that comes late its number."""
        name = str(pane.id)
        self._bottom_panes = tuple(known for known in PANES if known in {*self._bottom_panes, name})
        self.query_one(PaneTabs).add(name, PANES.index(name) + 1)
        return pane

    def _charts(self) -> list[ChartPane]:
        return list(self.query(ChartPane))

    def watch_smoothing(self, smoothing: float) -> None:
        """Pass the new value to the charts."""
        for chart in self._charts():
            chart.smoothing = smoothing

    def watch_log_scale(self, log_scale: bool) -> None:
        """Pass the new value to the charts."""
        for chart in self._charts():
            chart.log_scale = log_scale

    def watch_axis(self, axis: Axis) -> None:
        """Pass the new value to the charts."""
        for chart in self._charts():
            chart.axis = axis
        for pane in self.query(SystemPane):
            pane.along(axis)

    def watch_marker(self, marker: Marker) -> None:
        """Pass the new value to the charts."""
        for chart in self._charts():
            chart.marker = marker

    def watch_bottom_pane(self, name: str) -> None:
        """Show the pane, if only one is visible at a time."""
        for other in self._bottom_panes:
            self.set_class(other == name, f"-pane-{other}")
        for tabs in self.query(PaneTabs):
            tabs.current = name

    def watch_zoomed(self, name: str) -> None:
        """Zoom one pane, or show all panes again."""
        self.set_class(bool(name), "-zoomed")
        for pane in self.query(".pane"):
            pane.set_class(pane.id == name, "-zoom")
        self.query("#charts").set_class(name in CHARTS, "-holds")
        self.query("#bottom").set_class(name in self._bottom_panes, "-holds")
        self.query("#left").set_class(name in LEFT_PANES, "-holds")
        self.query("#side").set_class(name in self._bottom_panes and name not in LEFT_PANES, "-holds")

    def action_smooth(self) -> None:
        """Increase smoothing; after the maximum, turn it off."""
        self.smoothing = after(SMOOTHINGS, self.smoothing)

    def action_log_scale(self) -> None:
        """Switch between a logarithmic and a linear scale."""
        self.log_scale = not self.log_scale

    def action_axis(self) -> None:
        """Draw over the next axis."""
        self.axis = after(tuple(Axis), self.axis)

    def action_pane(self) -> None:
        """Show and enter the next lower pane."""
        panes = self._bottom_panes
        if self.zoomed:
            self.zoomed = after((*CHARTS, *panes), self.zoomed)
            return
        here = self.focused.id if self.focused is not None else ""
        is_single = self.query_one(PaneTabs).display
        if not is_single:
            panes = tuple(name for name in panes if self.query_one(f"#{name}").display)
        if is_single or here in panes or self.bottom_pane not in panes:
            self.bottom_pane = after(
                panes, next((name for name in (here, self.bottom_pane) if name in panes), panes[-1])
            )
        self.query_one(f"#{self.bottom_pane}").focus()

    def action_zoom(self, name: str = "") -> None:
        """Zoom a pane, the focused one by default; the same one again goes back."""
        if not name:
            here = self.focused.id if self.focused is not None else None
            name = self.zoomed or (here if here in PANES else "loss")
        if name not in {*CHARTS, *self._bottom_panes}:
            return
        self.zoomed = "" if self.zoomed == name else name
        if self.zoomed in self._bottom_panes:
            self.bottom_pane = self.zoomed

    def action_unzoom(self) -> None:
        """Share the room again."""
        self.zoomed = ""

    @on(PaneTabs.Chosen)
    def _choose_pane(self, message: PaneTabs.Chosen) -> None:
        self.bottom_pane = message.name
