"""The table of epochs: times, speed, learning rate and every metric."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from tpu_console.engine.runs.metrics import MetricKind

from .numbers import count, duration, learning_rate, metric, milliseconds
from .tables import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tpu_console.engine.runs.events import EpochEnded
    from tpu_console.engine.runs.state import RunState

METRIC = 9
"""Importance of the metrics."""


def epoch_columns(names: Iterable[str]) -> list[Column]:
    """Return the columns of a table of epochs with these metrics."""

    def logged(name: str) -> Callable[[EpochEnded], float | None]:
        return lambda epoch: epoch.logs.get(name)

    return [
        Column("epoch", 10, True, 6, "epoch", attrgetter("epoch")),
        Column("time", 6, True, 7, "seconds", attrgetter("seconds"), duration),
        Column("compile", 2, True, 7, "compile_s", lambda epoch: epoch.compile_s or None, duration),
        Column("validating", 1, True, 7, "validation_s", lambda epoch: epoch.validation_s or None, duration),
        Column("ms/step", 5, True, 5, "step_ms", attrgetter("step_ms"), milliseconds),
        Column("examples/s", 4, True, 7, "examples_per_s", attrgetter("examples_per_s"), count),
        Column("lr", 3, True, 7, "learning_rate", attrgetter("learning_rate"), learning_rate),
        *(Column(name, METRIC, True, 6, name, logged(name), metric) for name in names),
    ]


def metrics_in_order(state: RunState, names: Iterable[str]) -> list[str]:
    """Sort training before validation and the losses first in each; keep Keras's order otherwise."""
    return sorted(names, key=lambda name: (name.startswith("val_"), state.metric(name).kind != MetricKind.LOSS))
