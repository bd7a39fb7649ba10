"""Starts the training process of a run, in its own session, so that it survives the terminal; and ends it, unsaved."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..config.run_config import RunConfig, to_toml
from ..config.user_code import note_start
from ..errors import ConsoleError
from ..machine.process_identity import Sight, look_for
from ..messages import start_module
from ..runs.control import ask, is_waiting
from ..runs.events import Steering
from ..runs.heartbeat import LARGEST_HEARTBEAT, Liveness, liveness_of, write_heartbeat
from ..runs.run_directory import RunDirectory, all_or_nothing, cannot_begin, create_run, require_writable
from ..storage.files import NotAFileError, lock_file, open_private, read_json, write_whole
from ..storage.paths import user_path
from .warm import WarmHost

_PATIENCE_S = 5.0
_LOOK_S = 0.1


class RunningError(ConsoleError):
    """Another process trains the run."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(
            f"{run.run_id} is still training.",
            remedy=f"Watch it: tpu-console attach {run.run_id}, or stop it: tpu-console stop {run.run_id}",
        )


def prepare_run(
    config: RunConfig,
    folder: Path | None = None,
    label: str = "",
    on_named: Callable[[RunDirectory], object] = lambda _: None,
) -> RunDirectory:
    """Create the run directory of a configuration that the user starts; the label is its name by default.

    `on_named` is called when the run has its name, and before any list shows it.
    """
    run = create_run(label or config.name, folder)
    try:
        with all_or_nothing(run):
            on_named(run)
            note_start(config)
            write_whole(run.config, to_toml(config), is_synced=False)
            run.journal.touch(mode=0o600)
    except OSError as error:
        raise cannot_begin(run.path.parent, error) from error
    return run


def launch_environment() -> dict[str, str]:
    """Return the environment of a training process."""
    return {"TF_CPP_MIN_LOG_LEVEL": "1"} | os.environ


def start_host(
    run: RunDirectory, resumes: str | None = None, lock: int | None = None, warm: WarmHost | None = None
) -> subprocess.Popen[bytes]:
    """Start the process that trains a prepared run, without a terminal; its output goes to ``console.log``.

    `resumes` is the checkpoint with which the run goes on; empty if it has none, None for a new run. The process holds
    the lock, of `lock_run`, which is taken here by default. If the warm one has died, another process is started.
    Raises `ConsoleError` if it cannot be started.
    """
    lock = lock_run(run) if lock is None else lock
    try:
        with open(run.log, "ab", opener=open_private) as log:
            arguments = [str(run.path), *([] if resumes is None else [resumes])]
            if warm is not None and warm.hand_over(arguments, log.fileno(), lock):
                process = warm.process
            else:
                options: dict[str, Any] = {"stdout": log, "stderr": subprocess.STDOUT, "env": launch_environment()}
                process = start_module("engine.process.main", *arguments, pass_fds=(lock,), **options)
    except OSError as error:
        raise ConsoleError(f"The training process cannot be started: {error.strerror}.") from error
    finally:
        os.close(lock)
    # Written here too, so that a process that dies immediately is seen to be dead. On a disk that has just become full
    # only the process itself can write it, because it has the reserve.
    with suppress(OSError):
        write_heartbeat(run, process.pid)
    return process


def lock_run(run: RunDirectory) -> int:
    """Lock a run's journal for one training process, until the returned descriptor is closed everywhere.

    On a file system without locks, only the heartbeat shows that a run trains. Raises `RunningError` if another process
    holds the lock, or `ConsoleError` if the folder cannot be written, or holds something that leads out of it.
    """
    try:
        require_writable(run)
        return lock_file(run.journal)
    except BlockingIOError as error:
        raise RunningError(run) from error
    except NotAFileError as error:
        what = f"{user_path(Path(error.filename))} cannot be written: {error.strerror}."
        raise ConsoleError(what, remedy="If you trust the run, replace it by what it stands for.") from error
    except OSError as error:
        raise cannot_begin(run.path, error) from error


def end_now(run: RunDirectory, by: str, *, responds: bool) -> None:
    """End the process of a run: it does so itself, with a last event, or is killed, at once if it does not respond.

    `by` says who asks, and how. Raises `ConsoleError` if it does not respond, and its process cannot be seen from here,
    or `OSError` if the request cannot be written.
    """
    number = ask(run, Steering.END_NOW, by)
    deadline = time.monotonic() + _PATIENCE_S * responds
    while time.monotonic() < deadline:
        if not is_waiting(run, number):
            return  # it has read it, and ends
        time.sleep(_LOOK_S)
    if liveness_of(run) is Liveness.DEAD:
        return
    import psutil

    with suppress(OSError, ValueError, psutil.Error):
        beat = read_json(run.heartbeat, LARGEST_HEARTBEAT)
        if isinstance(beat, dict) and look_for(beat) is Sight.RUNNING:
            opened = {file.path for file in psutil.Process(beat["pid"]).open_files()}
            # Anybody may have written the heartbeat: only a process that has the run's journal open is killed.
            if str(run.journal.resolve()) in opened:
                with suppress(ProcessLookupError):
                    os.kill(beat["pid"], signal.SIGKILL)
                return
    what = f"{run.run_id} does not respond, and its process cannot be seen from here."
    raise ConsoleError(what, remedy="Kill it on the machine where it runs; `tpu-console runs show` names it.")
