"""The two charts of the live screen, and the curves that a run's state holds for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..charts.chart import MetricChart
from ..charts.curve import Curve

if TYPE_CHECKING:
    from tpu_console.engine.runs.curves import Curves
    from tpu_console.engine.runs.state import RunState


_SHARE_OF_A_CORE = 0.015
"""For each of the two charts; the whole console should stay near 3 % of a core."""


class ChartPane(MetricChart, can_focus=True):
    """A chart that takes focus, so that keys can zoom it.

    Args:
        number: The key that zooms it.
        pane_id: The widget's id.
        title: The chart's title.
    """

    def __init__(self, number: int, pane_id: str, title: str) -> None:
        super().__init__(title, max_share=_SHARE_OF_A_CORE, id=pane_id, classes="pane")
        self.border_title = str(number)


def curves_of(state: RunState) -> tuple[list[Curve], list[Curve]]:
    """Return the curves of a run for the loss chart and for the chart of everything else.

    Training and validation curves alternate, so that both curves of a metric are side by side in the legend.
    """
    names = dict.fromkeys([*state.train.metrics, *state.validation.metrics])
    loss: list[Curve] = []
    others: list[Curve] = []
    for name in names:
        chart = loss if name == "loss" else others
        if name in state.train.metrics:
            chart.append(_curve(name, name, state.train, is_validation=False))
        if name in state.validation.metrics:
            chart.append(_curve(name, f"val_{name}", state.validation, is_validation=True))
    return loss, others


def _curve(metric: str, name: str, curves: Curves, *, is_validation: bool) -> Curve:
    return Curve(
        name=name,
        step=curves.step.values,
        epoch=curves.epoch.values,
        elapsed_s=curves.elapsed_s.values,
        value=curves.metrics[metric].values,
        is_validation=is_validation,
        running=metric in curves.running,
    )


def title_of(others: list[Curve]) -> str:
    """Return the second chart's title: its metric's name if there is only one."""
    names = {curve.name.removeprefix("val_") for curve in others}
    return names.pop() if len(names) == 1 else "metrics"
