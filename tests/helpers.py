"""What tests of every part share: waiting for a condition, small configurations, whole runs, plain processes."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec
import psutil
import pytest
from msgspec import structs

from tests.forks import Forked, fork
from tpu_console.engine.config.reading import load_config, parse_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.process.launch import prepare_run, start_host
from tpu_console.engine.runs.checkpoint import Header, newest_checkpoint
from tpu_console.engine.runs.class_report import ClassReport, read_report
from tpu_console.engine.runs.events import EpochEnded, Event
from tpu_console.engine.runs.heartbeat import identify, write_heartbeat
from tpu_console.engine.runs.journal import JournalReader
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.storage.files import write_whole

E = TypeVar("E")

ROOT = Path(__file__).parent.parent
"""The repository."""

LIMIT_S = 90.0
"""Longest wait for a real process on a busy machine; a test that waits this long has failed."""


def wait_until(condition: Callable[[], object], what: str = "", limit_s: float = LIMIT_S) -> None:
    """Poll a condition until it holds; fail if it does not within the limit."""
    deadline = time.monotonic() + limit_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s:.0f} s in vain: {what}"
        pause.wait(0.02)


def small_config(**changes: Any) -> RunConfig:
    """A configuration that trains in a blink: digits, one small dense layer, on the CPU."""
    values = {
        "name": "small",
        "dataset": "digits",
        "model": "mlp",
        "model_options": {"hidden": [8]},
        "batch_size": 32,
        "epochs": 1,
        "accelerator": "cpu",
        "steps_per_execution": 1,
        "sinks": [],
        "checkpoint": {"monitor": "none"},
    }
    return parse_config(values | changes)


@contextmanager
def only_shapes() -> Iterator[None]:
    """Make Keras's variables without values; they never get any."""
    import keras

    with keras.StatelessScope(initialize_variables=False):
        yield
    keras.utils.clear_session()  # Keras keeps a list of them, and the end of any later scope would fill them all


def write_metadata(folder: Path, package: str, version: str) -> None:
    """Write what makes a package look installed, once the folder is on Python's path."""
    metadata = folder / f"{package.replace('-', '_')}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


def known(value: E | None) -> E:
    """A value that must not be None."""
    assert value is not None
    return value


def replace(value: E, **changes: Any) -> E:
    """Copy a struct or dataclass with some values changed, like `copy.replace` in Python 3.13."""
    change: Any = structs.replace if isinstance(value, msgspec.Struct) else dataclasses.replace
    changed: E = change(value, **changes)
    return changed


def epoch_ended(
    epoch: int, logs: Mapping[str, float] | None = None, *, steps: int = 4, seconds: float = 1.0, **changes: Any
) -> EpochEnded:
    """The end of an epoch of some steps and seconds; other fields have usual values unless they are changed."""
    values: dict[str, Any] = {
        "epoch": epoch,
        "step": steps * epoch,
        "epoch_steps": steps,
        "elapsed_s": seconds * epoch,
        "seconds": seconds,
        "compile_s": 0.0,
        "validation_s": 0.0,
        "step_ms": 2.0,
        "examples_per_s": 500.0,
        "learning_rate": 1e-3,
        "logs": dict(logs or {}),
    }
    return EpochEnded(**values | changes)


def timed_events_of(run: RunDirectory) -> list[tuple[float, Event]]:
    """Every event of a run with its time, in order; fails when one is not understood."""
    reader = JournalReader(run.journal)
    events: list[tuple[float, Event]] = []
    while records := reader.read():
        for record in records:
            assert record.event is not None, record
            events.append((record.at, record.event))
    assert reader.skipped == 0
    return events


def events_of(run: RunDirectory) -> list[Event]:
    return [event for _, event in timed_events_of(run)]


def all_of(run: RunDirectory, kind: type[E]) -> list[E]:
    return [event for event in events_of(run) if isinstance(event, kind)]


def the(run: RunDirectory, kind: type[E]) -> E:
    (event,) = all_of(run, kind)
    return event


def checkpoint_of(run: RunDirectory) -> tuple[Path, Header]:
    return known(newest_checkpoint(run))


def report_of(run: RunDirectory) -> ClassReport:
    return known(read_report(run))


def has(run: RunDirectory, kind: type[object]) -> bool:
    return bool(all_of(run, kind))


_TRAIN = """
import faulthandler, runpy, signal
faulthandler.register(signal.SIGUSR1)
runpy.run_module('tpu_console.engine.process.main', None, '__main__', True)
"""


def fork_host(run: RunDirectory, before: str = "", *, resumes: str | None = None, **given: Any) -> Forked:
    """Start the process that trains a prepared run as a fork, which begins with TensorFlow and Keras imported.

    It executes `before` first. `resumes` is the name of the checkpoint to go on with, `given` is ``cwd`` and ``env``.
    """
    backend = "jax" if load_config(run.config).backend == "jax" else "tensorflow"
    arguments = [str(run.path), *([] if resumes is None else [resumes])]
    process = fork(before + _TRAIN, *arguments, output=run.log, errors=run.log, backend=backend, trains=True, **given)
    write_heartbeat(run, process.pid)
    return process


