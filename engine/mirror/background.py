"""Mirrors a run while it trains, in its own thread, so that training never waits for a network.

The thread looks at the run's folder every few seconds and copies what is newest; nothing is queued. It copies for at
most a fifth of the time and computes for at most 2% of it. While the mirror cannot be written, it waits longer and
longer between its attempts.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ..errors import one_line
from ..runs.events import MirrorReported, Phase, RunFailed, RunFinished
from ..runs.run_directory import is_removed
from .copier import Copier, MirrorTakenError
from .places import open_place

if TYPE_CHECKING:
    from ..runs.recorder import Recorder

_LOOK_S = 2.0
_JOURNAL_EVERY_S = 30.0
_SHARE, _CPU_SHARE = 0.2, 0.02
_LONGEST_PAUSE_S = 60.0
_PATIENCE_S = 600.0
_LAST_WORDS_S = 10.0


class Mirror:
    """Copies a run to its mirror until it is closed.

    At its end, the run gives up on a mirror to which nothing could be copied for `patience_s`.
    """

    def __init__(
        self, recorder: Recorder, folder: str, patience_s: float = _PATIENCE_S, look_s: float = _LOOK_S
    ) -> None:
        self._recorder = recorder
        self._folder = folder
        self._patience_s = patience_s
        self._look_s = look_s
        self._copier: Copier | None = None
        self._journal_at = time.monotonic()
        self._problem, self._failures = "", 0
        self._is_taken = False
        self._is_ending = self._is_over = False
        self._wake, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="tpu-console-mirror", daemon=True)
        self._thread.start()

    def close(self, end: RunFinished | RunFailed) -> None:
        """Wait until everything but the last event is copied, or say what is not.

        The wait ends early if the run is asked to stop once more, or its time budget is over.
        """
        recorder = self._recorder
        recorder.control.ending = end
        asked, began = recorder.control.asked, time.monotonic()
        self._done.clear()
        self._is_ending, self._failures = True, 0
        self._wake.set()
        if not self._is_taken and not self._done.wait(1.0):
            recorder.enter(Phase.SAVING, f"copying to {self._folder}")
            self._report(self._left())  # for a process that is ended meanwhile
        while not self._is_taken and not self._done.wait(0.2):
            is_late = recorder.deadline is not None and time.time() >= recorder.deadline.event.ends_at
            is_late |= is_removed(recorder.run)
            moved_at = max(began, self._copier.moved_at if self._copier is not None else 0.0)
            if is_late or recorder.control.asked != asked or time.monotonic() - moved_at > self._patience_s:
                self._is_over = True
                self._problem = self._problem or "there was not enough time"
                break
        self._report(self._left() if self._is_over or self._is_taken else ())

    def finish(self) -> None:
        """Copy the last event, which is in the journal now, and stop."""
        is_complete = not self._is_over and not self._is_taken
        self._is_over = True
        self._wake.set()
        if is_complete:
            self._thread.join(_LAST_WORDS_S)

    def _work(self) -> None:
        pause_s, is_over = 0.0, False
        while not is_over:
            self._wake.wait(pause_s)
            self._wake.clear()
            is_over, is_ending = self._is_over, self._is_ending
            began, began_cpu = time.monotonic(), time.thread_time()
            try:
                self._copy(is_ending=is_ending)
            except MirrorTakenError as error:
                self._is_taken, self._problem = True, str(error)
                self._report()
                self._done.set()
                return
            except Exception as error:  # noqa: BLE001  whatever happens to the mirror, the run goes on
                pause_s = min(_LONGEST_PAUSE_S, self._look_s * 2.0 ** min(self._failures, 10))
                self._failures += 1
                had_problem = bool(self._problem)
                self._problem = getattr(error, "strerror", None) or one_line(error) or repr(error)
                if not had_problem:
                    self._report()
            else:
                self._failures = 0
                took_s, cpu_s = time.monotonic() - began, time.thread_time() - began_cpu
                pause_s = max(self._look_s, took_s / _SHARE, cpu_s / _CPU_SHARE)
                if is_ending:
                    self._done.set()

    def _copy(self, *, is_ending: bool) -> None:
        if self._copier is None:
            self._copier = Copier(self._recorder.run, open_place(self._folder))
        began = time.monotonic()
        if not (is_ending or self._copier.left() or began - self._journal_at > _JOURNAL_EVERY_S):
            return
        had_problem, is_news = bool(self._problem), self._copier.copy()
        self._journal_at = time.monotonic()
        if is_news and self._recorder.deadline is not None:
            self._recorder.deadline.note("mirror", self._journal_at - began)
        self._problem = ""
        if (is_news or had_problem) and not is_ending:
            self._report()

    def _left(self) -> tuple[str, ...]:
        return ("events.jsonl", *(self._copier.left() if self._copier is not None else ()))

    def _report(self, left: tuple[str, ...] = ()) -> None:
        if self._is_over and not left:
            return  # the last report stands
        epoch = self._copier.epoch if self._copier is not None else 0
        is_given_up = self._is_taken or self._is_over
        self._recorder.emit(MirrorReported(self._folder, epoch, self._problem, left, is_given_up))
