"""Limits how many steps JAX sends ahead to the device, so that a run stops soon after it was asked to.

JAX sends a step and does not wait for it. Up to 32 steps may be under way, half a minute for a model that takes a
second per step: a stop during the first would take effect after the last. So about half a second of work is sent
ahead, and at least two steps, so that the device is not idle between them.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

AHEAD_S = 0.5  # most seconds of work that wait for the device
_FEWEST_AHEAD = 2
_NEW_WEIGHT = 0.2  # of the newest time of a step in the mean


class HeldBack:
    """A model's compiled train function, which waits before it sends one more step than may be under way.

    It waits for a step's metrics, because the weights are donated to the next step. A step's errors are raised here.
    """

    def __init__(self, train_function: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self.train_function = train_function
        self._sent: deque[Any] = deque()
        self._most = _FEWEST_AHEAD
        self._step_s: float | None = None
        self._waited_at: float | None = None

    @classmethod
    def of(cls, model: Any) -> HeldBack:
        """Make a model that `fit` trains on JAX send at most `AHEAD_S` ahead."""
        inner = model.train_function
        model.train_function = cls(inner.train_function if isinstance(inner, cls) else inner)
        held: HeldBack = model.train_function
        return held

    def __call__(self, state: Any, iterator: Any) -> tuple[Any, Any]:
        """Send a step; return its metrics and the next state, neither of which need be computed yet."""
        while len(self._sent) >= self._most:
            self._wait_for_oldest()
        metrics, state = self.train_function(state, iterator)
        self._sent.append(metrics)
        return metrics, state

    def wait(self) -> None:
        """Wait until the device has finished all steps."""
        import jax

        jax.block_until_ready(list(self._sent))
        self._sent.clear()
        self._waited_at = None  # the time until the next step is not that of a step

    def _wait_for_oldest(self) -> None:
        import jax

        jax.block_until_ready(self._sent.popleft())
        now = time.monotonic()
        if self._waited_at is not None:
            step_s = now - self._waited_at
            weight = 1.0 if self._step_s is None else _NEW_WEIGHT
            self._step_s = weight * step_s + (1 - weight) * (self._step_s or 0.0)
            self._most = max(_FEWEST_AHEAD, math.ceil(AHEAD_S / max(self._step_s, 1e-6)))
        self._waited_at = now
