"""The thread that follows a run's directory for a screen. Does not depend on Textual."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tpu_console.engine.runs.facts import conclude_killed
from tpu_console.engine.runs.follower import RunFollower, Snapshot
from tpu_console.engine.storage.paths import user_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

FASTEST_S, SLOWEST_S = 0.5, 2.0
"""Shortest time in seconds between two snapshots if drawing is cheap, and if it is expensive."""

POLL_S = 0.1  # between two looks at the files' sizes
LIVENESS_S = 1.0  # after which a run is looked at even though no file has changed
_SHARE = 0.02  # target share of one core for the console; the limit of the charts is in `tui.charts.chart`


def main_thread_s() -> float:
    """Return the processor time of the main thread, which draws; 0 on systems that do not report it (macOS)."""
    ident = threading.main_thread().ident
    if ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(ident))


class RunWatcher(threading.Thread):
    """Reads what a run appends and calls back when something changed. The live screen owns it.

    A long journal is read in parts, with a snapshot now and then, so that the screen never freezes. The files need
    not exist yet. `on_news` is called from this thread; `drawing_s` returns the processor time of the one that draws.
    """

    def __init__(
        self,
        run: RunDirectory,
        on_news: Callable[[Snapshot], object],
        clock: Callable[[], float] = time.monotonic,
        drawing_s: Callable[[], float] = main_thread_s,
    ) -> None:
        super().__init__(name=f"tpu-console-watch-{run.run_id}", daemon=True)
        self._run = run
        self._on_news = on_news
        self._clock = clock
        self._drawing_s = drawing_s
        self._drawn_s, self.interval_s = drawing_s(), FASTEST_S
        self._follower = RunFollower(run)
        self._stopped = threading.Event()
        self._delivered: Snapshot | None = None
        self._delivered_at = self._looked_at = float("-inf")
        self._seen: tuple[int, ...] = ()

    def run(self) -> None:
        """Follow the run until stopped."""
        while not self._stopped.is_set():
            self._look()
            self._stopped.wait(POLL_S)

    def stop(self, timeout: float = 2.0) -> None:
        """Stop, and wait at most `timeout` seconds for a read in progress."""
        self._stopped.set()
        if self.is_alive() and self is not threading.current_thread():
            self.join(timeout)

    def _look(self) -> None:
        now = self._clock()
        if now - self._delivered_at < self.interval_s:
            return
        sizes = (*_stamp(self._run.journal), *_stamp(self._run.log))
        if sizes == self._seen and now - self._looked_at < LIVENESS_S:
            return
        self._seen, self._looked_at = sizes, now
        try:
            while self._follower.advance() and not self._stopped.is_set():
                if self._clock() - max(now, self._delivered_at) >= self.interval_s:
                    self._deliver(self._follower.snapshot)
            if self._follower.snapshot.crashed:
                conclude_killed(self._run, self._follower.snapshot.state)
            self._deliver(self._follower.snapshot)
        except OSError as error:
            trouble = f"{user_path(self._run.journal)} cannot be read: {error.strerror}."
            self._deliver(replace(self._follower.snapshot, is_reading=False, trouble=trouble))

    def _deliver(self, new: Snapshot) -> None:
        last = self._delivered
        # By identity where the follower keeps what did not change; comparing curves would be slow.
        is_same = last is not None and new.state is last.state and new.log is last.log
        if self._stopped.is_set() or (is_same and new == last):
            return
        self._delivered, self._delivered_at = new, self._clock()
        # So rarely that drawing takes its share; a pause changes nothing, because the last snapshot cost as much.
        before, self._drawn_s = self._drawn_s, self._drawing_s()
        self.interval_s = min(SLOWEST_S, max(FASTEST_S, (self._drawn_s - before) / _SHARE))
        self._on_news(new)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (-1, 0)
    return (status.st_size, status.st_ino)
