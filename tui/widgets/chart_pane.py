"""A chart of the live screen, and the curves that a run's state holds for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..charts.chart import MetricChart
from ..charts.curve import Curve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.curves import Curves
    from tpu_console.engine.runs.state import RunState

RATE = "learning rate"
_FIGURES = {
    RATE: ("lr", "learning_rate"),
    "speed": ("examples/s", "examples_per_s"),
    "step time": ("ms/step", "step_ms"),
    "input wait": ("wait %", "wait_percent"),
}
"""Charts beside those of the metrics: the name of the curve, and of its column in the run's state."""


class ChartPane(MetricChart, can_focus=True):
    """A chart that takes focus, so that keys can zoom and move it.

    Args:
        number: How many charts were made before it.
        title: The chart's title.
    """

    def __init__(self, number: int, title: str) -> None:
        super().__init__(title, id=f"chart-{number}", classes="pane")

    def take_share(self, share: float) -> None:
        """Draw on this share of one core at most."""
        self._gate.max_share = share


def titles_of(state: RunState) -> list[str]:
    """Return the titles of all charts that a run has samples for: the loss, the other metrics, then speeds."""
    metrics = dict.fromkeys([*state.train.metrics, *state.validation.metrics])
    figures = [
        title
        for title, (_, column) in _FIGURES.items()
        if title not in metrics and np.isfinite(_column(_source(state, title), column)).any()
    ]
    return sorted(metrics, key=lambda name: name != "loss") + figures


def curves_of(state: RunState, title: str) -> list[Curve]:
    """Return the curves of one chart: the training metric, then the validation metric."""
    curves = []
    if title in state.train.metrics:
        curves.append(_curve(title, state.train, title, is_validation=False))
    if title in state.validation.metrics:
        curves.append(_curve(f"val_{title}", state.validation, title, is_validation=True))
    if not curves and title in _FIGURES:
        name, column = _FIGURES[title]
        curves.append(_curve(name, _source(state, title), column, is_validation=False, is_gapless=True))
    return curves


def all_curves(state: RunState) -> list[Curve]:
    """Return the curves of all charts."""
    return [curve for title in titles_of(state) for curve in curves_of(state, title)]


def read_curves(state: RunState, on_page: Sequence[str]) -> list[Curve]:
    """Return the curves to read at the cursor: those on the page, the other metrics and the learning rate."""
    titles = dict.fromkeys([*on_page, *(title for title in titles_of(state) if title not in _FIGURES), RATE])
    return [curve for title in titles for curve in curves_of(state, title)]


def _source(state: RunState, title: str) -> Curves:
    return state.input_curve if title == "input wait" else state.speed


def _column(curves: Curves, name: str) -> np.ndarray:
    return curves.metrics[name].values if name in curves.metrics else np.empty(0)


def _curve(name: str, curves: Curves, column: str, *, is_validation: bool, is_gapless: bool = False) -> Curve:
    """Make a curve; a gapless one drops samples that were not measured, because NaN would look like an alarm."""
    columns = (curves.step.values, curves.epoch.values, curves.elapsed_s.values, _column(curves, column))
    if is_gapless and not (known := np.isfinite(columns[3])).all():
        columns = tuple(values[known] for values in columns)
    return Curve(name, *columns, is_validation=is_validation, running=column in curves.running)
