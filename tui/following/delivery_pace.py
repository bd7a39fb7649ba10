"""How often the screen is given something new to draw: drawing is not to compete with training for the processor."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FASTEST_S, SLOWEST_S = 0.5, 2.0
"""Fewest seconds between two snapshots where drawing is cheap, and where it is dear."""

_SHARE = 0.02
"""Share of one core that the console is brought to; the charts' own limit is in `tui.charts.gate`."""

_JUDGED_S = 4.0


class DeliveryPace:
    """Seconds to leave between two snapshots, by what drawing the last ones has cost.

    Args:
        drawing_s: Processor time of the thread that draws, in seconds.
        clock: Seconds on a clock that never goes back.
    """

    def __init__(self, drawing_s: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._drawing_s = drawing_s
        self._clock = clock
        self.interval_s = FASTEST_S
        self._since, self._before = clock(), drawing_s()

    def judge(self) -> None:
        """Choose the interval anew once enough time has passed to judge by; called at each snapshot."""
        now = self._clock()
        if (passed := now - self._since) < _JUDGED_S:
            return
        spent = self._drawing_s()
        share = (spent - self._before) / passed
        self.interval_s = min(SLOWEST_S, max(FASTEST_S, self.interval_s * share / _SHARE))
        self._since, self._before = now, spent


def main_thread_s() -> float:
    """Return the processor time of the main thread, which draws; 0 on systems that do not tell (macOS)."""
    ident = threading.main_thread().ident
    if ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(ident))
