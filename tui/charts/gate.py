"""Decides when a chart may be redrawn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class RedrawGate:
    """Delays redraws so that drawing never competes with training.

    A redraw is due only when something changed, at most `max_hz` times a second, and no earlier after the previous one
    than keeps drawing under `max_share` of one core, which may be changed; never later than `max_wait_s`, so that a
    costly chart still lives. Nothing here draws or waits: the caller asks and reports.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_hz: float = 4.0,
        max_share: float = 0.03,
        max_wait_s: float = 2.0,
    ) -> None:
        self._clock = clock
        self._min_wait_s = 1.0 / max_hz
        self.max_share = max_share
        self._max_wait_s = max_wait_s
        self._next_s = self._drawn_s = float("-inf")
        self._changed = False

    @property
    def changed(self) -> bool:
        """Whether something changed since the last redraw."""
        return self._changed

    def mark(self) -> None:
        """Note that there is something new to draw."""
        self._changed = True

    def wait_s(self) -> float:
        """Seconds until the next redraw is allowed; 0 when it is allowed now."""
        return max(0.0, self._next_s - self._clock())

    def ready(self, *, force: bool = False) -> bool:
        """Whether to redraw now, or in any case because the pane was resized, or a key was pressed."""
        return force or (self._changed and self.wait_s() == 0.0)

    def hold(self, seconds: float) -> None:
        """Put the next redraw off, because something quicker is drawn now; never beyond `max_wait_s`."""
        self._next_s = max(self._next_s, min(self._clock() + seconds, self._drawn_s + self._max_wait_s))

    def drawn(self, cost_s: float) -> None:
        """Report a redraw that has just ended and took `cost_s` seconds."""
        wait_s = min(max(self._min_wait_s, cost_s / self.max_share), self._max_wait_s)
        self._drawn_s = self._clock()
        self._next_s = self._drawn_s + wait_s
        self._changed = False
