"""Private calls of plotext, checked on plotext 5.3.2 with textual-plotext 1.0.1. Textual itself needs none."""

from __future__ import annotations

from typing import Any


def set_plot_size(plot: Any, width: int, height: int) -> None:
    """Set the size of a plot, in cells.

    Private: `_set_size` of plotext's figure, which textual-plotext calls too (textual-plotext #5). Without it, no plot
    is larger than the terminal was when plotext was imported: the public `plotsize` limits it, and `limit_size`, which
    lifts the limit, exists only for plotext's own global figure.
    """
    plot.plotsize(width, height)
    plot._set_size(width, height)  # noqa: SLF001
