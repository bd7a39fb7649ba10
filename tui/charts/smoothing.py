"""Smoothing of noisy metrics, incremental so that a long run is never smoothed twice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .curve import FloatArray

# Width of the rows that are averaged side by side: wide enough that the scalar loop over rows is short,
# narrow enough that the log2(width) passes over the data stay few.
_BLOCK = 64
# Below this, 1 - weight**n is 1 to the last bit of a double.
_NEGLIGIBLE = 1e-18


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
        self._size = 0
        self._buffer: FloatArray = np.empty(256)

    def extend(self, values: FloatArray) -> None:
        """Append `values`, shape `(n,)`, in the order they were measured."""
        end = self._size + len(values)
        self._reserve(end)
        target = self._buffer[self._size : end]
        self._size = end
        finite = np.isfinite(values)
        if finite.all():
            target[:] = self._average(values)
        else:
            target[:] = np.nan
            target[finite] = self._average(values[finite])

    @property
    def values(self) -> FloatArray:
        """Every smoothed value so far, one per value given, as a read-only view."""
        view = self._buffer[: self._size]
        view.flags.writeable = False
        return view

    def _reserve(self, size: int) -> None:
        if size > len(self._buffer):
            grown = np.empty(max(size, 2 * len(self._buffer)))
            grown[: self._size] = self._buffer[: self._size]
            self._buffer = grown

    def _average(self, values: FloatArray) -> FloatArray:
        """The smoothed form of finite `values`."""
        if self.weight == 0.0 or len(values) == 0:
            return values
        whole = len(values) - len(values) % _BLOCK
        biased = np.empty(len(values))
        biased[:whole] = self._average_blocks(values[:whole])
        for i in range(whole, len(values)):
            self._mean = self.weight * self._mean + (1.0 - self.weight) * float(values[i])
            biased[i] = self._mean
        self._remove_bias(biased)
        return biased

    def _average_blocks(self, values: FloatArray) -> FloatArray:
        """The biased average of a whole number of blocks, all blocks at once.

        Inside the blocks it is a doubling scan (each pass adds the sum that ends `shift` places earlier);
        a scalar loop then carries the mean from one block to the next.
        """
        rows = (1.0 - self.weight) * values.reshape(-1, _BLOCK)
        shift = 1
        while shift < _BLOCK:
            rows[:, shift:] += self.weight**shift * rows[:, :-shift]
            shift *= 2
        block_decay = self.weight**_BLOCK
        carried = np.empty(len(rows))
        for i, last in enumerate(rows[:, -1].tolist()):
            carried[i] = self._mean
            self._mean = block_decay * self._mean + last
        decay = self.weight ** np.arange(1.0, _BLOCK + 1.0)
        rows += carried[:, np.newaxis] * decay
        return rows.reshape(-1)

    def _remove_bias(self, biased: FloatArray) -> None:
        log_weight = math.log(self.weight)
        settled = math.ceil(math.log(_NEGLIGIBLE) / log_weight)
        young = min(max(settled - self._finite_count, 0), len(biased))
        n = np.arange(self._finite_count + 1.0, self._finite_count + young + 1.0)
        biased[:young] /= -np.expm1(n * log_weight)
        self._finite_count += len(biased)
