"""Recovers the mean between two progress reports from Keras's means since the epoch began.

After `n_j` and `n_k` steps of an epoch with means `m_j` and `m_k`, the mean over the steps between is
`(n_k * m_k - n_j * m_j) / (n_k - n_j)`: exact for metrics that are means over batches of equal size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .metrics import MetricKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from .metrics import Metric

# The error of a mean that Keras keeps in float32, as a multiple of the mean itself.
_ROUNDING = 8 * float(np.finfo(np.float32).eps)
_SLACK = 1e-3


class Intervals:
    """The intervals between consecutive reports of one epoch, given the epoch of each and the steps done in it.

    `before` is the same, with the metrics, of the report before the first one; `known` describes a metric by its name.
    """

    def __init__(
        self,
        epoch: Sequence[int] | NDArray[Any],
        done: Sequence[int] | NDArray[Any],
        before: tuple[int, int, Mapping[str, float]] | None,
        known: Callable[[str], Metric],
    ) -> None:
        self._known = known
        first_epoch, first_done, self._before = before or (0, 0, {})
        epochs = np.concatenate(([first_epoch], epoch))
        self._done = np.concatenate(([first_done], done)).astype(np.float64)
        self._steps = np.diff(self._done)
        self._continues = (np.diff(epochs) == 0) & (self._steps > 0)

    def recovered(
        self, names: Sequence[str], means: NDArray[np.float64], running: frozenset[str]
    ) -> tuple[NDArray[np.float64], frozenset[str]]:
        """Return the mean over each interval, and the metrics of which some values cover the epoch so far instead.

        The means given are those since the epoch began, one row per metric and one column per report; `running` are the
        metrics of which the values before cover the epoch so far.
        """
        metrics = [*map(self._known, names)]
        is_mean = [metric.is_mean and name not in running for name, metric in zip(names, metrics, strict=True)]
        before = np.array([[self._before.get(name, np.nan)] for name in names]).reshape(len(names), 1)
        earlier = np.concatenate((before, means[:, :-1]), axis=1)
        continues = self._continues & np.isfinite(earlier) & np.isfinite(means)
        changes = continues & np.array(is_mean, dtype=np.bool_).reshape(len(names), 1)
        steps = np.where(self._continues, self._steps, 1.0)
        with np.errstate(invalid="ignore", over="ignore"):
            values = means + np.where(changes, (means - earlier) * (self._done[1:] - steps) / steps, 0.0)
        kept = {
            name
            for name, metric, row in zip(names, metrics, continues.any(axis=1), strict=True)
            if row and not metric.is_mean and metric.kind != MetricKind.RATE
        }
        kept |= {
            name
            for row, name in enumerate(names)
            if metrics[row].kind == MetricKind.SHARE
            and self._bound(values[row], means[row], earlier[row], changes[row])
        }
        return values, running | kept

    def _bound(
        self, values: NDArray[Any], means: NDArray[Any], earlier: NDArray[Any], changes: NDArray[np.bool_]
    ) -> bool:
        """Keep a share between 0 and 1; return whether it is no mean over examples, because it would leave that.

        From the first such value on, the values are then as reported.
        """
        is_share = changes & (means >= 0.0) & (means <= 1.0) & (earlier >= 0.0) & (earlier <= 1.0)
        slack = _SLACK + _ROUNDING * self._done[1:] / np.maximum(self._steps, 1.0)
        impossible = is_share & ((values < -slack) | (values > 1.0 + slack))
        at = int(impossible.argmax()) if impossible.any() else len(values)
        values[is_share] = np.clip(values[is_share], 0.0, 1.0)
        values[at:] = means[at:]
        return at < len(values)