def fork_resumed(run: RunDirectory, checkpoint: str, lock: int) -> Forked:
    """Do what `start_host` does for a run that is resumed, in a fork, which does not hold the run's lock."""
    os.close(lock)
    return fork_host(run, resumes=checkpoint)


class Host:
    """A real host process of a configuration, and its run; a forked one begins with Keras imported."""

    process: subprocess.Popen[bytes] | Forked | None

    def __init__(self, config: RunConfig, folder: Path, *, start: bool = True, forked: bool = False) -> None:
        self.run = prepare_run(config, folder)
        self.process = None
        if start:
            self.process = fork_host(self.run) if forked else start_host(self.run)

    def wait(self) -> int:
        """Wait for its end; return the exit code. The log of a fork that does not end says where its threads are."""
        assert self.process is not None
        try:
            return self.process.wait(3 * LIMIT_S)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGUSR1)
            pytest.fail(f"{self.run.path} does not end: {self.run.log.read_text(errors='replace')[-5000:]}")

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def hosts(folder: Path) -> Iterator[Callable[[RunConfig], Host]]:
    """Body of a fixture: starts host processes, forked ones on request, and leaves none behind."""
    started: list[Host] = []

    def start(config: RunConfig, *, forked: bool = False) -> Host:
        started.append(Host(config, folder, forked=forked))
        return started[-1]

    yield start
    for host in started:
        host.kill()


def run_host(config: RunConfig, folder: Path) -> RunDirectory:
    """Train a configuration in a forked host process, and return the run when it has ended."""
    host = Host(config, folder, forked=True)
    try:
        host.wait()
    finally:
        host.kill()
    return host.run


def run_python(
    code: str, *arguments: str, cwd: Path, env: dict[str, str] | None = None, limit_s: float = 2 * LIMIT_S
) -> str:
    """Run a script in a plain process; return what it printed, or fail with its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "TPU_CONSOLE_HOME": str(cwd)} | (env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_forked(
    code: str, *arguments: str, cwd: Path, env: dict[str, str] | None = None, limit_s: float = 3 * LIMIT_S
) -> str:
    """Do what `run_python` does in a fork, which has imported TensorFlow and Keras and nothing of this project.

    Keras is on TensorFlow unless ``KERAS_BACKEND`` of `env` says otherwise.
    """
    with TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        backend = (env or {}).get("KERAS_BACKEND", "tensorflow")
        settings = os.environ | {"TPU_CONSOLE_HOME": str(cwd)} | (env or {})
        forked = fork(code, *arguments, output=output, errors=errors, backend=backend, cwd=cwd, env=settings)
        try:
            ended_with = forked.wait(limit_s)
        finally:
            forked.kill()
        assert ended_with == 0, errors.read_text(encoding="utf-8", errors="replace")
        return output.read_text(encoding="utf-8")


def gone_process() -> int:
    """The number of a process that has ended and was waited for."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    assert not psutil.pid_exists(process.pid)
    return process.pid


def leave_dead(run: RunDirectory) -> None:
    """Leave the heartbeat of a process that was killed."""
    write_whole(run.heartbeat, json.dumps(identify(os.getpid()) | {"pid": gone_process()}))


_BEATING = """
import sys, time
from pathlib import Path
from tpu_console.engine.runs.control import Control
from tpu_console.engine.runs.events import PhaseStarted, RunFinished, RunStarted
from tpu_console.engine.runs.heartbeat import Heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory

run, control = RunDirectory(Path(sys.argv[1])), Control()
journal = JournalWriter(run.journal)
journal.write(RunStarted("beating", "host", 1, "here"))
journal.write(PhaseStarted("training"))
heart = Heartbeat(run, journal, control)
while not control.reason:
    heart.tick()
    time.sleep(0.05)
journal.write(RunFinished("stopped", control.reason, {}))
journal.close()
"""


class BeatingProcess:
    """A real process that only writes heartbeats until it is asked to stop; its command line begins with `before`."""

    def __init__(self, run: RunDirectory, before: Sequence[str] = ()) -> None:
        self.run = run
        self.process = subprocess.Popen(
            [*before, sys.executable, "-c", _BEATING, str(run.path)], cwd=ROOT, start_new_session=True
        )
        wait_until(lambda: run.heartbeat.exists() or self.process.poll() is not None, "its first heartbeat")

    def freeze(self, seconds: float) -> None:
        """Suspend it, and date its last heartbeat back as if that had been a while ago."""
        self.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)
        at = time.time() - seconds
        os.utime(self.run.heartbeat, (at, at))

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def private_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777
