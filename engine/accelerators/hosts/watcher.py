"""Writes the last event of a host whose process JAX aborted.

It is started as ``python -P -m tpu_console.engine.accelerators.hosts.watcher RUN PARENT``.

JAX's C++ code aborts a process that loses the service at host 0, and Python cannot prevent it: the callback that
`jaxlib` takes for it aborts the process as well (`std::bad_cast`, JAX 0.10.2). So this process waits until the one that
trains has ended, and writes what happened if that one could not.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...runs.events import RunFailed
from ...runs.journal import JournalWriter
from ...runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from typing import BinaryIO

_ABORTED = b"JAX distributed service detected fatal errors"
_LAST_WORDS = (b'"type":"RunFinished"', b'"type":"RunFailed"')
_TAIL_BYTES = 1 << 16
_LOOK_S = 0.5


class Watcher:
    """Starts the process that watches over this one.

    Args:
        run: The run's folder.
    """

    def __init__(self, run: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tpu_console.engine.accelerators.hosts.watcher", str(run), str(os.getpid())],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def say(self, what: str) -> None:
        """Set what happened in case JAX aborts this process from now on."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(f"{what}\n".encode())
                self._process.stdin.flush()


def main(run: RunDirectory, parent: int, pipe: BinaryIO) -> None:
    """Wait for the end of the parent process, and write the run's last event if JAX aborted it."""
    said, is_over = b"", False
    while not is_over:
        is_over = (
            os.getppid() != parent
        )  # the pipe says less: it may close earlier, or be kept open by a forked process
        while select.select([pipe], [], [], 0)[0] and (data := os.read(pipe.fileno(), _TAIL_BYTES)):
            said += data
        time.sleep(0 if is_over else _LOOK_S)
    log = _tail(run.log)
    if _ABORTED in log and said and not any(word in _tail(run.journal) for word in _LAST_WORDS):
        why = log.rpartition(_ABORTED)[2].partition(b"absl::Status: ")[2].partition(b"\n")[0].decode(errors="replace")
        remedy = "Host 0's own run says more, if it could still write."
        journal = JournalWriter(run.journal)
        journal.write(RunFailed(said.splitlines()[-1].decode(), why[:300], remedy, run.log.name))
        journal.close()


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read()


if __name__ == "__main__":
    main(RunDirectory(Path(sys.argv[1])), int(sys.argv[2]), sys.stdin.buffer)
