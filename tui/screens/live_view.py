"""How the user looks at the curves of a preset, kept for its next run."""

from __future__ import annotations

from dataclasses import dataclass

from tpu_console.engine.storage.keyed_store import KeyedStore


@dataclass(frozen=True, slots=True)
class ChartView:
    """How charts are drawn, and in which order.

    Args:
        smoothing: Weight of the moving average.
        log_scale: Whether the vertical axes are logarithmic.
        axis: A value of `tui.charts.curve.Axis`.
        y_range: A value of `tui.charts.y_range.YRange`.
        marker: What curves are drawn with.
        filter: The regular expression that the charts match.
        order: The titles of the charts that come first.
    """

    smoothing: float = 0.0
    log_scale: bool = False
    axis: str = "step"
    y_range: str = "auto"
    marker: str = "braille"
    filter: str = ""
    order: tuple[str, ...] = ()


VIEWS = KeyedStore[ChartView]("views.json", ChartView)
"""By preset."""
