"""How far a job is, in words, and its lines on standard error.

On a terminal, one line is rewritten in place; in a pipe there is a plain line now and then.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tpu_console.engine.data.download import Arrived

from ..terminal.output import complain, encodable
from ..text.numbers import duration, size, whole_duration
from ..text.tables import labelled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_EVERY_S = 5.0  # longest time between two lines in a pipe while there is progress
_REDRAW_S = 0.1
_TICK_S = 0.5
_SETTLED_S = 0.5  # how long a step runs before its rate is meaningful
_BAR_CELLS = 24
_CLEAR = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class Step:
    """The progress of one part of a job."""

    what: str  # the activity, such as ``reading images``
    done: int  # the amount done
    total: int | None  # the total amount; None if unknown
    unit: str  # the unit in the plural; ``seconds`` if there is nothing to count except time

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Step:
        """Return what a job's message says."""
        return cls(record["what"], record["done"], record["total"], record["unit"])

    @property
    def only_takes_time(self) -> bool:
        """Whether there is nothing to count except time."""
        return self.unit == "seconds"

    @property
    def is_over(self) -> bool:
        """Whether everything is done."""
        return self.total is not None and self.done >= self.total and not self.only_takes_time

    def amount(self, count: float) -> str:
        """Write an amount of what it counts, such as ``3 images``."""
        if self.unit == "bytes":
            return size(int(count))
        return f"{count:.1f} {self.unit}" if isinstance(count, float) and count < 10 else f"{count:,.0f} {self.unit}"

    @property
    def share(self) -> str:
        """How much of it is done."""
        if self.total is None:
            return self.amount(self.done)
        done = size(self.done) if self.unit == "bytes" else f"{self.done:,}"
        return f"{done} of {self.amount(self.total)} ({100 * self.done // self.total if self.total else 100}%)"


class JobProgress:
    """The step that a job is at, since when, and how much of it was done then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.step: Step | None = None
        self._clock = clock
        self._began_at, self._began_with = 0.0, 0

    def feed(self, step: Step) -> None:
        """Take in a step's progress."""
        if self.step is None or step.what != self.step.what:
            self._began_at, self._began_with = self._clock(), step.done
        self.step = step

    def running(self, *, bar: bool = False) -> str:
        """Say how far the step is, its rate and what is left, with or without a bar; while nothing moves, for how long.

        The rate does not count what was already done when it began.
        """
        if (step := self.step) is None:
            return ""
        seconds, moved = self._clock() - self._began_at, step.done - self._began_with
        parts = [] if step.only_takes_time else [step.share]
        if seconds >= _SETTLED_S and step.only_takes_time:
            parts.append(duration(seconds))
        elif seconds >= _SETTLED_S:
            parts.append(f"{step.amount(moved / seconds)}/s" if moved > 0 else f"{duration(seconds)} so far")
        if step.only_takes_time and step.total is not None:
            left = step.total - seconds
            parts.append(f"about {whole_duration(left)} left" if left > 0 else "longer than expected")
        elif seconds >= _SETTLED_S and moved > 0 and step.total is not None:
            parts.append(f"{duration((step.total - step.done) * seconds / moved)} left")
        filled = _BAR_CELLS * min(step.done, step.total) // step.total if bar and step.total else None
        drawn = "" if filled is None else f"{'█' * filled}{'░' * (_BAR_CELLS - filled)}  "
        return f"{step.what}  {drawn}{', '.join(parts)}".rstrip()

    def ended(self) -> str:
        """Say what the step did and how long it took; empty if it did not take long enough to say so."""
        step, seconds = self.step, self._clock() - self._began_at
        if step is None or (seconds < _SETTLED_S and step.only_takes_time):
            return ""
        done = "" if step.only_takes_time else f"{step.amount(step.done) if step.is_over else step.share} in "
        return f"{step.what}  {done}{duration(seconds)}"


class ProgressLines:
    """Shows the steps of a job; `is_terminal` is whether standard error is one."""

    def __init__(self, *, is_terminal: bool | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._clock = clock
        self._progress = JobProgress(clock)
        self._shown_at = 0.0
        self._is_open = False  # the step's end was not printed yet
        self._is_drawn = False  # the current line will be rewritten

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def arrived(self, news: object) -> None:
        """Show how much of a download has arrived."""
        if isinstance(news, Arrived):
            self.feed(Step(news.what, news.done, news.total or None, "bytes"))

    def feed(self, step: Step) -> None:
        """Show a step's progress."""
        before = self._progress.step
        begins = before is None or step.what != before.what
        if begins:
            self.finish()
            self._is_open = True
        self._progress.feed(step)
        if step.is_over:
            self.finish()
        else:
            self._write(0.0 if begins else _REDRAW_S if self._is_terminal else _EVERY_S)

    def tick(self) -> None:
        """Update the elapsed time while no progress arrives."""
        self._write(_TICK_S if self._is_terminal else _EVERY_S)

    def wait(self, text: str) -> None:
        """Show on a terminal what the job is waiting for before it reports progress."""
        if self._is_terminal:
            self._draw(text)

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self._clear()
        complain([labelled("note", text)])

    def finish(self) -> None:
        """Print the end of the last step if it was not printed yet; leaves the cursor at the start of a line."""
        self._clear()
        if self._is_open:
            self._is_open = False
            complain([said] if (said := self._progress.ended()) else [])

    def _write(self, after_s: float) -> None:
        """Show how far the step is, unless that was done less than so many seconds ago."""
        if not self._is_open or self._clock() - self._shown_at < after_s:
            return
        self._shown_at = self._clock()
        text = self._progress.running(bar=self._is_terminal)
        if self._is_terminal:
            self._draw(text)
        else:
            complain([text])

    def _draw(self, text: str) -> None:
        with suppress(OSError):
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            # The last column stays free: some terminals wrap as soon as it is written.
            sys.stderr.write(_CLEAR + encodable(text, sys.stderr)[: max(1, columns - 1)])
            sys.stderr.flush()
            self._is_drawn = True

    def _clear(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            with suppress(OSError):
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()
