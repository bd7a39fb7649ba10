"""The process that trains a run: ``python -P -m tpu_console.engine.process.main RUN_DIRECTORY [CHECKPOINT]``.

With a checkpoint's name, or an empty one, it goes on with a run that was interrupted. The main thread writes the
heartbeat and handles signals and requests; the engine thread trains. SIGHUP is ignored, so that closing the terminal
does not end the run. The first SIGINT or SIGTERM asks the run to stop and save; the second ends the process
immediately. A process that SIGTERM asked ends after 18 seconds, because its machine may soon be gone, unless several
hosts have to stop together.

With ``--warm VARIABLES`` it first imports what a run needs, at low priority, and connects nothing, so that a run that
is not known yet starts without that delay. Its standard input is a socket: the run comes through it, with its log and
lock, and with its end the process ends, also if the console is killed.
"""

import atexit
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ..accelerators.backend import importing
from ..config.reading import load_config
from ..config.run_config import RunConfig
from ..errors import ConfigError
from ..runs.control import Control
from ..runs.events import RunFailed, RunFinished, RunOutcome, RunSource
from ..runs.facts import conclude, write_history
from ..runs.failures import explain
from ..runs.follower import StateReader
from ..runs.heartbeat import TICK_S, Heartbeat
from ..runs.journal import JournalWriter
from ..runs.run_directory import RunDirectory, discard_leftovers
from .launch import WARM

OK, FAILED = 0, 1
_STDIN, _STDOUT, _STDERR = range(3)
_LONGEST_EXIT_S = 5.0
_LONGEST_STOP_S = 18.0
_NICENESS = 10
_LARGEST_MESSAGE = 1 << 16
_NEEDED = (
    *("training.train", "training.bridge", "training.checkpoints", "training.class_scoring", "training.steering"),
    *("accelerators.backend", "data.kinds.table", "input.pipeline", "models.build", "models.compile"),
    *("monitoring.alerts", "monitoring.sampler"),
)


class EngineThread(threading.Thread):
    """Builds, compiles, fits and saves one configuration in the background, here or in the console.

    A process that ends does not wait for this daemon thread. An exception becomes the run's last event. `resumes` is
    that of `launch.start_host`; `importing` is a thread that already imports the framework.
    """

    def __init__(
        self,
        run: RunDirectory,
        config: RunConfig,
        journal: JournalWriter,
        source: RunSource,
        resumes: str | None = None,
        importing: threading.Thread | None = None,
    ) -> None:
        super().__init__(name="tpu-console-engine", daemon=True)
        self.control = Control()
        self.succeeded = False  # whether the run has finished
        self._run, self._config, self._journal = run, config, journal
        self._source, self._resumes, self._importing = source, resumes, importing

    def run(self) -> None:
        """Train; never raises."""
        if self._importing is not None:
            self._importing.join()
        # Imported here, in the thread, because it loads TensorFlow and Keras.
        from ..training.train import train_and_report

        self.succeeded = train_and_report(
            self._run, self._config, self._journal, self.control, source=self._source, resumes=self._resumes
        )


