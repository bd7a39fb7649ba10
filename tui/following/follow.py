"""Follows a run: on standard output until it ends, as plain lines or the journal's, and in a thread for a screen."""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from tpu_console.engine.runs import events
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import Phase
from tpu_console.engine.runs.facts import conclude_killed, summarized_facts
from tpu_console.engine.runs.follower import LogTail, RunFollower, Snapshot, StateReader, stall_of
from tpu_console.engine.runs.heartbeat import BEAT_S, HeartbeatWatch, Life, Liveness
from tpu_console.engine.runs.journal import JournalReader, Record, printable_line
from tpu_console.engine.runs.run_directory import RunDirectory, is_removed
from tpu_console.engine.runs.state import RunState, best_epoch, fold
from tpu_console.engine.storage.paths import user_path

from ..terminal.output import complain, interrupts_call, say
from ..text import hosts, run_lines
from ..text.numbers import duration, plural, waiting_text
from ..text.outcome import crashed_lines, failed_lines, finished_lines, resume_command
from ..text.tables import labelled, labelled_lines

FINISHED, FAILED, INTERRUPTED = 0, 1, 130
POLL_S = 0.2
FIRST_SILENCE_S, LONGEST_SILENCE_S = 5.0, 30.0
"""A long epoch is reported after the first, then after ever longer silences up to the second."""

FASTEST_S, SLOWEST_S = 0.5, 2.0
"""Shortest time in seconds between two snapshots if drawing is cheap, and if it is expensive."""

_SUMMARY_S = 5.0  # longest wait for it; of a million events it takes three
_LOOK_S = 0.1  # between two looks at the files' sizes
_LIVENESS_S = 1.0  # after which a run is looked at even though no file has changed
_SHARE = 0.02  # target share of one core for the console; the limit of the charts is in `tui.charts.chart`

Records = list[Record]


def follow(  # noqa: C901  one loop and its end
    run: RunDirectory,
    *,
    as_json: bool = False,
    kill: Callable[[], object] | None = None,
    resumed: int = 0,
    pause: Callable[[float], object] = time.sleep,
) -> int:
    """Print a run's progress until it ends, or with `as_json` the journal's lines as they are; return the exit code.

    `kill` ends the run immediately, if this command started it. The first Ctrl-C or SIGTERM then asks it to stop and
    save, and a second Ctrl-C kills it; otherwise, the first one only leaves. `resumed` is how often the run has been
    resumed; what it did before the last time is not printed.
    """
    heard, most_heard = list[int](), 0 if kill is None else 1
    end: events.RunFinished | events.RunFailed | None = None
    printer, reader = PlainPrinter(run), JournalReader(run.journal)
    heartbeat, next_look = HeartbeatWatch(run), 0.0
    with interrupts_call(lambda number: _hear(heard, number, run, kill)):
        while len(heard) <= most_heard:
            # Liveness first: whatever was written until its death is then in the journal read after it.
            if (now := time.monotonic()) >= next_look:
                life, next_look = heartbeat.look(), now + BEAT_S
            read = reader.read()
            if read and isinstance(read[-1].event, events.RunFinished):
                _wait_for_summary(run, heartbeat, pause)
            earlier, records, resumed = _since_resumed(read, resumed)
            printer.feed(earlier)
            if as_json:
                for record in records:
                    with suppress(ValueError):  # nested more deeply than any event
                        sys.stdout.buffer.write(printable_line(record.line))
                sys.stdout.buffer.flush()
            elif not resumed:
                say([*printer.feed(records), *printer.disk(life.waiting), *printer.idle(life)])
            for record in records:
                if isinstance(record.event, events.RunFinished | events.RunFailed | events.RunResumed):
                    end = None if isinstance(record.event, events.RunResumed) else record.event
            if read:
                continue
            if end is not None or life.liveness is Liveness.DEAD:
                break
            pause(POLL_S)
    if len(heard) > most_heard:
        return INTERRUPTED
    if not isinstance(end, events.RunFinished):
        lines = [f"{run.run_id} was created but never started."]
        if end is not None:
            lines = failed_lines(end, run)
        elif run.heartbeat.exists() or is_removed(run):
            conclude_killed(run, StateReader(run).catch_up())
            lines = crashed_lines(run, LogTail(run).read())
        complain([f"Error: {lines[0]}", *lines[1:]])
    if reader.newer:
        complain(["Note: a newer tpu-console wrote this run; some of it is not shown. Update to see everything."])
    if reader.skipped:
        complain([f"Note: {plural(reader.skipped, 'line')} of the journal could not be read."])
    return INTERRUPTED if heard else FINISHED if isinstance(end, events.RunFinished) else FAILED


def _wait_for_summary(run: RunDirectory, heartbeat: HeartbeatWatch, pause: Callable[[float], object]) -> None:
    """Wait until a run that has just ended has written its summary, which its last lines list."""
    deadline = time.monotonic() + _SUMMARY_S
    while summarized_facts(run) is None and heartbeat.look().liveness is Liveness.ALIVE:
        if time.monotonic() >= deadline:
            return
        pause(POLL_S)


