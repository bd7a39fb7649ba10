"""Follows a run on standard output until it ends: plain lines, or the journal's own lines.

It also handles Ctrl-C: the first one asks the run to stop and save, the second one ends its process.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

import orjson

from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import (
    PREPARATION,
    AcceleratorReady,
    Alerted,
    BudgetSet,
    EpochEnded,
    Event,
    HostLost,
    InputMeasured,
    MirrorReported,
    Noticed,
    Phase,
    PhaseStarted,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    Steered,
    Steering,
    StopRequested,
    Translated,
)
from tpu_console.engine.runs.facts import conclude_killed
from tpu_console.engine.runs.follower import LogTail, StateReader, stall_of
from tpu_console.engine.runs.heartbeat import BEAT_S, HeartbeatWatch, Life, Liveness
from tpu_console.engine.runs.journal import JournalReader, decode
from tpu_console.engine.runs.run_directory import RunDirectory, is_removed
from tpu_console.engine.runs.state import RunState, best_epoch, fold
from tpu_console.engine.storage.paths import user_path

from ..terminal.output import complain, interrupts_call, say
from ..text.hosts import hosts_of, input_verdict, lost_text, slow_text, validating_text
from ..text.numbers import duration, plural, waiting_text
from ..text.outcome import resume_command
from ..text.run_lines import (
    backend_lines,
    crashed_lines,
    epoch_line,
    failed_lines,
    finished_lines,
    phase_line,
    progress_line,
    resumed_text,
    sample_line,
    settled,
    waiting_line,
)
from ..text.steering import (
    STOP_PENDING,
    WHY_SILENT,
    budget_text,
    mirror_text,
    silent_text,
    stall_text,
    steered_text,
    stop_text,
)
from ..text.tables import labelled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


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
    if reader.newer:
        complain(["Note: a newer tpu-console wrote this run; some of it is not shown. Update to see everything."])
    if reader.skipped:
        complain([f"Note: {plural(reader.skipped, 'line')} of the journal could not be read."])
    return INTERRUPTED if interrupts.happened else code


def _write_json(records: Records) -> None:
    """Write records as the journal holds them."""
    for record in records:
        with suppress(orjson.JSONEncodeError):  # nested more deeply than any event: only the reader accepts it
            sys.stdout.buffer.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


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


FIRST_SILENCE_S = 5.0
LONGEST_SILENCE_S = 30.0
"""A long epoch is reported after 5 s, then after ever longer silences up to this one."""


class PlainPrinter:
    """Turns the records of one run into lines."""

    def __init__(self, run: RunDirectory, clock: Callable[[], float] = time.time) -> None:
        self.state = RunState()  # so far
        self._run = run
        self._clock = clock
        self._quiet_since = clock()
        self._silence_s = FIRST_SILENCE_S
        self._is_training_reported = False
        self._earlier_s: Mapping[str, float] = {}  # in each phase before the run was resumed
        self._reported_step = -1
        self._best: EpochEnded | None = None
        self._wait_s = self._span_s = 0.0  # of the current epoch
        self._reported_limit = ""
        self._has_said_validating = False
        self._reported_slow: set[int] = set()
        self._silent_s = 0  # how long the run has not responded; 0 if it does
        self._is_stop_reported = False  # whether this silence was already reported with a pending stop
        self._is_full = False

    def feed(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        """Take journal records; return the lines to print."""
        lines = self._responding() if records else []
        for is_progress, group in groupby(records, lambda record: record.get("type") == "Progress"):
            batch = list(group)
            if is_progress:
                self.state = fold(self.state, batch)
                continue
            for record in batch:
                before, self.state = self.state, fold(self.state, [record])
                event = decode(record)
                if event is not None:
                    lines += self._lines(event, before)
        if lines:
            self._quiet_since = self._clock()
            self._silence_s = FIRST_SILENCE_S
        return lines

    def disk(self, waiting: int | None) -> list[str]:
        """Say that the disk has become full, and how many events wait in memory; None if it is not."""
        was_full, self._is_full = self._is_full, waiting is not None
        if waiting is None or was_full or self.state.end is not None:
            return []
        return [labelled("note", waiting_text(waiting))]

    def idle(self, life: Life | None = None) -> list[str]:
        """Return a line if the run stopped or began to respond, or if nothing was said for a while."""
        if self.state.end is not None:
            return []
        if life is not None and (lines := self._heard(life)) is not None:
            return lines
        now = self._clock()
        if now - self._quiet_since < self._silence_s:
            return []
        self._quiet_since = now
        self._silence_s = min(2 * self._silence_s, LONGEST_SILENCE_S)
        progress = self.state.progress
        if life is not None and (stalled := stall_of(self.state, life)) is not None:
            return [labelled("stalled", stall_text(stalled))]
        if self.state.phase != Phase.TRAINING or progress is None or progress.step == self._reported_step:
            return [waiting_line(self.state, now)]
        self._reported_step = progress.step
        return [progress_line(self.state)]

    def _heard(self, life: Life) -> list[str] | None:
        """Say whether the run responds; None if it does, as it did before."""
        if life.liveness is not Liveness.SILENT:
            lines = self._responding()
            return None if life.liveness is Liveness.DEAD or not lines else lines
        now = self._clock()
        first, self._silent_s = not self._silent_s, life.silent_s
        lines = []
        if first or now - self._quiet_since >= self._silence_s:
            lines.append(labelled("silent", silent_text(life.silent_s) + (f". {WHY_SILENT}" if first else "")))
            self._silence_s = FIRST_SILENCE_S if first else min(2 * self._silence_s, LONGEST_SILENCE_S)
            self._quiet_since = now
        if (life.stop_waits or self.state.stop is not None) and not self._is_stop_reported:
            self._is_stop_reported = True
            lines.append(labelled("stopping", STOP_PENDING))
        return lines

    def _responding(self) -> list[str]:
        """Say that the run responds again, if it did not before."""
        if not self._silent_s:
            return []
        seconds, self._silent_s, self._is_stop_reported = self._silent_s, 0, False
        self._quiet_since, self._silence_s = self._clock(), FIRST_SILENCE_S
        return [labelled("responding", f"again, after {duration(seconds)}")]

    def _lines(self, event: Event, before: RunState) -> list[str]:  # noqa: C901  one case an event
        """Return the lines for one event."""
        match event:
            case RunStarted():
                return [labelled("run", f"{self._run.run_id} in {user_path(self._run.path)}")]
            case RunResumed():
                self._is_training_reported = False
                self._earlier_s = self.state.phase_s
                self._best = self.state.best_epoch()
                return [labelled("resumed", resumed_text(event))]
            case PhaseStarted():
                lines = self._phase_ended(before) if event.phase != before.phase else []
                if event.phase == Phase.TRAINING and self.state.fit is not None and not self._is_training_reported:
                    self._is_training_reported = True
                    lines.append(labelled("training", settled(self.state.fit)))
                return lines
            case AcceleratorReady():
                return backend_lines(event)
            case InputMeasured():
                return self._measured(event)
            case HostLost():
                return [labelled("lost", lost_text(event))]
            case EpochEnded():
                return [self._epoch(event), *self._verdict()]
            case Translated():
                return [sample_line(sample) for sample in event.samples]
            case Noticed():
                return [labelled("note", event.message)]
            case StopRequested():
                return [labelled("stopping", stop_text(event))]
            case Steered():
                return [labelled("steered", steered_text(event))]
            case Alerted():
                return [labelled("alert", event.text)]
            case BudgetSet():
                return [labelled("budget", budget_text(event, self._clock()))]
            case MirrorReported():
                known = before.mirror
                is_news = known is None or known.problem != event.problem or event.left != known.left
                return [labelled("mirror", mirror_text(self.state))] if is_news else []
            case RunFinished():
                ended = self._phase_ended(before)
                return [*ended, *finished_lines(self.state, self._run, event.outcome, event.reason)]
            case _:
                return []

    def _phase_ended(self, before: RunState) -> list[str]:
        if before.phase not in (*PREPARATION, Phase.SAVING):
            return []
        seconds = self.state.phase_s[before.phase] - self._earlier_s.get(before.phase, 0.0)
        return [phase_line(before.phase, seconds, self.state)]

    def _epoch(self, event: EpochEnded) -> str:
        fit = self.state.fit
        so_far = [self._best, event] if self._best is not None else [event]
        monitor = self.state.metric(self.state.monitor)
        self._best = best_epoch(so_far, self.state.monitor, lowest=monitor.lower_is_better)
        waited = 100 * self._wait_s / self._span_s if self._span_s > 0 else None
        self._wait_s = self._span_s = 0.0
        return epoch_line(event, fit, is_best=self._best is event, waited_percent=waited)

    def _measured(self, event: InputMeasured) -> list[str]:
        """Add up the current epoch's waiting time; the rest of an ended epoch arrives after its end."""
        if self.state.epochs and event.epoch <= self.state.epochs[-1].epoch:
            return self._verdict()
        self._wait_s += event.wait_s
        self._span_s += event.span_s
        return []

    def _verdict(self) -> list[str]:
        """Say what limits the run if that has changed, whether much of it is validation, and which hosts are slow."""
        lines = []
        measured = self.state.input
        if measured is not None and measured.limit != self._reported_limit:
            self._reported_limit = measured.limit
            lines.append(labelled("input", input_verdict(measured)))
        if not self._has_said_validating and (text := validating_text(self.state, least=0.2)):
            self._has_said_validating = True
            lines.append(labelled("time", text))
        slow = [host for host in hosts_of(self.state).values() if host.behind]
        lines += [labelled("slow", slow_text(host)) for host in slow if host.process not in self._reported_slow]
        self._reported_slow = {host.process for host in slow}
        return lines
