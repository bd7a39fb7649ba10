"""A process that imports a framework before its run is known, so that the run starts without that delay.

``python -P -m tpu_console.engine.process.warm VARIABLES`` imports what a run needs, at low priority, and connects
nothing. Its standard input is a socket: the run comes through it, and with its end the process ends, also if the
console is killed. With a run it is the process of `engine.process.main`, with the same environment, log and session.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Self

from msgspec import Struct

from ..messages import start_module

FREE_BYTES = 4 << 30
_NICENESS = 10
_LONGEST = 1 << 16
_STDIN, _STDOUT, _STDERR = range(3)
_NEEDED = (
    *("training.train", "training.bridge", "training.checkpoints", "training.class_scoring", "training.steering"),
    *("accelerators.backend", "data.kinds.table", "input.pipeline", "models.build", "models.compile"),
    *("monitoring.alerts", "monitoring.sampler"),
)


def may_warm(free_bytes: int, load: float, cores: int, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a process may be warmed up: the user allows it, there is memory, and the machine is idle.

    `load` is the mean number of processes that wanted to run in the last minute.
    """
    is_allowed = environ.get("TPU_CONSOLE_PREWARM", "true").lower() not in {"false", "0", "no", "off"}
    return is_allowed and free_bytes >= FREE_BYTES and load < cores


class WarmHost(Struct, frozen=True):
    """A process that waits for a run, as the process that started it sees it."""

    process: subprocess.Popen[bytes]
    environment: Mapping[str, str]
    variables: Mapping[str, str]  # what it set before it imported the framework
    _channel: socket.socket

    @classmethod
    def start(cls, environment: Mapping[str, str], variables: Mapping[str, str]) -> Self:
        """Start one; raise `OSError` if it cannot be started."""
        ours, theirs = socket.socketpair()
        # What importing prints goes to the log of the run, which is not known yet.
        with theirs, tempfile.TemporaryFile() as output:
            streams: dict[str, Any] = {"stdin": theirs.fileno(), "stdout": output, "stderr": subprocess.STDOUT}
            process = start_module("engine.process.warm", json.dumps(variables), env=environment, **streams)
        return cls(process, environment, variables, ours)

    def fits(self, environment: Mapping[str, str], variables: Mapping[str, str]) -> bool:
        """Return whether it is what a new process would be: it lives, and nothing in the environment differs."""
        return self.process.poll() is None and (self.environment, self.variables) == (environment, variables)

    def hand_over(self, arguments: Sequence[str], log: int, lock: int) -> bool:
        """Give it the arguments of `main`, and the descriptors of log and lock; return whether it got them."""
        message = json.dumps(arguments).encode()
        try:
            sent = socket.send_fds(self._channel, [message], [log, lock])
        except OSError:
            sent = 0
        self._channel.close()
        return sent == len(message)

    def end(self) -> None:
        """End it."""
        self._channel.close()
        self.process.kill()
        self.process.wait()


def wait_for_run(variables: Mapping[str, str]) -> tuple[list[str], threading.Thread]:
    """Import the framework and wait for a run; return its arguments, and the thread that still imports."""
    os.umask(0o077)  # as `main` does: importing Keras writes its settings
    channel, early = socket.socket(fileno=os.dup(_STDIN)), os.dup(_STDOUT)
    # The threads of OpenBLAS keep the priority of the thread that imports NumPy.
    import_module("numpy")
    importing = threading.Thread(target=_import, args=(variables,), name="tpu-console-import", daemon=True)
    importing.start()
    message, descriptors, *_ = socket.recv_fds(channel, _LONGEST, 2)
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
    with suppress(Exception):
        import_module("keras")
        for name in _NEEDED:
            import_module(f"tpu_console.engine.{name}")
    for name in variables:  # the run sets them itself, from its configuration
        os.environ.pop(name, None)
    os.environ.update(before)


if __name__ == "__main__":
    from .main import leave, main

    leave(main(*wait_for_run(json.loads(sys.argv[1]))))
