"""Processes that begin with TensorFlow and Keras imported, which costs a new process four seconds.

``python -m tests.forks BACKEND`` imports them once, uses neither, and forks for every request that it reads. A fork has
its own session, and simulates devices and fails on its own, like a new process. Of this project it has imported
nothing, unless it is asked to train. Tests of how a process starts start a real one: `tests.helpers.Host` does so
unless it is asked to fork.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

COMPILED = "TESTS_COMPILED"
"""The variable that names the folder where all tests of a session keep what JAX compiled."""

_STDIN, _STDOUT, _STDERR = range(3)


def quick_jax() -> dict[str, str]:
    """Return the variables with which JAX hardly optimises programs for the CPU, and compiles each once for all tests.

    Without them a process compiles for longer than it trains. They are not for tests that ask the TPU's compiler.
    """
    return {
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
        "JAX_COMPILATION_CACHE_DIR": os.environ.get(COMPILED, ""),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


class Forked:
    """A fork, with the parts of `subprocess.Popen` that tests use."""

    def __init__(self, server: _Server, pid: int) -> None:
        self._server = server
        self.pid = pid

    def poll(self) -> int | None:
        return self._server.code_of(self.pid, 0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._server.code_of(self.pid, timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(
    code: str,
    *arguments: str,
    output: Path,
    errors: Path,
    backend: str = "tensorflow",
    trains: bool = False,
    **given: Any,
) -> Forked:
    """Run a script in a fork, as ``python -c`` does; output and errors are appended to files.

    With `trains`, it begins with what trains a run imported, too. `given` is ``cwd`` and ``env``.
    """
    cwd, env = given.get("cwd", Path.cwd()), given.get("env") or os.environ
    request = {
        "code": code,
        "arguments": arguments,
        "output": str(output),
        "errors": str(errors),
        "cwd": str(cwd),
        "env": (quick_jax() if trains and backend == "jax" else {}) | dict(env) | {"KERAS_BACKEND": backend},
        "trains": trains,
    }
    server = _server(backend)
    return Forked(server, server.fork(request))


@cache
def _server(backend: str) -> _Server:
    return _Server(backend)


class _Server:
    """The process that forks, as this one sees it; it ends with this one."""

    def __init__(self, backend: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", backend],
            cwd=Path(__file__).parent.parent,
            env=os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._lock = threading.Lock()
        self._unfinished = b""
        self._begun: list[int] = []
        self._codes: dict[int, int] = {}
        atexit.register(self._close)

    def fork(self, request: dict[str, Any]) -> int:
        """Return the process number of a new fork."""
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            while not self._begun:
                self._read(None)
            return self._begun.pop()

    def code_of(self, pid: int, timeout: float | None) -> int | None:
        """Return the exit code of a fork, or None if it still runs after a while."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                self._read(0.02 if timeout else 0.0)
                if pid in self._codes:
                    return self._codes[pid]
            if end is not None and time.monotonic() >= end:
                return None

    def _read(self, timeout: float | None) -> None:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            return
        read = os.read(self._process.stdout.fileno(), 65536)
        assert read, f"the process that forks ended with {self._process.wait()}"
        *lines, self._unfinished = (self._unfinished + read).split(b"\n")
        for line in lines:
            pid, *code = json.loads(line)
            if code:
                self._codes[pid] = code[0]
            else:
                self._begun.append(pid)

    def _close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _serve() -> None:
    """Fork for every request on standard input; write number and exit code of each fork to standard output."""
    gc.disable()
    import sklearn.datasets  # which runs import late
    import sklearn.model_selection  # noqa: F401
    import tensorflow  # noqa: F401  with Keras

    import tpu_console.engine.training.train  # noqa: F401

    gc.freeze()  # a collection would copy the memory that forks share
    gc.enable()
    gc.set_threshold(100_000, 10, 3)  # tracing makes many objects and little garbage
    requests, running = b"", dict[int, int]()
    while True:
        ready, _, _ = select.select([_STDIN, *running], [], [])
        for ended in set(ready) - {_STDIN}:
            pid = running.pop(ended)
            os.close(ended)
            _write(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if _STDIN in ready:
            if not (read := os.read(_STDIN, 1 << 20)):
                break
            *lines, requests = (requests + read).split(b"\n")
            for line in lines:
                if (pid := os.fork()) == 0:
                    _become(json.loads(line))
                running[os.pidfd_open(pid)] = pid
                _write(pid)
    for pid in running.values():
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    os._exit(0)


def _write(*values: int) -> None:
    os.write(_STDOUT, json.dumps(values).encode() + b"\n")


def _become(request: dict[str, Any]) -> NoReturn:
    """Be what was asked for, in a fork."""
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if home := os.environ.get("KERAS_HOME"):  # which Keras reads when it is imported
        from keras.src.backend import config

        config._KERAS_DIR = home
    if kept := os.environ.get("JAX_COMPILATION_CACHE_DIR"):  # likewise JAX
        import jax

        jax.config.update("jax_compilation_cache_dir", kept)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    for number, path in {_STDIN: os.devnull, _STDOUT: request["output"], _STDERR: request["errors"]}.items():
        opened = os.open(path, os.O_RDONLY if number == _STDIN else os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    if request["trains"]:
        os.umask(0)  # whatever the shell's umask: the training process makes its files private itself
    for name in [] if request["trains"] else [name for name in sys.modules if name.startswith("tpu_console")]:
        del sys.modules[name]
    sys.argv = ["-c", *request["arguments"]]
    code = 1
    try:
        exec(compile(request["code"], "<fork>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001  as Python does at the end of a script
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
