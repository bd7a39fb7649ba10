"""Writes the last event of a host whose process JAX aborted.

JAX's C++ code aborts a process that loses the service at host 0. Python cannot prevent it: the callback that `jaxlib`
takes for it aborts the process as well (`std::bad_cast`, JAX 0.10.2). So this process, started as ``python -P -m
tpu_console.engine.accelerators.hosts.watcher RUN PARENT``, waits for the end of the one that trains.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...runs.events import RunFailed
from ...runs.journal import JournalWriter
from ...runs.run_directory import RunDirectory
from ...storage.files import open_regular

if TYPE_CHECKING:
    from typing import BinaryIO

_ABORTED = b"JAX distributed service detected fatal errors"
_LAST_EVENTS = (b'"type":"RunFinished"', b'"type":"RunFailed"')
_TAIL_BYTES = 1 << 16
_LOOK_S = 0.5


class Watcher:
    """Starts the process that watches this one."""

    def __init__(self, run: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tpu_console.engine.accelerators.hosts.watcher", str(run), str(os.getpid())],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def say(self, what: str) -> None:
        """Set what happened if JAX aborts this process from now on."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(f"{what}\n".encode())
                self._process.stdin.flush()


def main(run: RunDirectory, parent: int, pipe: BinaryIO) -> None:
    """Wait for the end of the parent process, and write the run's last event if JAX aborted it."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.set_blocking(pipe.fileno(), False)  # a forked process may keep it open
    said = (pipe.read() or b"").splitlines()
    log = _tail(run.log)
    if _ABORTED in log and said and not any(event in _tail(run.journal) for event in _LAST_EVENTS):
        why = log.rpartition(_ABORTED)[2].partition(b"absl::Status: ")[2].partition(b"\n")[0].decode(errors="replace")
        journal = JournalWriter(run.journal)
        remedy = "Host 0's own run may say more."
        journal.write(RunFailed(said[-1].decode(), why[:300], remedy, run.log.name))
        journal.close()


def _tail(path: Path) -> bytes:
    with open_regular(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read()


if __name__ == "__main__":
    main(RunDirectory(Path(sys.argv[1])), int(sys.argv[2]), sys.stdin.buffer)
