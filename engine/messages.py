"""Starts and ends the processes that do this program's work, and passes on what they report: one JSON object per line.

Each message has a ``kind``: ``progress`` (``what``, ``done``, ``total`` or null, ``unit``), ``note`` (``text``), and at
the end ``result`` (the result's own keys) or ``error`` (``what``, ``why``, ``remedy``; ``error``, its class;
``has_log``, whether a traceback went to standard error). `Reporter` writes them, and `MessageReader` reads them.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any, TextIO

from .errors import ConsoleError, RunNotFoundError, UntrustedCodeError, one_line
from .sanitize import printable_values

NO_PLUGINS = ("PYDANTIC_DISABLE_PLUGINS", "true")
"""Set in the console, so that Pydantic does not search for plugins: reading the metadata of 270 packages takes 30 ms.
The processes that the console starts run the user's code, so they do search.
"""

FAILED, INTERRUPTED = 1, 130  # exit codes of a worker process without a result
_PROGRESS_EVERY_S = 0.1
_READ_BYTES = 1 << 16
_LONGEST_TEXT = 1 << 26  # a picture is a long text
_KINDS = {kind.__name__: kind for kind in (RunNotFoundError, UntrustedCodeError)}
"""Errors that the console treats differently, by the name of their class."""


def start_module(module: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a module of this package, such as ``engine.jobs.job``, in a process with a new session, or raise `OSError`.

    Ctrl-C and a hangup of the terminal therefore reach it only through this process. Its standard input is empty unless
    the options of `subprocess.Popen` say otherwise. The `-P` keeps the current folder off the front of the import path,
    so that a user's ``engine`` folder does not shadow ours.
    """
    environment = options.pop("env", os.environ)
    kept = {name: value for name, value in environment.items() if (name, value) != NO_PLUGINS}
    settings = {"stdin": subprocess.DEVNULL, "start_new_session": True, "env": kept, **options}
    return subprocess.Popen([sys.executable, "-P", "-m", f"tpu_console.{module}", *arguments], **settings)


def kill_with_children(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, by force."""
    try:
        os.killpg(process.pid, signal.SIGKILL)  # it leads its session
    except (ProcessLookupError, PermissionError):
        with suppress(ProcessLookupError):
            process.kill()


class Reporter:
    """Writes messages."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._written_at = 0.0
        self._what = ""

    def progress(self, what: str, done: int, total: int | None, unit: str) -> None:
        """Report how much of a step such as ``reading images`` is done; a `total` of None is unknown.

        It is written at most ten times per second, but the first and the last message of a step are never dropped.
        `unit` is in the plural; ``seconds`` if there is only the time.
        """
        now = time.monotonic()
        if what != self._what or done == total or now - self._written_at >= _PROGRESS_EVERY_S:
            self._written_at, self._what = now, what
            self._write({"kind": "progress", "what": what, "done": done, "total": total, "unit": unit})

    def note(self, text: str) -> None:
        """Report something that the user should know."""
        self._write({"kind": "note", "text": text})

    def result(self, values: Mapping[str, Any]) -> None:
        """Report the result."""
        self._write({**values, "kind": "result"})

    def error(self, error: ConsoleError, *, has_log: bool = False) -> None:
        """Report why there is no result."""
        values = {"what": error.what, "why": error.why, "remedy": error.remedy, "has_log": has_log}
        self._write({"kind": "error", "error": type(error).__name__, **values})

    def _write(self, values: dict[str, Any]) -> None:
        self._stream.write(json.dumps(values) + "\n")
        self._stream.flush()


def standard_output_reporter() -> Reporter:
    """Return a reporter that keeps standard output for messages: anything else printed there goes to standard error."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return Reporter(stream)


def end_with_parent() -> None:
    """End this process when its standard input is closed, as it is when the process that started it is gone."""

    def wait() -> None:
        while sys.stdin.buffer.read(1):
            pass
        os._exit(FAILED)

    threading.Thread(target=wait, name="tpu-console-parent", daemon=True).start()


def report_result(reporter: Reporter, name: str, work: Callable[[], Mapping[str, Any]]) -> int:
    """Do some work, report its result or its error, and return the exit code; errors call it `name`."""
    try:
        reporter.result(work())
    except ConsoleError as error:
        reporter.error(error)
        return FAILED
    except (KeyboardInterrupt, BrokenPipeError):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  a bug becomes a sentence, and its traceback goes to the log
        traceback.print_exc()
        text = f"Internal error in the {name}: {type(error).__name__}: {one_line(error)}"
        if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str):
            text = f"{error.filename}: {error.strerror}."
        reporter.error(ConsoleError(text), has_log=True)
        return FAILED
    return 0


class MessageReader:
    """Reads the messages of a worker process from its pipe; their texts are made safe to show."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        assert stream is not None  # noqa: S101  the process was started with a pipe
        self._stream = stream
        self._rest = b""

    def fileno(self) -> int:
        """Return the stream's descriptor, for `select`."""
        return self._stream.fileno()

    def read(self) -> list[dict[str, Any]] | None:
        """Wait for data and return the messages that are complete; None at the end."""
        data = os.read(self.fileno(), _READ_BYTES)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [printable_values(json.loads(line), _LONGEST_TEXT, keeps_lines=True) for line in lines]


def error_of(message: Mapping[str, Any], log: str) -> ConsoleError:
    """Return the error that an ``error`` message reports; `log` names the file with the process's standard error."""
    remedy = message["remedy"] or (f"Its log: {log}" if message.get("has_log") else "")
    kind = _KINDS.get(message.get("error", ""), ConsoleError)
    return kind(message["what"], why=message["why"], remedy=remedy)


def exit_cause(code: int) -> str:
    """Say in a sentence what ended a process, from its exit code."""
    if code == -signal.SIGKILL:
        return "It was killed, probably because memory ran out."
    if code >= 0:
        return f"Its exit code was {code}."
    return f"It was ended by {signal.Signals(-code).name if -code in {*signal.Signals} else f'signal {-code}'}."
