"""Follows a run on standard output until it ends: plain lines, or the journal's own lines.

It also handles Ctrl-C: the first one asks the run to stop and save, the second one ends its process.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import orjson

from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import RunFailed, RunFinished, Steering
from tpu_console.engine.runs.facts import conclude_killed
from tpu_console.engine.runs.follower import LogTail, StateReader
from tpu_console.engine.runs.heartbeat import BEAT_S
from tpu_console.engine.runs.journal import JournalReader, decode
from tpu_console.engine.runs.liveness import HeartbeatWatch, Liveness
from tpu_console.engine.runs.run_directory import is_removed

from ..terminal.interrupts import interrupts_call
from ..terminal.output import complain, say
from ..text.numbers import plural
from ..text.outcome import resume_command
from ..text.run_lines import crashed_lines, failed_lines
from .plain import PlainPrinter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory

POLL_S = 0.2

FINISHED, FAILED, INTERRUPTED = 0, 1, 130

Records = list[dict[str, Any]]


class Interrupts:
    """Ctrl-C and SIGTERM while a run is followed.

    The second Ctrl-C ends the training process. Without one, when only watching, the first one leaves and the run goes
    on.
    """

    def __init__(self, run: RunDirectory, kill: Callable[[], object] | None) -> None:
        self._run = run
        self._kill = kill
        self.leaves = False  # whether to stop following immediately
        self.happened = False  # whether there was a signal

    def hear(self, number: int) -> None:
        """Handle a signal."""
        again, self.happened = self.happened, True
        if self._kill is None:
            self.leaves = True
            complain([f"Detached; the run continues. To stop it: tpu-console stop {self._run.run_id}"])
        elif not again:
            self._ask()
        elif number == signal.SIGINT:
            self.leaves = True
            self._kill()
            complain([f"Killed {self._run.run_id}. To continue: {resume_command(self._run)}"])

    def _ask(self) -> None:
        try:
            ask(self._run, Steering.STOP, "requested with Ctrl-C")
        except OSError as error:
            complain([f"Cannot ask the run to stop: {error.strerror}. Press Ctrl-C again to kill it."])
        else:
            complain(["Stopping after the current steps, then saving. Press Ctrl-C again to kill the run."])


def follow(
    run: RunDirectory,
    *,
    as_json: bool = False,
    kill: Callable[[], object] | None = None,
    resumed: int = 0,
) -> int:
    """Print a run's progress to standard output until it ends.

    Args:
        run: The run.
        as_json: Write the journal's lines as they are, and nothing else.
        kill: Ends the training at once, if this command started it.
        resumed: How often the run has been resumed; what it did before the last time is not printed.

    Returns:
        The exit code.

    Raises:
        BrokenPipeError: The reader of standard output has gone.
        OSError: The journal cannot be read.
    """
    interrupts = Interrupts(run, kill)
    end: RunFinished | RunFailed | None = None
    printer = PlainPrinter(run)
    reader = JournalReader(run.journal)
    heartbeat, next_look = HeartbeatWatch(run), 0.0
    with interrupts_call(interrupts.hear):
        while not interrupts.leaves:
            # Liveness first: whatever was written until its death is then in the journal read after it.
            if (now := time.monotonic()) >= next_look:
                life, next_look = heartbeat.look(), now + BEAT_S
            read = reader.read()
            earlier, records, resumed = _since_resumed(read, resumed)
            printer.feed(earlier)
            if as_json:
                _write_json(records)
            elif not resumed:
                say([*printer.feed(records), *printer.disk(life.waiting), *printer.idle(life)])
            end = _end_of(records, end)
            if read:
                continue
            if end is not None or life.liveness is Liveness.DEAD:
                break
            time.sleep(POLL_S)
    if interrupts.leaves:
        return INTERRUPTED
    code = _conclude(run, end)
    _report_damage(reader)
    return INTERRUPTED if interrupts.happened else code


def _write_json(records: Records) -> None:
    """Write records as the journal holds them."""
    out = sys.stdout.buffer
    out.write(b"".join(map(_json_line, records)))
    out.flush()


def _json_line(record: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        return b""  # nested more deeply than any event: the reader accepts it, the writer does not


def _since_resumed(records: Records, times: int) -> tuple[Records, Records, int]:
    """Split records where the run was resumed so many times; return the rest of `times` too."""
    for place, record in enumerate(records if times else ()):
        times -= record["type"] == "RunResumed"
        if not times:
            return records[:place], records[place:], 0
    return (records, [], times) if times else ([], records, 0)


def _end_of(
    records: Sequence[Mapping[str, Any]], before: RunFinished | RunFailed | None
) -> RunFinished | RunFailed | None:
    """Return the last event of a run that ended and was not resumed since."""
    for record in reversed(records):
        if record["type"] == "RunResumed":
            return None
        if record["type"] in {"RunFinished", "RunFailed"}:
            event = decode(record)
            if isinstance(event, RunFinished | RunFailed):
                return event
    return before


def _conclude(run: RunDirectory, end: RunFinished | RunFailed | None) -> int:
    """Say on standard error what went wrong, if anything did; return the exit code."""
    if isinstance(end, RunFinished):
        return FINISHED
    if end is not None:
        lines = failed_lines(end, run)
    elif run.heartbeat.exists() or is_removed(run):
        conclude_killed(run, StateReader(run).catch_up())
        lines = crashed_lines(run, LogTail(run).read())
    else:
        lines = [f"{run.run_id} was created but never started."]
    complain([f"Error: {lines[0]}", *lines[1:]])
    return FAILED


def _report_damage(reader: JournalReader) -> None:
    if reader.newer:
        complain(["Note: a newer tpu-console wrote this run; some of it is not shown. Update to see everything."])
    if reader.skipped:
        complain([f"Note: {plural(reader.skipped, 'line')} of the journal could not be read."])


def wait_for_life(run: RunDirectory, limit_s: float, *, resumed: int = 0) -> Liveness:
    """Wait until a run that was just started, or resumed for the given time, has written its first event or died.

    Return ``ALIVE`` once it has written, ``DEAD`` if it died before, ``STARTING`` if neither happened.
    """
    deadline = time.monotonic() + limit_s
    reader = JournalReader(run.journal)
    heartbeat = HeartbeatWatch(run)
    while True:
        liveness = heartbeat.look().liveness
        while records := reader.read():
            resumed = _since_resumed(records, resumed)[2]
            if not resumed:
                return Liveness.ALIVE
        if liveness is Liveness.DEAD:
            return Liveness.DEAD
        if time.monotonic() >= deadline:
            return Liveness.STARTING
        time.sleep(POLL_S)
