"""The line under the charts: the values at the cursor, or which charts are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

if TYPE_CHECKING:
    from .chart_grid import Arrangement


class ChartBar(Static):
    """One line of text."""

    DEFAULT_CSS = """
    ChartBar { width: 1fr; height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; text-align: right; }
    ChartBar.-reading { text-align: left; }
    """

    def __init__(self) -> None:
        super().__init__(id="chart-bar", classes="-blank")
        self._drawn = Text()

    def show_page(self, shown: Arrangement, pattern: str) -> None:
        """Say which of the charts are on the page, and what filters them."""
        parts = []
        if pattern and shown.total:
            found = f"{shown.matching} of {shown.total} charts match" if shown.matching else "no chart matches"
            parts.append(f"{found} {pattern} (/)")
        if 0 < shown.last - shown.first + 1 < shown.matching:
            which = f"{shown.first}" if shown.first == shown.last else f"{shown.first}–{shown.last}"
            parts.append(f"chart {which} of {shown.matching} · PgUp PgDn")
        self._draw(Text("   ".join(parts), Style(dim=True), no_wrap=True), is_reading=False)

    def show_reading(self, line: Text | None) -> None:
        """Show the values at the cursor."""
        self._draw(line or Text(), is_reading=True)

    def _draw(self, line: Text, *, is_reading: bool) -> None:
        self.set_class(is_reading, "-reading")
        if line != self._drawn:
            self._drawn = line
            self.set_class(not line.plain, "-blank")
            self.update(line, layout=False)  # one line, whatever it says
