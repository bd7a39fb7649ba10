"""Recovers the mean between two progress reports from Keras's means since the epoch began.

After `n_j` and `n_k` steps of an epoch with means `m_j` and `m_k`, the mean over the steps between is
`(n_k * m_k - n_j * m_j) / (n_k - n_j)`: exact for metrics that are means over batches of equal size.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

# By what Keras and its users call means over examples; a journal holds no classes of metrics.
_MEANS = re.compile(
    r"loss|accuracy|error|entropy|divergence|poisson|huber|hinge|log_?cosh|cosine_similarity"
    r"|(?<![a-z])(acc|mae|mse|mape|msle|kld)(?![a-z])"
)
_NO_MEANS = re.compile(r"root_|rmse|balanced|macro")
_SHARES = re.compile(r"acc")
_AS_IT_IS = frozenset({"learning_rate", "lr"})
# The error of a mean that Keras keeps in float32, as a multiple of the mean itself.
_ROUNDING = 8 * float(np.finfo(np.float32).eps)
_SLACK = 1e-3


def is_mean(name: str) -> bool:
    """Return whether a metric is a mean over examples, by its name; unknown names are not."""
    name = name.lower()
    return _MEANS.search(name) is not None and _NO_MEANS.search(name) is None


class Intervals:
    """The intervals between consecutive reports of one epoch, given the epoch of each and the steps done in it.

    `before` is the same, with the metrics, of the report before the first one.
    """

    def __init__(
        self,
        epoch: Sequence[int] | NDArray[Any],
        done: Sequence[int] | NDArray[Any],
        before: tuple[int, int, Mapping[str, float]] | None,
    ) -> None:
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
        before = np.array([[self._before.get(name, np.nan)] for name in names]).reshape(len(names), 1)
        earlier = np.concatenate((before, means[:, :-1]), axis=1)
        continues = self._continues & np.isfinite(earlier) & np.isfinite(means)
        is_recovered = np.array([is_mean(name) and name not in running for name in names], dtype=np.bool_)
        changes = continues & is_recovered.reshape(len(names), 1)
        steps = np.where(self._continues, self._steps, 1.0)
        with np.errstate(invalid="ignore", over="ignore"):
            values = means + np.where(changes, (means - earlier) * (self._done[1:] - steps) / steps, 0.0)
        kept = {
            name
            for name, row in zip(names, continues.any(axis=1), strict=True)
            if row and not is_mean(name) and name not in _AS_IT_IS
        }
        kept |= {
            name
            for row, name in enumerate(names)
            if _SHARES.search(name.lower()) and self._bound(values[row], means[row], earlier[row], changes[row])
        }
        return values, running | kept

    def _bound(
        self, values: NDArray[Any], means: NDArray[Any], earlier: NDArray[Any], changes: NDArray[np.bool_]
    ) -> bool:
        """Keep an accuracy between 0 and 1; return whether it is no mean over examples, because it would leave that.

        From the first such value on, the values are then as reported.
        """
        is_share = changes & (means >= 0.0) & (means <= 1.0) & (earlier >= 0.0) & (earlier <= 1.0)
        slack = _SLACK + _ROUNDING * self._done[1:] / np.maximum(self._steps, 1.0)
        impossible = is_share & ((values < -slack) | (values > 1.0 + slack))
        at = int(impossible.argmax()) if impossible.any() else len(values)
        values[is_share] = np.clip(values[is_share], 0.0, 1.0)
        values[at:] = means[at:]
        return at < len(values)
