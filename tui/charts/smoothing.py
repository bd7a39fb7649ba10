"""Smoothing of noisy metrics, incremental so that a long run is never smoothed twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tpu_console.engine.runs.curves import Series as Column

if TYPE_CHECKING:
    from .curve import FloatArray

# A smaller weight of the past changes no bit of a double.
_NEGLIGIBLE = 1e-18
_CHUNK = 8192  # samples that stay in the processor's cache


class DebiasedEma:
    """Exponential moving average without the pull towards zero at the start.

    `m_n = weight * m_(n-1) + (1 - weight) * x_n`, and the smoothed value is `m_n / (1 - weight**n)`: the bias
    correction of Adam (Kingma and Ba, 2015), which TensorBoard's smoothing slider uses too. NaN and infinity come out
    as NaN in their place and count for nothing. Raises `ValueError` if the weight of the past is not in `[0, 1)`.
    """

    def __init__(self, weight: float) -> None:
        if not 0.0 <= weight < 1.0:
            msg = f"weight must lie in [0, 1), not {weight}"
            raise ValueError(msg)
        self.weight = weight
        self._mean = 0.0
        self._finite_count = 0
        self._smoothed = Column()

    def extend(self, values: FloatArray) -> None:
        """Append `values`, shape `(n,)`, in the order they were measured."""
        finite = np.flatnonzero(np.isfinite(values))
        smoothed = np.full(len(values), np.nan)
        for begin in range(0, len(finite), _CHUNK):
            chunk = finite[begin : begin + _CHUNK]
            smoothed[chunk] = self._average(values[chunk])
        self._smoothed = self._smoothed.extended(smoothed)

    @property
    def values(self) -> FloatArray:
        """Every smoothed value so far, one per value given, as a read-only view."""
        return self._smoothed.values

    def _average(self, values: FloatArray) -> FloatArray:
        """Return the smoothed form of finite values, by a doubling scan: each pass adds the sum `shift` places before.

        The passes end where the weight of what they would add is negligible.
        """
        mean = (1.0 - self.weight) * values
        mean[0] += self.weight * self._mean
        shift = 1
        while shift < len(mean) and self.weight**shift > _NEGLIGIBLE:
            mean[shift:] += self.weight**shift * mean[:-shift]
            shift *= 2
        self._mean, before = float(mean[-1]), self._finite_count
        self._finite_count += len(mean)
        if self.weight**before < _NEGLIGIBLE:
            return mean
        return mean / (1.0 - self.weight ** np.arange(before + 1.0, self._finite_count + 1.0))
