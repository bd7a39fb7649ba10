"""Computes how fast this host trains, from the events of its training thread."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ..runs.events import EpochEnded, FitStarted, Phase, PhaseStarted, Progress, RunResumed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..runs.events import Event

_SHORTEST_S = 0.1  # below it a rate would be noise


class HostPace:
    """Computes examples per second between two calls of `look`, from the run's events.

    Compilation, validation and pauses do not count as time. `share` is this host's share of the replicas; `earlier_s`
    are the seconds of training before the run was resumed.
    """

    def __init__(self, share: float = 1.0, earlier_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._earlier_s = earlier_s
        self._clock = clock
        self._lock = threading.Lock()
        self._began: float | None = None
        self._paused_at: float | None = None
        self._batch: int | None = None
        self._validated_s = 0.0
        self._last: tuple[int, float] | None = None  # steps, and seconds of training, at the last look
        self._newest: tuple[int, float] | None = None

    def on_event(self, event: Event) -> None:
        """Follow an event of the run; called in the thread that writes it."""
        if isinstance(event, Progress):
            self._note(event.step, event.elapsed_s)
        elif isinstance(event, EpochEnded):
            self._validated_s += event.validation_s
            self._note(event.step, event.elapsed_s)
        elif isinstance(event, PhaseStarted):
            self._turn(is_paused=event.phase == Phase.PAUSED)
        elif isinstance(event, RunResumed):  # it goes back to a checkpoint
            with self._lock:
                self._began, self._earlier_s = None, event.elapsed_s
        elif isinstance(event, FitStarted):
            with self._lock:
                # A second `fit` of the run continues its seconds and compiles again.
                self._began = self._clock() - self._earlier_s if self._began is None else self._began
                self._batch = event.global_batch
                self._last = self._newest = None

    def elapsed_s(self) -> float | None:
        """Return seconds since the run's first `fit` began, as the event `Progress` counts them; None before."""
        with self._lock:
            if self._began is None:
                return None
            now = self._clock() if self._paused_at is None else self._paused_at
            return round(now - self._began, 3)

    def look(self) -> tuple[float | None, str]:
        """Return examples a second since the last look, and why there is no figure."""
        with self._lock:
            if self._began is None:
                return None, "training has not begun"
            if not self._batch:
                return None, "the batch size is unknown"
            if self._last is None or self._newest is None:
                self._last = self._newest
                return None, "no step of training has ended"
            steps, seconds = (now - then for now, then in zip(self._newest, self._last, strict=True))
            if seconds < _SHORTEST_S or steps <= 0:
                return None, "no step of training has ended since"
            self._last = self._newest
            return round(steps * self._batch * self._share / seconds, 1), ""

    def _turn(self, *, is_paused: bool) -> None:
        """Stop the time at the beginning of a pause, and let it go on at the end."""
        with self._lock:
            now = self._clock()
            if is_paused:
                self._paused_at = now
            elif self._paused_at is not None and self._began is not None:
                self._began, self._paused_at = self._began + now - self._paused_at, None

    def _note(self, step: int, elapsed_s: float) -> None:
        with self._lock:
            self._newest = (step, elapsed_s - self._validated_s)
            if self._last is None:
                # The first execution, which compiles, ends here: nothing before it is counted.
                self._last = self._newest
