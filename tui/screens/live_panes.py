"""The panes of the live screen, and which of them has the room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.reactive import reactive

from ..widgets.chart_grid import ChartGrid
from ..widgets.chart_pane import ChartPane
from ..widgets.pane_tabs import PaneTabs
from .live_charts import ChartedScreen
from .live_keys import BOTTOM_PANES, FIRST_NUMBER, LEFT_PANES, PANES, after

if TYPE_CHECKING:
    from textual.events import Resize

    from ..charts.raster import Marker
    from ..widgets.rows_pane import RowsPane


# Classes that `live.tcss` lays the screen out by, from so many columns and rows on.
_WIDTHS = [(0, "-narrow"), (120, "-wide"), (170, "-roomy")]
_HEIGHTS = [(0, "-short"), (30, "-medium"), (42, "-tall")]
_TINY = 16  # with fewer rows, a chart needs those of the panes below it


class PanedScreen(ChartedScreen):
    """Arranges charts above and panes below, by size and keys; a subclass fills them."""

    HORIZONTAL_BREAKPOINTS = _WIDTHS
    VERTICAL_BREAKPOINTS = _HEIGHTS

    bottom_pane: reactive[str] = reactive("epochs")
    zoomed: reactive[str] = reactive("")
    """The id of the pane that has all the room, `charts` for one chart; empty if all share it."""

    def __init__(self, marker: Marker) -> None:
        super().__init__(marker)
        self._bottom_panes: tuple[str, ...] = BOTTOM_PANES

    def on_resize(self, event: Resize) -> None:
        """Leave all the room to the charts if there is little."""
        self.set_class(event.size.height < _TINY, "-tiny")

    def _new_pane(self, pane: RowsPane) -> RowsPane:
        """Give a pane that comes late its number."""
        name = str(pane.id)
        self._bottom_panes = tuple(known for known in PANES if known in {*self._bottom_panes, name})
        self.query_one(PaneTabs).add(name, PANES.index(name) + FIRST_NUMBER)
        return pane

    def watch_bottom_pane(self, name: str) -> None:
        """Show the pane, if only one is visible at a time."""
        for other in self._bottom_panes:
            self.set_class(other == name, f"-pane-{other}")
        for tabs in self.query(PaneTabs):
            tabs.current = name

    def watch_zoomed(self, name: str) -> None:
        """Zoom one pane, or show all panes again."""
        self.set_class(bool(name), "-zoomed")
        self.set_class(name == "charts", "-one-chart")
        for pane in self.query(".pane"):
            pane.set_class(pane.id == name, "-zoom")
        self.query("#top").set_class(name == "charts", "-holds")
        self.query("#bottom").set_class(name in self._bottom_panes, "-holds")
        self.query("#left").set_class(name in LEFT_PANES, "-holds")
        self.query("#side").set_class(name in self._bottom_panes and name not in LEFT_PANES, "-holds")
        for grid in self.query(ChartGrid) if name != "charts" else ():
            grid.zoom("")

    def action_pane(self) -> None:
        """Show and enter the next lower pane."""
        panes = self._bottom_panes
        if self.zoomed:
            name = after(("charts", *panes), self.zoomed)
            if name == "charts" and self.grid.title_at(1):
                self.action_zoom_chart(1)
            else:
                self.action_zoom(name if name != "charts" else panes[0])
            return
        here = self.focused.id if self.focused is not None else ""
        shown = tuple(name for name in panes if self.query_one(f"#{name}").display)
        is_single = len(shown) == 1
        panes = panes if is_single else shown
        if is_single or here in panes or self.bottom_pane not in panes:
            self.bottom_pane = after(
                panes, next((name for name in (here, self.bottom_pane) if name in panes), panes[-1])
            )
        self.query_one(f"#{self.bottom_pane}").focus()

    def action_zoom(self, name: str = "") -> None:
        """Zoom a pane, the focused one by default; the same one again goes back."""
        if not name and not self.zoomed and (self.focused is None or isinstance(self.focused, ChartPane)):
            if title := self.focused.title if self.focused is not None else self.grid.title_at(1):
                self._zoom_chart(title)
            return
        name = name or self.zoomed or str(self.focused.id if self.focused is not None else "")
        if name != "charts" and name not in self._bottom_panes:
            return
        self.zoomed = "" if self.zoomed == name else name
        if self.zoomed in self._bottom_panes:
            self.bottom_pane = self.zoomed
            self.query_one(f"#{self.zoomed}").focus()

    def action_zoom_chart(self, place: int) -> None:
        """Zoom the chart at a place of the page, from 1; again goes back."""
        title = self.grid.title_at(place)
        if self.zoomed == "charts" and self.grid.zoomed == title:
            self.zoomed = ""
        elif title:
            self._zoom_chart(title)

    def _zoom_chart(self, title: str) -> None:
        self.grid.zoom(title)
        self.zoomed = "charts"
        for chart in self.grid.on_page:
            chart.focus()

    def leave_zoom(self) -> bool:
        """Show all panes again and give charts their room back; return whether a pane was zoomed or entered."""
        was_zoomed, self.zoomed = bool(self.zoomed), ""
        was_entered = self.focused is not None and self.focused.id in self._bottom_panes
        if was_entered:
            self.set_focus(None)
        return was_zoomed or was_entered

    @on(ChartGrid.Rearranged)
    def _keep_focus(self) -> None:
        """Focus a chart of the new page if the focused one is not on it."""
        charts = self.grid.on_page
        if isinstance(self.focused, ChartPane) and self.focused not in charts:
            self.set_focus(next(iter(charts), None))

    @on(PaneTabs.Chosen)
    def _choose_pane(self, message: PaneTabs.Chosen) -> None:
        self.bottom_pane = message.name
        self.query_one(f"#{message.name}").focus()
