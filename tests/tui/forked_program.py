"""The program with training processes that begin with Keras imported, which costs a new process four seconds.

``python -m tests.tui.forked_program …`` is ``tpu-console …``, except that the tests fork its training processes for it
(see `tests.forks`). That a training process starts as the program starts it is in ``test_terminal_runs.py``,
``test_cli_process.py`` and the tests of the engine.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tpu_console.engine.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping

FORKED = ("-m", "tests.tui.forked_program")
"""What follows Python on the command line instead of the program."""

_ADDRESS = "TPU_CONSOLE_TEST_FORKS"
_POLL_S = 0.02


def forking(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which `forked_program` finds the tests that fork for it."""
    root = str(Path(__file__).parents[2])
    return {**(environment or {}), _ADDRESS: _service(), "PYTHONPATH": root}


@cache
def _service() -> str:
    """Begin to fork for programs; return where, as an abstract address."""
    address = f"tpu-console-tests-{os.getpid()}"
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(f"\0{address}")
    server.listen()
    threading.Thread(target=_accept, args=(server,), name="forks for programs", daemon=True).start()
    return address


def _accept(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    """Fork what one program asks for; tell it the process number, and the exit code when it has ended."""
    from tests.helpers import fork_host

    with connection, connection.makefile() as lines:
        asked = json.loads(lines.readline())
        forked = fork_host(RunDirectory(Path(asked.pop("run"))), **asked)
        connection.sendall(f"{forked.pid}\n".encode())
        pause = threading.Event()
        while (code := forked.poll()) is None:
            pause.wait(_POLL_S)
        with suppress(OSError):  # the program may be gone
            connection.sendall(f"{code}\n".encode())


class _Forked:
    """A fork of the tests, with the parts of `subprocess.Popen` that the program uses."""

    def __init__(self, run: RunDirectory, resumes: str | None) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect("\0" + os.environ[_ADDRESS])
        asked = {"run": str(run.path), "resumes": resumes, "cwd": str(Path.cwd()), "env": dict(os.environ)}
        self._connection.sendall(json.dumps(asked).encode() + b"\n")
        self._lines = self._connection.makefile()
        self.pid = int(self._lines.readline())
        self.returncode: int | None = None
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        self.returncode = int(self._lines.readline())

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = threading.Event()
        while self.returncode is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            pause.wait(_POLL_S)
        return self.returncode

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def _start_host(run: RunDirectory, resumes: str | None = None, lock: int | None = None, warm: object = None) -> _Forked:
    """Do what `tpu_console.engine.process.launch.start_host` does; the fork does not hold the run's lock."""
    from tpu_console.engine.process.launch import lock_run

    assert warm is None
    os.close(lock_run(run) if lock is None else lock)
    return _Forked(run, resumes)


def main() -> int:
    """Run the program."""
    from tpu_console.engine.process import launch
    from tpu_console.tui.cli import main as program

    launch.start_host = _start_host  # type: ignore[assignment]  # with the parts of the process that are used
    return program()


if __name__ == "__main__":
    sys.exit(main())
