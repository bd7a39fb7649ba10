"""Runs a job of `engine.job` in a process of its own, and shows on standard error how far it is."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine.errors import ConsoleError
from engine.paths import runs_folder, user_path
from tui.output import complain, speaks_utf8
from tui.progress import ProgressLines, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import FrameType

_POLL_S = 0.2
_READ_BYTES = 1 << 16


def run_job(
    name: str,
    options: Mapping[str, Any],
    when_interrupted: str = "Nothing was written.",
    start: Callable[[str, Mapping[str, Any], Path], subprocess.Popen[bytes]] | None = None,
) -> dict[str, Any]:
    """Do a job and return its result.

    Ctrl-C and SIGTERM ask its process to end, once; a second Ctrl-C ends it by force.

    Args:
        name: One of `engine.job.JOBS`.
        options: The keyword arguments of the job's `perform`, as JSON can hold them.
        when_interrupted: The sentence that says what is kept when it is interrupted.
        start: Starts the process from name, options and the file for its standard error; `start_job` by default.

    Returns:
        What the job returned.

    Raises:
        ConsoleError: The job said why it failed, or its process is gone without a word.
        KeyboardInterrupt: It was interrupted; the person has been told.
    """
    log = log_file(name)
    shown = ProgressLines()
    shown.wait("starting…" if speaks_utf8() else "starting")
    process = (start or start_job)(name, options, log)
    with _Interrupts(process).heard() as interrupts, _never_left_behind(process):
        last: dict[str, Any] = {}
        for record in _records(process):
            match record.get("kind"):
                case "progress":
                    shown.feed(Step(record["what"], record["done"], record["total"], record["unit"]))
                case "note":
                    shown.note(record["text"])
                case _:
                    last = record
        code = process.wait()
    shown.finish()
    kind = last.pop("kind", "")
    if kind == "result":
        return last
    if interrupts.count:
        complain([f"Interrupted. {when_interrupted}"])
        raise KeyboardInterrupt
    if kind == "error":
        raise ConsoleError(last["what"], why=last["why"], remedy=last["remedy"] or _remedy(last, log))
    raise ConsoleError(f"The process of the {name} job ended without a result.", why=_cause(code), remedy=_see(log))


def log_file(name: str) -> Path:
    """Return the file that holds what a job's process printed the last time."""
    return runs_folder().parent / f"{name}.log"


def start_job(name: str, options: Mapping[str, Any], log: Path) -> subprocess.Popen[bytes]:
    """Start the job's process.

    It is in a session of its own, so that the terminal's Ctrl-C reaches it only through us. The `-P` keeps the
    current folder off the front of the import path, where a person's own ``engine`` folder would hide ours.

    Raises:
        ConsoleError: It cannot be started.
    """
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1")}
    try:
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(log, "wb", opener=lambda path, flags: os.open(path, flags | os.O_APPEND, 0o600)) as errors:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "engine.job", name, json.dumps(options)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env=environment,
            )
    except OSError as error:
        raise ConsoleError(f"The process of the {name} job cannot be started: {error.strerror}.") from error


def _records(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Read what the job says until it has closed its end; wakes up now and then, so that signals are heard."""
    assert process.stdout is not None  # noqa: S101  it was asked for
    descriptor = process.stdout.fileno()
    rest = b""
    while True:
        if not select.select([descriptor], [], [], _POLL_S)[0]:
            continue
        data = os.read(descriptor, _READ_BYTES)
        *lines, rest = (rest + data).split(b"\n")
        yield from (json.loads(line) for line in lines)
        if not data:
            return


class _Interrupts:
    """Ctrl-C and SIGTERM while a job works.

    Args:
        process: The job's process.

    Attributes:
        count: How many there were.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.count = 0

    def hear(self, number: int, _frame: FrameType | None = None) -> None:
        """Ask the process to end; end it by force when Ctrl-C comes again."""
        self.count += 1
        if self.count == 1:
            self._process.terminate()
        elif number == signal.SIGINT:
            self._process.kill()

    @contextmanager
    def heard(self) -> Iterator[_Interrupts]:
        """Hear the signals while the block runs; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self.hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _never_left_behind(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the process should the block fail."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _remedy(error: Mapping[str, Any], log: Path) -> str:
    return _see(log) if error.get("has_log") else ""


def _see(log: Path) -> str:
    return f"Its log: {user_path(log)}"


def _cause(code: int) -> str:
    if code == -signal.SIGKILL:
        return "It was ended by force, as systems do when memory runs out."
    return f"It was ended by {signal.Signals(-code).name}." if code < 0 else f"Its exit code was {code}."
