"""Starts the process of a job of `engine.jobs.job`, reads its messages, and ends it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from tpu_console.engine.children import kill_with_children, start_module
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.messages import MessageReader, error_of, exit_cause
from tpu_console.engine.storage.files import make_private_folder, open_private
from tpu_console.engine.storage.paths import runs_folder, user_path

from ..terminal.output import complain, interrupts_call
from ..text.numbers import duration
from .progress import ProgressLines, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    Start = Callable[[str, Mapping[str, Any], Path], subprocess.Popen[bytes]]

_POLL_S = 0.2


class JobProcess:
    """A running job, one of `engine.jobs.job.JOBS`. Leaving its ``with`` block ends all its processes.

    It is ended by force after `limit_s`, or if it takes longer than `grace_s` to end after it was asked to; None sets
    no limit. `start` starts the process from name, options and the file for its standard error.

    Raises:
        ConsoleError: It cannot be started.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
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
        """Yield the job's progress and notes until it closes its output; an empty record while it is silent.

        It wakes up now and then to handle signals and enforce limits.
        """
        assert self._process.stdout is not None  # noqa: S101  opened as a pipe
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
            UntrustedCodeError: The job needs to run code that the user has not trusted.
            ConsoleError: The job failed, took too long, or its process died.
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
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1")}
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
                env=environment,
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
