"""Drivers of sweeps as forks, whose runs are forks, too: nothing waits for TensorFlow to be imported."""

import os

from tests.forks import Forked, fork
from tpu_console.engine.sweeps.folder import Sweep

_DRIVER = """
import os, sys
from pathlib import Path
from runpy import run_module
from tpu_console.engine.process import launch
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.sweeps import driver
from tpu_console.engine.sweeps.folder import Sweep

folder, dies_at = sys.argv[1:]
sweep = Sweep(Path(folder))
lock = sweep.lock()

class Forked:
    def __init__(self, pid):
        self.pid, self.code = pid, None

    def poll(self):
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

def start(run, resumes=None, lock=None):
    if dies_at == "start":
        os._exit(9)
    lock = launch.lock_run(run) if lock is None else lock
    if (pid := os.fork()) == 0:
        os.close(globals()["lock"])
        os.setsid()
        log = os.open(run.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = ["main", str(run.path), *([] if resumes is None else [resumes])]
        try:
            run_module("tpu_console.engine.process.main", None, "__main__", True)
        finally:
            os._exit(1)
    os.close(lock)
    write_heartbeat(run, pid)
    return Forked(pid)

def write(path, content, **options):
    written(path, content, **options)
    os._exit(9)

written = launch.write_whole
if dies_at == "note":
    Sweep.note = lambda *_: os._exit(9)
elif dies_at == "config":
    launch.write_whole = write
driver.start_host = launch.start_host = start
sys.exit(driver.main([folder, str(lock)]))
"""


def fork_driver(sweep: Sweep, dies_at: str = "") -> Forked:
    """Start the process that trains the runs of a sweep.

    Args:
        sweep: The sweep.
        dies_at: Where the process ends, as if it was killed: before it notes a run's name (``note``), when the run's
            configuration is written (``config``), or before it starts the run (``start``).
    """
    home = str(sweep.path.parent.parent)
    given = os.environ | {"TPU_CONSOLE_HOME": home}
    return fork(_DRIVER, str(sweep.path), dies_at, output=sweep.log, errors=sweep.log, trains=True, env=given)
