"""Work that needs TensorFlow and is no run: converting, inspecting, predicting.

`python -P -m tpu_console.engine.jobs.job NAME OPTIONS` does it in its own process and writes JSON objects to standard
output, one per line, each with a ``kind``: ``progress`` (``what``, ``done``, ``total`` or null, ``unit``), ``note``
(``text``), and at the end ``result`` (whatever the job returns) or ``error`` (``what``, ``why``, ``remedy``,
``has_log``, whether a traceback went to standard error, and ``needs_trust``, whether the user may choose to trust a
model). OPTIONS is a JSON object, the keyword arguments of the job's `perform`. Whatever native code prints goes to
standard error.

SIGINT and SIGTERM end a job with what it finished; a job that can go on later does when it is started again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError, UntrustedCodeError, one_line

if TYPE_CHECKING:
    from types import FrameType
    from typing import TextIO

JOBS = {
    "tfrecord": "tpu_console.engine.jobs.converting.tfrecord",
    "inspect": "tpu_console.engine.jobs.inspecting.inspect",
    "predict": "tpu_console.engine.jobs.predicting.predict",
    "preflight": "tpu_console.engine.jobs.preflighting.preflight",
    "estimate": "tpu_console.engine.jobs.preflighting.estimate",
}
"""Module of each job; its `perform(reporter, **options)` returns the result as plain values."""

FAILED, INTERRUPTED = 1, 130
_EVERY_S = 0.1


class Reporter:
    """Tells how far a job is.

    Args:
        stream: Where to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._told_at = 0.0
        self._told = ""

    def progress(self, what: str, done: int, total: int | None, unit: str) -> None:
        """Tell progress, at most ten times a second; the first and the last of something always.

        Args:
            what: What is being done, such as ``reading images``.
            done: How much is done.
            total: Of how much; None when that is not known.
            unit: Of what, in the plural.
        """
        now = time.monotonic()
        if what != self._told or done == total or now - self._told_at >= _EVERY_S:
            self._told_at, self._told = now, what
            self._write({"kind": "progress", "what": what, "done": done, "total": total, "unit": unit})

    def note(self, text: str) -> None:
        """Tell something that a person should know."""
        self._write({"kind": "note", "text": text})

    def result(self, values: dict[str, Any]) -> None:
        """Tell the result."""
        self._write({**values, "kind": "result"})

    def error(
        self, what: str, why: str = "", remedy: str = "", *, has_log: bool = False, needs_trust: bool = False
    ) -> None:
        """Tell why there is none."""
        values = {"what": what, "why": why, "remedy": remedy, "has_log": has_log, "needs_trust": needs_trust}
        self._write({"kind": "error", **values})

    def _write(self, values: dict[str, Any]) -> None:
        self._stream.write(json.dumps(values) + "\n")
        self._stream.flush()


def main(arguments: list[str]) -> int:
    """Do the job of a name; return the exit code."""
    # Standard output is kept for what the job says: whatever prints to it meanwhile goes to standard error.
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    reporter = Reporter(said)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell has its background jobs ignore the first
        signal.signal(number, _interrupt)
    name, options = arguments
    # Jobs read and feed data with TensorFlow; on TPU runtimes the variable often says jax.
    os.environ["KERAS_BACKEND"] = "tensorflow"
    try:
        reporter.result(import_module(JOBS[name]).perform(reporter, **json.loads(options)))
    except ConsoleError as error:
        needs_trust = isinstance(error, UntrustedCodeError)
        reporter.error(error.what, error.why, error.remedy, needs_trust=needs_trust)
        return FAILED
    except (KeyboardInterrupt, BrokenPipeError):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  a bug is told in a sentence, and its traceback goes to the log
        traceback.print_exc()
        text = f"The {name} job met a mistake of its own: {type(error).__name__}: {one_line(error)}"
        reporter.error(text, has_log=True)
        return FAILED
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
