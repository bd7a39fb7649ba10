"""The process that trains a run: ``python -P -m tpu_console.engine.process.main RUN_DIRECTORY [CHECKPOINT]``.

With a checkpoint's name, or an empty one, it goes on with a run that was interrupted. The main thread writes the
heartbeat and handles signals and requests; the engine thread trains. SIGHUP is ignored, so that closing the terminal
does not end the run. The first SIGINT or SIGTERM asks the run to stop and save; the second ends the process
immediately. A process that SIGTERM asked ends after 18 seconds, because its machine may soon be gone, unless several
hosts have to stop together.
"""

import atexit
import faulthandler
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

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

OK, FAILED = 0, 1
_STDERR = 2
_LONGEST_EXIT_S = 5.0
_LONGEST_STOP_S = 18.0


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


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
