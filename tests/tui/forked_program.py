"""The program with training processes and jobs that begin with Keras imported, which costs a new one four seconds.

``python -m tests.tui.forked_program …`` is ``tpu-console …``, except that the tests fork these processes for it (see
`tests.forks`). That they start as the program starts them is in ``test_terminal_runs.py``, ``test_cli_process.py``,
``test_training.py`` and the tests of the engine.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.forks import fork
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.storage.files import make_private_folder

FORKED = ("-m", "tests.tui.forked_program")
"""What follows Python on the command line instead of the program."""

_ADDRESS = "TPU_CONSOLE_TEST_FORKS"
_POLL_S = 0.02


def forking() -> dict[str, str]:
    """Return an environment in which `forked_program` finds the tests that fork for it."""
    return {_ADDRESS: _service(), "PYTHONPATH": str(Path(__file__).parents[2])}


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
    """Start the fork that a program asks for; answer with its process number, then with its exit code."""
    from tests.helpers import fork_host

    with connection, connection.makefile() as lines:
        asked = json.loads(lines.readline())
        if "run" in asked:
            forked = fork_host(RunDirectory(Path(asked.pop("run"))), **asked)
        else:
            job = "from runpy import run_module; run_module('tpu_console.engine.jobs.job', None, '__main__', True)"
            output, errors = Path(asked.pop("output")), Path(asked.pop("errors"))
            forked = fork(job, *asked.pop("arguments"), output=output, errors=errors, **asked)
        connection.sendall(f"{forked.pid}\n".encode())
        pause = threading.Event()
        while (code := forked.poll()) is None:
            pause.wait(_POLL_S)
        with suppress(OSError):  # the program may be gone
            connection.sendall(f"{code}\n".encode())


class _Forked:
    """A fork of the tests, with the parts of `subprocess.Popen` that the program uses."""

    stdin = None
    stdout: IO[bytes] | None = None

    def __init__(self, **asked: object) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect("\0" + os.environ[_ADDRESS])
        asked |= {"cwd": str(Path.cwd()), "env": dict(os.environ)}
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
    from tpu_console.engine.runs.run_directory import lock_run

    assert warm is None
    os.close(lock_run(run) if lock is None else lock)
    return _Forked(run=str(run.path), resumes=resumes)


def start_job(name: str, options: Mapping[str, Any], log: Path) -> _Forked:
    """Do what `tpu_console.tui.jobs.job_process.start_job` does; its standard output is a named pipe."""
    make_private_folder(log.parent)
    log.write_bytes(b"")
    pipe = Path(tempfile.mkdtemp(dir=log.parent), "pipe")
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # nobody writes yet
    os.set_blocking(reading, True)
    process = _Forked(arguments=[name, json.dumps(options)], output=str(pipe), errors=str(log))
    process.stdout = os.fdopen(reading, "rb", buffering=0)
    return process


def main() -> int:
    from tpu_console.engine.process import launch
    from tpu_console.tui.cli import main as program
    from tpu_console.tui.following import follow
    from tpu_console.tui.jobs import job_process

    follow.FASTEST_S = follow.SLOWEST_S = 0.1  # tests need not wait for news
    launch.start_host = _start_host  # type: ignore[assignment]  # with the parts of the process that are used
    job_process.start_job = start_job  # type: ignore[assignment]
    return program()


if __name__ == "__main__":
    sys.exit(main())