def _hear(heard: list[int], number: int, run: RunDirectory, kill: Callable[[], object] | None) -> None:
    """Handle a signal, which is added to those that were heard; SIGTERM never kills, however often it comes."""
    if heard and kill is not None and number != signal.SIGINT:
        return
    heard.append(number)
    if kill is None:
        complain([f"Detached; the run continues. To stop it: tpu-console stop {run.run_id}"])
    elif len(heard) > 1:
        kill()
        complain([f"Killed {run.run_id}. To continue: {resume_command(run)}"])
    else:
        try:
            ask(run, events.Steering.STOP, "requested with Ctrl-C")
            complain(["Stopping after the current steps, then saving. Press Ctrl-C again to kill the run."])
        except OSError as error:
            complain([f"Cannot ask the run to stop: {error.strerror}. Press Ctrl-C again to kill it."])


def _since_resumed(records: Records, times: int) -> tuple[Records, Records, int]:
    """Split records where the run was resumed so many times; return the rest of `times` too."""
    for place, record in enumerate(records if times else ()):
        times -= isinstance(record.event, events.RunResumed)
        if not times:
            return records[:place], records[place:], 0
    return (records, [], times) if times else ([], records, 0)


def wait_for_life(run: RunDirectory, limit_s: float, *, resumed: int = 0) -> Liveness:
    """Wait until a run that was just started has written an event (``ALIVE``) or is ``DEAD``; else ``STARTING``.

    `resumed` is how often it has been resumed: what it wrote before the last time does not count.
    """
    deadline, reader, heartbeat = time.monotonic() + limit_s, JournalReader(run.journal), HeartbeatWatch(run)
    while True:
        liveness = heartbeat.look().liveness
        while records := reader.read():
            if not (resumed := _since_resumed(records, resumed)[2]):
                return Liveness.ALIVE
        if liveness is Liveness.DEAD:
            return Liveness.DEAD
        if time.monotonic() >= deadline:
            return Liveness.STARTING
        time.sleep(POLL_S)