def main(arguments: list[str], importing: threading.Thread | None = None) -> int:
    """Train the run that the command line names; return the exit code. A thread may already import the framework."""
    os.umask(0o077)
    faulthandler.enable(_STDERR, all_threads=False)  # if native code crashes, the log names the signal
    run = RunDirectory(Path(arguments[0]))
    discard_leftovers(run)
    journal = JournalWriter(run.journal)
    resumes = arguments[1] if len(arguments) > 1 else None
    try:
        engine = EngineThread(run, load_config(run.config), journal, RunSource.PROCESS, resumes, importing)
        heartbeat = Heartbeat(run, journal, engine.control)
    except (ConfigError, OSError) as error:
        failed = explain(error, run.log.name)
        if isinstance(error, ConfigError):
            failed = RunFailed(str(error), "", "Correct the configuration and start again.", run.log.name)
        journal.write(failed)
        journal.close()
        return FAILED
    ended_by = _handle_signals(engine)
    engine.start()
    while engine.is_alive() and not ended_by:
        engine.join(TICK_S)
        try:
            heartbeat.tick()
        except OSError as error:
            with suppress(OSError):  # the log may be on the same full disk
                print(f"heartbeat: {error}", file=sys.stderr, flush=True)
        if asked := engine.control.end_now:
            ended_by.append(asked)
    was_cut_off = engine.is_alive() and not journal.has_ended
    if was_cut_off:
        end = engine.control.ending
        if end is None and engine.control.end_now:
            end = RunFinished(RunOutcome.STOPPED, f"killed without saving: {ended_by[0]}", {})
        elif end is None:
            remedy = f"It goes on from its newest checkpoint: tpu-console resume {run.run_id}"
            end = RunFailed(f"{ended_by[0]} ended the run before it could be saved.", "", remedy, run.log.name)
        journal.write(end)
    journal.close()
    if was_cut_off:
        with suppress(OSError):
            write_history(run, StateReader(run).catch_up().epochs)
        conclude(run)
    return OK if engine.succeeded or isinstance(engine.control.ending, RunFinished) else FAILED


def leave(code: int) -> NoReturn:
    """End the process after everything is written.

    Python would first collect every object of TensorFlow and JAX, which takes seconds on a busy machine, and wait for
    their threads, which may take forever. Exit handlers, also those of the user's code, have a time limit.
    """
    watch = threading.Timer(_LONGEST_EXIT_S, os._exit, [code])
    watch.daemon = True
    watch.start()
    # If a handler blocks the interpreter, the kernel's alarm ends the process.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 2 * _LONGEST_EXIT_S)
    atexit._run_exitfuncs()  # noqa: SLF001  no public name, and since Python 3.0 this one
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the output goes to the log, whose disk may be full
            stream.flush()
    os._exit(code)


def _handle_signals(engine: EngineThread) -> list[str]:
    """Handle signals; the returned list gets the name of the one that ends the process immediately."""
    ended_by: list[str] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if engine.control.asked is not None:
            ended_by.append(name)
            return
        engine.control.stop(f"asked by {name}")
        if number == signal.SIGTERM and not engine.control.is_shared:
            limit = threading.Timer(_LONGEST_STOP_S, ended_by.append, [name])
            limit.daemon = True
            limit.start()

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    return ended_by


def wait_for_run(variables: Mapping[str, str]) -> tuple[list[str], threading.Thread]:
    """Import the framework and wait for a run; return its arguments, and the thread that still imports."""
    os.umask(0o077)  # as `main` does: importing Keras writes its settings
    channel, early = socket.socket(fileno=os.dup(_STDIN)), os.dup(_STDOUT)
    # The threads of OpenBLAS keep the priority of the thread that imports NumPy.
    import_module("numpy")
    importing = threading.Thread(target=_import, args=(variables,), name="tpu-console-import", daemon=True)
    importing.start()
    message, descriptors, *_ = socket.recv_fds(channel, _LARGEST_MESSAGE, 2)
    if len(descriptors) < 2:
        os._exit(0)  # the console ended, or needs another one
    channel.close()
    log, lock = descriptors
    os.set_inheritable(lock, True)
    for number in (_STDOUT, _STDERR):
        os.dup2(log, number)
    os.write(log, os.pread(early, os.fstat(early).st_size, 0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _STDIN)
    for number in (early, log, nothing):
        os.close(number)
    return json.loads(message), importing


def _import(variables: Mapping[str, str]) -> None:
    """Import what a run needs, in a thread of low priority: no other thread has to get its priority back."""
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    with suppress(OSError, AttributeError):  # elsewhere than on Linux a thread has no priority
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    # Whatever fails here fails again when the run needs it, and is reported there.
    with suppress(Exception), importing():
        import_module("keras")
        for name in _NEEDED:
            import_module(f"tpu_console.engine.{name}")
    for name in variables:  # the run sets them itself, from its configuration
        os.environ.pop(name, None)
    os.environ.update(before)


if __name__ == "__main__":
    if sys.argv[1] == WARM:
        leave(main(*wait_for_run(json.loads(sys.argv[2]))))
    leave(main(sys.argv[1:]))
