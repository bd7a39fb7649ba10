"""The curves of a run as plain text, for a pipe, a log or an e-mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..charts.curve import Axis
from ..charts.series import Series
from ..widgets.chart_pane import RATE, curves_of, titles_of

if TYPE_CHECKING:
    from tpu_console.engine.runs.state import RunState

_WIDTH, _ROWS = 80, 16


def plot_lines(state: RunState, width: int | None, *, is_ascii: bool) -> list[str]:
    """Draw the metrics and the learning rate of a run over its epochs with plotext; 80 columns wide by default."""
    import plotext

    lines = []
    plotext.limit_size(False, False)
    for title in [name for name in titles_of(state) if name in {*state.train.metrics, *state.validation.metrics, RATE}]:
        plotext.clear_figure()
        plotext.plotsize(width or _WIDTH, _ROWS)
        plotext.title(title)
        for curve in curves_of(state, title):
            series = Series(curve)
            series.update(curve, 0.0)
            line = series.raw_line(Axis.EPOCH)
            marker = "o" if curve.is_validation else "*" if is_ascii else "braille"
            plotext.plot(line.x.tolist(), line.y.tolist(), marker=marker, label=curve.name)
        drawn: str = plotext.uncolorize(plotext.build())
        lines += [row.rstrip() for row in drawn.splitlines()]
    return lines
