"""What is known of a metric: which direction is better, and what its values are.

The engine decides it once, in `FitStarted`. In journals of earlier versions and for custom loops, the name says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..config.run_config import RunConfig

    ValuesOrNone = Sequence[float | None] | NDArray[Any]  # NaN for None


class MetricKind(StrEnum):
    """What the values of a metric are."""

    LOSS = "loss"
    SHARE = "share"
    RATE = "rate"
    NUMBER = "number"


class Metric(Struct, frozen=True):
    """What is known of one metric."""

    name: str  # its name in ``logs``, without ``val_``
    lower_is_better: bool = False  # whether smaller values are better
    kind: str = MetricKind.NUMBER  # ``loss``, ``share`` (between 0 and 1), ``rate`` or ``number``
    is_mean: bool = False  # whether it is a mean over the examples since the epoch began

    @property
    def fits_log_scale(self) -> bool:
        """Whether it may be drawn on a logarithmic scale: a loss or a rate, but no score up to 1."""
        return self.lower_is_better or self.kind == MetricKind.RATE

    @property
    def is_learning_rate(self) -> bool:
        """Whether it is the optimizer's learning rate."""
        return self.name in _RATES


_LOWER_IS_BETTER = re.compile(r"loss|error|mae|mse|entropy|divergence|poisson|huber|hinge|cosh|perplexity")
_RATES = frozenset({"learning_rate", "lr"})
# By what Keras and its users call means over examples.
_MEANS = re.compile(
    r"loss|accuracy|error|entropy|divergence|poisson|huber|hinge|log_?cosh|cosine_similarity"
    r"|(?<![a-z])(acc|mae|mse|mape|msle|kld)(?![a-z])"
)
_NO_MEANS = re.compile(r"root_|rmse|balanced|macro")


def metric_called(name: str, known: Iterable[Metric] = ()) -> Metric:
    """Return what is known of a metric by its name in ``logs``; what the name says if that is nothing."""
    bare = name.removeprefix("val_")
    if found := next((metric for metric in known if metric.name == bare), None):
        return found
    lower = bare.lower()
    kind = MetricKind.SHARE if "acc" in lower else MetricKind.RATE if lower in _RATES else MetricKind.NUMBER
    return Metric(
        bare,
        lower_is_better=_LOWER_IS_BETTER.search(lower) is not None,
        kind=MetricKind.LOSS if lower.endswith("loss") else kind,
        is_mean=_MEANS.search(lower) is not None and _NO_MEANS.search(lower) is None,
    )


def monitor_of(config: RunConfig, *, has_validation: bool = True) -> str:
    """Return the metric that decides which epoch of a run is best, by its name in ``logs``."""
    monitor = config.checkpoint.monitor
    if monitor in {"auto", "none"} or (monitor.startswith("val_") and not has_validation):
        return ("val_" if has_validation else "") + (config.metric_names[0] if config.metrics else "loss")
    return monitor


def loss_beside(name: str) -> str:
    """Return the loss that decides between equal values of a metric, by its name in ``logs``."""
    return "val_loss" if name.startswith("val_") else "loss"


def best_of(values: ValuesOrNone, losses: ValuesOrNone, *, lowest: bool) -> int | None:
    """Return the place of the best finite value; of equal ones, that with the lowest loss, then the first."""
    import numpy as np  # commands that show no run do without it

    ranks, losses = np.array(values, dtype=float), np.array(losses, dtype=float)
    ranks = np.where(np.isfinite(ranks), ranks if lowest else -ranks, np.inf)
    if not np.isfinite(ranks).any():
        return None
    equal = np.flatnonzero(ranks == ranks.min())
    return int(equal[np.argmin(np.where(np.isnan(losses), np.inf, losses)[equal])])
