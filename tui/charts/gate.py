"""Decides when a chart may be redrawn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.timer import Timer
    from textual.widget import Widget


_LEAST_WAIT_S, _LONGEST_WAIT_S = 0.25, 2.0


class RedrawGate:
    """Delays redraws so that drawing never competes with training.

    A redraw is due only when something changed, at most four times a second, and no earlier after the previous one
    than keeps drawing under `max_share` of one core, which may be changed; never later than two seconds, so that a
    costly chart still lives. Nothing here draws: the caller asks and reports.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, max_share: float = 0.03) -> None:
        self._clock = clock
        self.max_share = max_share
        self._next_s = self._drawn_s = float("-inf")
        self.changed = False  # since the last redraw
        self._timer: Timer | None = None

    def schedule(self, widget: Widget, draw: Callable[[], object]) -> None:
        """Draw what has changed in a widget now or, by one timer, when that is allowed."""
        if self._timer is not None or not widget.is_mounted or not self.changed:
            return

        def draw_late() -> None:
            self._timer = None
            self.schedule(widget, draw)

        if self.wait_s() > 0.0:
            self._timer = widget.set_timer(self.wait_s(), draw_late, name="redraw")
        else:
            draw()

    def mark(self) -> None:
        """Note that there is something new to draw."""
        self.changed = True

    def wait_s(self) -> float:
        """Seconds until the next redraw is allowed; 0 when it is allowed now."""
        return max(0.0, self._next_s - self._clock())

    def ready(self, *, force: bool = False) -> bool:
        """Return whether to redraw now; `force` does not wait, as after a key or a resize."""
        return force or (self.changed and self.wait_s() == 0.0)

    def hold(self, seconds: float) -> None:
        """Put the next redraw off, because something quicker is drawn now; never for long."""
        self._next_s = max(self._next_s, min(self._clock() + seconds, self._drawn_s + _LONGEST_WAIT_S))

    def drawn(self, cost_s: float) -> None:
        """Report a redraw that has just ended and took `cost_s` seconds."""
        wait_s = min(max(_LEAST_WAIT_S, cost_s / self.max_share), _LONGEST_WAIT_S)
        self._drawn_s = self._clock()
        self._next_s = self._drawn_s + wait_s
        self.changed = False
