"""Starts the process of a job of `engine.jobs.job`, shows how far it is, and ends it.

On a terminal, one line of standard error is rewritten in place; in a pipe there is a plain line now and then.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from tpu_console.engine.data.places import Arrived
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.messages import MessageReader, error_of, exit_cause, kill_with_children, start_module
from tpu_console.engine.storage.files import make_private_folder, open_private
from tpu_console.engine.storage.paths import runs_folder, user_path

from ..terminal.output import complain, encodable, interrupts_call
from ..text.numbers import duration, size, whole_duration
from ..text.tables import labelled

if TYPE_CHECKING:
    Start = Callable[[str, Mapping[str, Any], Path], subprocess.Popen[bytes]]

_POLL_S = 0.2
_EVERY_S = 5.0  # longest time between two lines in a pipe while there is progress
_REDRAW_S = 0.1
_TICK_S = 0.5
_SETTLED_S = 0.5  # how long a step runs before its rate is meaningful
_BAR_CELLS = 24
_CLEAR = "\r\x1b[K"


class Step(Struct, frozen=True):
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
        """Say how far the step is, its rate since it began, and what is left; while nothing moves, for how long."""
        if (step := self.step) is None:
            return ""
        seconds, moved = self._clock() - self._began_at, step.done - self._began_with
        parts = [] if step.only_takes_time else [step.share]
        if seconds >= _SETTLED_S:
            rate = f"{step.amount(moved / seconds)}/s" if moved > 0 else f"{duration(seconds)} so far"
            parts.append(duration(seconds) if step.only_takes_time else rate)
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


class JobProcess:
    """A running job, one of `engine.jobs.job.JOBS`. Leaving its ``with`` block ends all its processes.

    It is ended by force after `limit_s`, or if it takes longer than `grace_s` to end after it was asked to; None sets
    no limit. `start` starts the process from name, options and the file for its standard error, or raises
    `ConsoleError`.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        *,
        limit_s: float | None = None,
        grace_s: float | None = None,
        start: Start | None = None,
    ) -> None:
        self._name, self._log = name, log_file(name)
        self._limit_s, self._grace_s = limit_s, grace_s
        self._began_at = time.monotonic()
        self._asked_at: float | None = None
        self._is_late = False
        self._last: dict[str, Any] = {}
        self._process = (start or start_job)(name, options, self._log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
            self._process.wait()
        for stream in filter(None, (self._process.stdin, self._process.stdout)):
            stream.close()

    @property
    def was_asked_to_end(self) -> bool:
        """Whether somebody asked it to end."""
        return self._asked_at is not None

    def ask_to_end(self) -> None:
        """Ask it to end and return what it has finished."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        self._process.terminate()

    def kill(self) -> None:
        """End it and all processes that it started, by force."""
        kill_with_children(self._process)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the job's progress and notes until it closes its output; now and then an empty record while silent."""
        reader = MessageReader(self._process.stdout)
        while (messages := reader.read() if select.select([reader], [], [], _POLL_S)[0] else [{}]) is not None:
            for record in messages:
                if record.get("kind") in {"result", "error"}:
                    self._last = record
                else:
                    yield record
            now = time.monotonic()
            if self._limit_s is not None and now - self._began_at > self._limit_s:
                self._is_late = True
                self.kill()
            elif self._grace_s is not None and self._asked_at is not None and now - self._asked_at > self._grace_s:
                self.kill()

    def result(self) -> dict[str, Any]:
        """Wait for the job to end and return its result.

        Raises:
            ConsoleError: The job failed, took too long, its process died, or it needs code that is not trusted.
            KeyboardInterrupt: It was asked to end, and has no result.
        """
        code = self._process.wait()
        kind, see = self._last.pop("kind", ""), f"Log: {user_path(self._log)}"
        if kind == "result":
            return self._last
        if self.was_asked_to_end:
            raise KeyboardInterrupt
        if self._is_late and self._limit_s is not None:
            text = f"The {self._name} job had no result after {duration(self._limit_s)} and was stopped."
            raise ConsoleError(text, remedy=see)
        if kind == "error":
            raise error_of(self._last, user_path(self._log))
        text = f"The process of the {self._name} job ended without a result."
        raise ConsoleError(text, why=exit_cause(code), remedy=see)


def log_file(name: str) -> Path:
    """Return the file with the output of a job's last process."""
    return runs_folder().parent / f"{name}.log"


def start_job(name: str, options: Mapping[str, Any], log: Path) -> subprocess.Popen[bytes]:
    """Start the job's process; raise `ConsoleError` if it cannot be started."""
    try:
        make_private_folder(log.parent)
        with open(log, "wb", opener=lambda path, flags: open_private(path, flags | os.O_APPEND)) as errors:
            return start_module(
                "engine.jobs.job",
                name,
                json.dumps(options),
                stdin=subprocess.PIPE,  # the job ends when it is closed, as it is by the end of this process
                stdout=subprocess.PIPE,
                stderr=errors,
                env={"TF_CPP_MIN_LOG_LEVEL": "1"} | os.environ,
            )
    except OSError as error:
        raise ConsoleError(f"The process of the {name} job cannot be started: {error.strerror}.") from error


def run_job(
    name: str,
    options: Mapping[str, Any],
    when_interrupted: str = "Nothing was written.",
    start: Start | None = None,
    *,
    limit_s: float | None = None,
    grace_s: float | None = None,
) -> dict[str, Any]:
    """Run one of `engine.jobs.job.JOBS` with its keyword arguments, and return its result.

    Ctrl-C and SIGTERM ask its process to end, once; a second Ctrl-C ends it by force. `when_interrupted` then says what
    is kept. The other arguments are those of `JobProcess`, and errors are those of its `result`.
    """
    with ExitStack() as stack:
        shown = stack.enter_context(ProgressLines())
        shown.wait("starting…")
        job = stack.enter_context(JobProcess(name, options, limit_s=limit_s, grace_s=grace_s, start=start))
        if threading.current_thread() is threading.main_thread():

            def hear(number: int) -> None:
                if not job.was_asked_to_end:
                    job.ask_to_end()
                elif number == signal.SIGINT:
                    job.kill()

            stack.enter_context(interrupts_call(hear))
        for record in job.records():
            match record.get("kind"):
                case "progress":
                    shown.feed(Step.of(record))
                case "note":
                    shown.note(record["text"])
                case _:
                    shown.tick()
        try:
            return job.result()
        except KeyboardInterrupt:
            shown.finish()
            complain([f"Interrupted. {when_interrupted}"])
            raise
