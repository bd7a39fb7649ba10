"""Limits how often the screen gets something new to draw, so that drawing does not slow training down."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FASTEST_S, SLOWEST_S = 0.5, 2.0
"""Shortest time in seconds between two snapshots if drawing is cheap, and if it is expensive."""

_SHARE = 0.02
"""Target share of one core for the console; the limit of the charts is in `tui.charts.gate`."""

_JUDGED_S = 4.0


class DeliveryPace:
    """Chooses the seconds between two snapshots from the cost of drawing the last ones.

    A pause of the run, or of the console itself, changes nothing: a snapshot costs as much as before. `drawing_s`
    returns the processor time of the thread that draws.
    """

    def __init__(self, drawing_s: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._drawing_s = drawing_s
        self._clock = clock
        self.interval_s = FASTEST_S
        self._snapshots = 0
        self._since, self._before = clock(), drawing_s()

    def judge(self) -> None:
        """Update the interval if enough time has passed; called at each snapshot."""
        self._snapshots += 1
        now = self._clock()
        if now - self._since < _JUDGED_S:
            return
        spent = self._drawing_s()
        cost_s = (spent - self._before) / self._snapshots
        self.interval_s = min(SLOWEST_S, max(FASTEST_S, cost_s / _SHARE))
        self._since, self._before, self._snapshots = now, spent, 0


def main_thread_s() -> float:
    """Return the processor time of the main thread, which draws; 0 on systems that do not report it (macOS)."""
    ident = threading.main_thread().ident
    if ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(ident))
