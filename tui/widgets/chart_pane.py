"""A chart of the live screen, and the curves that a run's state holds for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tpu_console.engine.runs.metrics import Metric, MetricKind
from tpu_console.engine.runs.series import Series

from ..charts.chart import MetricChart
from ..charts.curve import Curve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.curves import Curves
    from tpu_console.engine.runs.state import RunState

    from ..charts.curve import FloatArray

RATE = "learning rate"
_FIGURES = {
    RATE: ("lr", "learning_rate"),
    "speed": ("examples/s", "examples_per_s"),
    "step time": ("ms/step", "step_ms"),
    "input wait": ("wait %", "wait_percent"),
}
"""Charts beside those of the metrics: the name of the curve, and of its column in the run's state."""


class ChartPane(MetricChart, can_focus=True):
    """A chart that takes focus, so that keys can zoom and move it; numbered in the order in which they are made."""

    def __init__(self, number: int, title: str) -> None:
        super().__init__(title, id=f"chart-{number}", classes="pane")

    def take_share(self, share: float) -> None:
        """Draw on this share of one core at most."""
        self._gate.max_share = share


def names_of(title: str) -> tuple[str, ...]:
    """Return the names by which a chart is found: its title and those of its curves."""
    return title, f"val_{title}", *_FIGURES.get(title, ())


def titles_of(state: RunState) -> list[str]:
    """Return the titles of all charts that a run has samples for: the loss, the other metrics, then speeds."""
    metrics = dict.fromkeys([*state.train.metrics, *state.validation.metrics])
    figures = [title for title in _FIGURES if title not in metrics and len(_figure(state, title).value)]
    return sorted(metrics, key=lambda name: name != "loss") + figures


def curves_of(state: RunState, title: str) -> list[Curve]:
    """Return the curves of one chart: the training metric, then the validation metric."""
    curves = []
    if title in state.train.metrics:
        curves.append(_curve(state, title, is_validation=False))
    if title in state.validation.metrics:
        curves.append(_curve(state, title, is_validation=True))
    return curves or ([_figure(state, title)] if title in _FIGURES else [])


def all_curves(state: RunState) -> list[Curve]:
    """Return the curves of all charts."""
    return [curve for title in titles_of(state) for curve in curves_of(state, title)]


def read_curves(state: RunState, on_page: Sequence[str]) -> list[Curve]:
    """Return the curves to read at the cursor: those on the page, the learning rate and the other metrics."""
    titles = dict.fromkeys([*on_page, RATE, *(title for title in titles_of(state) if title not in _FIGURES)])
    return [curve for title in titles for curve in curves_of(state, title)]


def _curve(state: RunState, title: str, *, is_validation: bool) -> Curve:
    name, curves = (f"val_{title}", state.validation) if is_validation else (title, state.train)
    place = curves.step.values, curves.epoch.values, curves.elapsed_s.values
    metric, value = state.metric(title), curves.metrics[title].values
    losses = curves.metrics["loss"].values if "loss" in curves.metrics else None
    return Curve(name, *place, value, is_validation, title in curves.running, metric, losses)


def _figure(state: RunState, title: str) -> Curve:
    """Return the curve of a figure, without the samples that were not measured: NaN would look like an alarm."""
    if title in {"speed", "step time"} and not state.epochs:
        return _speed_until_now(state, title)
    name, column = _FIGURES[title]
    curves = state.input_curve if title == "input wait" else state.speed
    measured = curves.metrics.get(column, Series())
    return _known(name, curves, 0, measured.values if len(measured) else np.full(len(curves), np.nan))


def _speed_until_now(state: RunState, title: str) -> Curve:
    """Return the speed between the reports of the first epoch, which may take hours; then each epoch has a speed."""
    train, batch = state.train, state.fit.global_batch if state.fit is not None else None
    steps, seconds = np.diff(train.step.values), np.diff(train.elapsed_s.values)
    step_s = np.divide(seconds, steps, out=np.full(len(steps), np.nan), where=(steps > 0) & (seconds > 0))
    if title == "step time":
        return _known("recent ms/step", train, 1, 1e3 * step_s)
    return _known("recent examples/s", train, 1, (batch or np.nan) / step_s)


def _known(name: str, curves: Curves, begin: int, values: FloatArray) -> Curve:
    """Return a curve of the finite values; the first one belongs to the point of this number."""
    known = np.isfinite(values)
    step, epoch, elapsed_s = (column.values[begin:][known] for column in (curves.step, curves.epoch, curves.elapsed_s))
    rate = Metric(name, kind=MetricKind.RATE)
    return Curve(name, step, epoch, elapsed_s, values[known], is_validation=False, metric=rate)
