"""Starts the training process of a run, in its own session, so that it survives the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from ..config.run_config import to_toml
from ..errors import ConsoleError
from ..runs.heartbeat import write_heartbeat
from ..runs.run_directory import RunDirectory, all_or_nothing, cannot_begin, create_run
from ..storage.files import open_private, write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from ..config.run_config import RunConfig


def prepare_run(config: RunConfig, folder: Path | None = None) -> RunDirectory:
    """Create the run directory of a configuration.

    Raises:
        ConsoleError: It cannot be written.
    """
    run = create_run(config.name, folder)
    try:
        with all_or_nothing(run):
            write_whole(run.config, to_toml(config))
            run.journal.touch(mode=0o600)
    except OSError as error:
        raise cannot_begin(run.path.parent, error) from error
    return run


def start_host(run: RunDirectory) -> subprocess.Popen[bytes]:
    """Start the process that trains a prepared run.

    It has no terminal and its own session, and its output goes to ``console.log``. `-P` keeps the current folder off
    the import path, where a user's file could hide a module.

    Raises:
        ConsoleError: It cannot be started.
    """
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1")}
    try:
        with open(run.log, "ab", opener=open_private) as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tpu_console.engine.process.main", str(run.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
    except OSError as error:
        raise ConsoleError(f"The training process cannot be started: {error.strerror}.") from error
    # Written here too, so that a process that dies immediately is seen to be dead. On a disk that has just become full
    # only the process itself can write it, because it has the reserve.
    with suppress(OSError):
        write_heartbeat(run, process.pid)
    return process