class PlainPrinter:
    """Turns the records of one run into lines."""

    def __init__(self, run: RunDirectory, clock: Callable[[], float] = time.time) -> None:
        self.state = RunState()  # so far
        self._run = run
        self._clock = clock
        self._quiet_since, self._silence_s = clock(), FIRST_SILENCE_S
        self._earlier_s: Mapping[str, float] = {}  # in each phase before the run was resumed
        self._best: events.EpochEnded | None = None
        self._wait_s = self._span_s = 0.0  # of the current epoch
        self._silent_s = 0  # how long the run has not responded; 0 if it does
        self._slow: set[int] = set()  # hosts
        self._known: dict[str, object] = {}  # what was printed last, by subject

    def _is_news(self, subject: str, value: object) -> bool:
        """Return whether a value differs from what was printed last of its subject, and keep it."""
        before, self._known[subject] = self._known.get(subject), value
        return before != value

    def feed(self, records: Sequence[Record]) -> list[str]:
        """Take journal records; return the lines to print."""
        lines = self._responding() if records else []
        for is_progress, group in groupby(records, lambda record: isinstance(record.event, events.Progress)):
            batch = list(group)
            if is_progress:
                self.state = fold(self.state, batch)
                continue
            for record in batch:
                before, self.state = self.state, fold(self.state, [record])
                if (event := record.event) is not None:
                    lines += self._lines(event, before)
        if lines:
            self._quiet_since, self._silence_s = self._clock(), FIRST_SILENCE_S
        return lines

    def disk(self, waiting: int | None) -> list[str]:
        """Say that the disk has become full, and how many events wait in memory; None if it is not."""
        is_news = self._is_news("disk", waiting is not None) and self.state.end is None
        return [labelled("note", waiting_text(waiting))] if is_news and waiting is not None else []

    def idle(self, life: Life | None = None) -> list[str]:
        """Return a line if the run stopped or began to respond, or if nothing was said for a while."""
        if self.state.end is not None:
            return []
        if life is not None and life.liveness is Liveness.SILENT:
            return self._silent(life)
        if life is not None and life.liveness is not Liveness.DEAD and (lines := self._responding()):
            return lines
        if not self._is_due():
            return []
        progress = self.state.progress
        if life is not None and (stalled := stall_of(self.state, life)) is not None:
            return [labelled("stalled", run_lines.stall_text(stalled))]
        if self.state.phase == Phase.TRAINING and progress is not None and self._is_news("step", progress.step):
            return [run_lines.progress_line(self.state)]
        return [run_lines.waiting_line(self.state, self._clock())]

    def _is_due(self) -> bool:
        """Return whether nothing was said for a while; then the next pause is twice as long."""
        now = self._clock()
        if now - self._quiet_since < self._silence_s:
            return False
        self._quiet_since, self._silence_s = now, min(2 * self._silence_s, LONGEST_SILENCE_S)
        return True

    def _silent(self, life: Life) -> list[str]:
        """Say now and then that the run does not respond, and once that it was asked to stop."""
        lines, why = [], "" if self._silent_s else f". {run_lines.WHY_SILENT}"
        if not self._silent_s:
            self._quiet_since, self._silence_s = -math.inf, FIRST_SILENCE_S / 2
        self._silent_s = life.silent_s
        if self._is_due():
            lines.append(labelled("silent", f"{run_lines.silent_text(life.silent_s)}{why}"))
        if (life.stop_waits or self.state.stop is not None) and self._is_news("stop", True):
            lines.append(labelled("stopping", run_lines.STOP_PENDING))
        return lines

    def _responding(self) -> list[str]:
        """Say that the run responds again; nothing if it did not stop to."""
        seconds, self._silent_s, self._known["stop"] = self._silent_s, 0, None
        if not seconds:
            return []
        self._quiet_since, self._silence_s = self._clock(), FIRST_SILENCE_S
        return [labelled("responding", f"again, after {duration(seconds)}")]

    def _lines(self, event: events.Event, before: RunState) -> list[str]:  # noqa: C901  one case an event
        """Return the lines for one event."""
        match event:
            case events.RunStarted():
                return [labelled("run", f"{self._run.run_id} in {user_path(self._run.path)}")]
            case events.RunResumed():
                self._known["training"] = None
                self._earlier_s, self._best = self.state.phase_s, self.state.best_epoch()
                return [labelled("resumed", run_lines.resumed_text(event))]
            case events.PhaseStarted():
                lines = self._phase_ended(before) if event.phase != before.phase else []
                fit = self.state.fit if event.phase == Phase.TRAINING else None
                if fit is not None and self._is_news("training", True):
                    lines.append(labelled("training", run_lines.settled(fit)))
                return lines
            case events.AcceleratorReady():
                why = f"{hosts.backend_name(event)} ({event.backend_reason})" if event.backend_reason else ""
                return labelled_lines([("backend", why), ("topology", event.topology)])
            case events.InputMeasured() if self.state.epochs and event.epoch <= self.state.epochs[-1].epoch:
                return self._verdict()  # the rest of an ended epoch arrives after its end
            case events.InputMeasured():
                self._wait_s += event.wait_s
                self._span_s += event.span_s
                return []
            case events.HostLost():
                return [labelled("lost", hosts.lost_text(event))]
            case events.EpochEnded():
                so_far = [self._best, event] if self._best is not None else [event]
                monitor = self.state.metric(self.state.monitor)
                self._best = best_epoch(so_far, self.state.monitor, lowest=monitor.lower_is_better)
                waited = 100 * self._wait_s / self._span_s if self._span_s > 0 else None
                self._wait_s = self._span_s = 0.0
                line = run_lines.epoch_line(event, self.state.fit, is_best=self._best is event, waited_percent=waited)
                return [line, *self._verdict()]
            case events.Translated():
                pairs = [(f"{one.source} → {one.predicted or '…'}", one.expected) for one in event.samples]
                return [labelled("sample", f"{text}  (expected: {expected})") for text, expected in pairs]
            case events.Noticed():
                return [labelled("note", event.message)]
            case events.StopRequested():
                return [labelled("stopping", run_lines.stop_text(event))]
            case events.Steered():
                return [labelled("steered", run_lines.steered_text(event))]
            case events.Alerted():
                return [labelled("alert", event.text)]
            case events.BudgetSet():
                return [labelled("budget", run_lines.budget_text(event, self._clock()))]
            case events.MirrorReported() if self._is_news("mirror", (event.problem, event.left)):
                return [labelled("mirror", run_lines.mirror_text(self.state))]
            case events.RunFinished():
                return [*self._phase_ended(before), *finished_lines(self.state, self._run, event)]
            case _:
                return []

    def _phase_ended(self, before: RunState) -> list[str]:
        if before.phase not in (*events.PREPARATION, Phase.SAVING):
            return []
        seconds = self.state.phase_s[before.phase] - self._earlier_s.get(before.phase, 0.0)
        return [labelled(before.phase, f"{duration(seconds):>6}  {run_lines.found(before.phase, self.state)}")]

    def _verdict(self) -> list[str]:
        """Say what limits the run if that has changed, whether much of it is validation, and which hosts are slow."""
        lines, measured = [], self.state.input
        if measured is not None and measured.limit and self._is_news("limit", measured.limit):
            lines.append(labelled("input", hosts.input_verdict(measured)))
        if (text := hosts.validating_text(self.state, least=0.2)) and self._is_news("validating", True):
            lines.append(labelled("time", text))
        slow = [host for host in hosts.hosts_of(self.state).values() if host.behind]
        lines += [labelled("slow", hosts.slow_text(host)) for host in slow if host.process not in self._slow]
        self._slow = {host.process for host in slow}
        return lines


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
            self._stopped.wait(_LOOK_S)

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
        if sizes == self._seen and now - self._looked_at < _LIVENESS_S:
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
