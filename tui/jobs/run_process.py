"""Starts a run for the console, and manages its training process or thread."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from tpu_console.engine.machine.devices import Hardware, detect_hardware
from tpu_console.engine.messages import kill_with_children
from tpu_console.engine.runs.events import RunFailed, RunSource
from tpu_console.engine.runs.heartbeat import Heartbeat, HeartbeatThread
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, all_or_nothing, cannot_begin

from ..terminal.output import send_native_output_to
from ..text.outcome import continue_changes

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.process.launch import WarmHost
    from tpu_console.engine.process.main import EngineThread

_JOIN_S = 0.5
_LAST_WORDS_S = 2.0
_LIFE_S = 60.0  # longest wait for the first event of a resumed run
_INTERRUPTED = 130


class HostedRun(Struct):
    """A run that trains in a separate process and outlives the console."""

    run: RunDirectory
    process: subprocess.Popen[bytes]  # the process, kept to notice its end and to leave no zombie

    def tend(self) -> bool:
        """Return whether the run is still training; clean up if it is not."""
        return self.process.poll() is None

    def release(self) -> None:
        """Let the run continue without the console."""
        self.process.poll()

    def kill(self) -> None:
        """End a process, with all that it started: by a signal that it can record, or else by force."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_LAST_WORDS_S)
        kill_with_children(self.process)
        with suppress(subprocess.TimeoutExpired):  # a driver may keep it from dying
            self.process.wait(_LAST_WORDS_S)


class InProcessRun(Struct):
    """A run that trains in a thread of the console and ends with it."""

    run: RunDirectory
    engine: EngineThread  # the thread that trains
    heartbeat: HeartbeatThread  # the thread that writes the heartbeat and reads requests
    journal: JournalWriter
    # The process's previous umask; while the run trains, TensorFlow's files are private to the user as well.
    umask: int | None = None

    def tend(self) -> bool:
        """Return whether the run is still training; clean up if it is not."""
        if self.engine.is_alive():
            return True
        self.release()
        return False

    def release(self) -> None:
        """Stop the heartbeat and close the journal; everything written so far is kept."""
        if self.heartbeat.is_alive():
            self.heartbeat.stop(_JOIN_S)
        self.journal.close()
        if self.umask is not None:
            os.umask(self.umask)
            self.umask = None

    def end(self, cause: str) -> None:
        """Write why the run ends, and release it, because a signal such as ``SIGTERM`` ends the console."""
        if self.engine.is_alive() and not self.journal.has_ended:
            what = f"The console that trained this run was ended by {cause} before the model was saved."
            why = "With --in-process, a run trains inside the console and ends with it."
            remedy = "The best checkpoint is kept. Without --in-process, runs continue when the console ends."
            self.journal.write(RunFailed(what, why, remedy, self.run.log.name))
        self.release()

    def kill(self) -> None:
        """End the run and, soon, this process."""
        self.end("a second Ctrl-C")
        atexit.register(exit_at_once, _INTERRUPTED)


def exit_at_once(code: int) -> None:
    """Exit before Python takes the process apart: native code of a thread that still trains may crash then."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def launch(
    config: RunConfig, *, in_process: bool, prewarmer: Prewarmer | None = None, label: str = ""
) -> HostedRun | InProcessRun:
    """Start training; takes a few hundredths of a second, because the rest happens in the training process or thread.

    The prewarmer may have a process that waits for the run. The run's label is its configuration's name by default.
    Raise `ConsoleError` if the run cannot be written or started, or its data cannot be downloaded.
    """
    from tpu_console.engine.data.kinds.table import kind_of
    from tpu_console.engine.data.places import reaches
    from tpu_console.engine.process.launch import prepare_run, start_host

    if (download := kind_of(config.dataset).missing_download(config)) is not None:
        download.check(reaches)
    run = prepare_run(config, label=label)
    if not in_process:
        return HostedRun(run, start_host(run, warm=prewarmer.take(config) if prewarmer is not None else None))
    with all_or_nothing(run):
        return train_here(run, config)


def train_here(run: RunDirectory, config: RunConfig, resumes: str | None = None) -> InProcessRun:
    """Train a prepared run in a thread of this process, or raise `ConsoleError`; `resumes` is that of `start_host`."""
    from tpu_console.engine.process.main import EngineThread

    try:
        send_native_output_to(run.log)
        journal = JournalWriter(run.journal)
        engine = EngineThread(run, config, journal, RunSource.IN_PROCESS, resumes)
        heartbeat = HeartbeatThread(Heartbeat(run, journal, engine.control))
    except OSError as error:
        raise cannot_begin(run.path.parent, error) from error
    umask = os.umask(0o077)
    heartbeat.start()
    engine.start()
    return InProcessRun(run, engine, heartbeat, journal, umask)


def launch_resumed(run: RunDirectory, *, trust: bool = False) -> HostedRun:
    """Resume a run in a process of its own, with the changes that its screen shows; wait until its journal says so.

    Raise `ConsoleError` if it still trains or cannot go on, and `UntrustedCodeError` if the user did not start it.
    """
    from tpu_console.engine.process.launch import prepare_resumption
    from tpu_console.engine.runs.follower import StateReader

    from ..following.follow import wait_for_life

    prepared = prepare_resumption(run, continue_changes(StateReader(run).catch_up()), trust=trust)
    hosted = HostedRun(run, prepared.start())
    wait_for_life(run, _LIFE_S, resumed=prepared.earlier + 1)
    return hosted


def machine_is_idle() -> bool:
    """Return whether this machine has the memory and the time to import a framework that may not be needed."""
    from tpu_console.engine.machine.environment import free_memory_bytes, usable_cores
    from tpu_console.engine.process.launch import may_warm

    return may_warm(free_memory_bytes(), os.getloadavg()[0], usable_cores())


class Prewarmer:
    """Starts, replaces and hands out a `WarmHost`. Its methods may be called from any thread."""

    def __init__(
        self, start: Callable[..., WarmHost] | None = None, is_idle: Callable[[], bool] = machine_is_idle
    ) -> None:
        self._start = start
        self._is_idle = is_idle
        self._lock = threading.Lock()
        self._host: WarmHost | None = None
        self._is_closed = False

    def want(self, config: RunConfig, hardware: Hardware) -> None:
        """Have a process ready for a configuration, unless the machine has something better to do."""
        from tpu_console.engine.accelerators.backend import choose_backend
        from tpu_console.engine.process.launch import WarmHost, launch_environment

        choice = choose_backend(config, hardware)
        needed, environment = choice.framework.environment(config), launch_environment()
        is_harmless = not choice.missing and not (choice.framework.takes_tpu_when_imported and hardware.tpu)
        with self._lock:
            if self._host is not None and self._host.fits(environment, needed):
                return
            self._end()
            if is_harmless and not self._is_closed and self._is_idle():
                self._host = (self._start or WarmHost.start)(environment, needed)

    def take(self, config: RunConfig) -> WarmHost | None:
        """Return the process if it is what a new one for a configuration would be."""
        from tpu_console.engine.accelerators.backend import choose_backend
        from tpu_console.engine.process.launch import launch_environment

        with self._lock:
            if self._host is None:
                return None
            framework = choose_backend(config, detect_hardware()).framework
            if not self._host.fits(launch_environment(), framework.environment(config)):
                self._end()
            host, self._host = self._host, None
            return host

    def close(self) -> None:
        """End the process that nobody took."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        if self._host is not None:
            self._host.end()
            self._host = None
