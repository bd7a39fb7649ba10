"""A process that has imported a framework before its run is known."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.helpers import has, private_mode, run_forked, run_host, small_config, the, wait_until
from tpu_console.engine.process.launch import (
    FREE_BYTES,
    WarmHost,
    launch_environment,
    may_warm,
    prepare_run,
    start_host,
)
from tpu_console.engine.runs.events import RunStarted
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.storage.files import read_json

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}
START = """
import sys, time
from tpu_console.engine.process.launch import launch_environment
from tpu_console.engine.process.launch import WarmHost

host = WarmHost.start(launch_environment(), {"KERAS_BACKEND": "tensorflow"})
print(host.process.pid, flush=True)
time.sleep(600)
"""
IMPORTED = """
from tpu_console.engine.process import main

main._import({"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"})
from jax._src import xla_bridge
from tensorflow.python.eager import context

print(xla_bridge.backends_are_initialized(), context.context()._initialized)
"""
# Keras imports scikit-learn for this, if it is installed when Keras is imported.
WRAPPED = """
import keras
from keras.wrappers import SKLearnClassifier

def build(input_shape, classes):
    layers = [keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")]
    return SKLearnClassifier(keras.Sequential(layers)).model
"""


@pytest.fixture
def warm_up() -> Iterator[Callable[[], WarmHost]]:
    """Start one; not in the fixture itself, because pytest puts the phase of a test into the environment."""
    hosts: list[WarmHost] = []

    def start() -> WarmHost:
        hosts.append(WarmHost.start(launch_environment(), TENSORFLOW))
        return hosts[-1]

    yield start
    for host in hosts:
        if host.process.poll() is None:
            host.end()


@pytest.mark.parametrize(
    ("free_bytes", "load", "setting", "allowed"),
    [
        (FREE_BYTES, 0.5, None, True),
        (FREE_BYTES - 1, 0.5, None, False),
        (FREE_BYTES, 2.0, None, False),
        (FREE_BYTES, 0.5, "true", True),
        (FREE_BYTES, 0.5, "False", False),
        (FREE_BYTES, 0.5, "0", False),
    ],
)
def test_it_needs_memory_an_idle_machine_and_no_objection(
    free_bytes: int, load: float, setting: str | None, allowed: bool
) -> None:
    environ = {} if setting is None else {"TPU_CONSOLE_PREWARM": setting}
    assert may_warm(free_bytes, load, 2, environ) == allowed
    assert FREE_BYTES == 4 * 1024**3


def test_it_fits_only_where_a_new_process_would_be_the_same(warm_up: Callable[[], WarmHost], tmp_path: Path) -> None:
    warm, environment = warm_up(), launch_environment()
    assert warm.fits(environment, TENSORFLOW)
    assert not warm.fits(environment | {"XLA_FLAGS": "--xla_dump_to=x"}, TENSORFLOW)
    assert not warm.fits({name: text for name, text in environment.items() if name != "PATH"}, TENSORFLOW)
    assert not warm.fits(environment, {"KERAS_BACKEND": "jax"})
    warm.process.kill()
    warm.process.wait()
    assert not warm.fits(environment, TENSORFLOW)
    process = start_host(prepare_run(small_config(dataset="no:such"), tmp_path), warm=warm)
    assert process.pid != warm.process.pid, "a run that it cannot take gets a new process"
    process.kill()
    process.wait()


def test_it_ends_with_its_console_even_if_that_is_killed() -> None:
    console = subprocess.Popen([sys.executable, "-c", START], stdout=subprocess.PIPE, text=True)
    assert console.stdout is not None
    host = psutil.Process(int(console.stdout.readline()))
    console.send_signal(signal.SIGKILL)
    console.wait()
    wait_until(lambda: not host.is_running() or host.status() == psutil.STATUS_ZOMBIE, "the warm process ends")


@pytest.mark.slow
def test_it_trains_a_run_as_a_new_process_does(warm_up: Callable[[], WarmHost], tmp_path: Path) -> None:
    warm = warm_up()
    (tmp_path / "wrapped.py").write_text(WRAPPED)
    config = small_config(model=f"{tmp_path}/wrapped.py:build", model_options={})
    cold = run_host(config, tmp_path / "cold")
    run = prepare_run(config, tmp_path / "runs")
    process = start_host(run, warm=warm)
    assert process is warm.process
    assert read_json(run.heartbeat, 4096)["pid"] == process.pid
    wait_until(lambda: has(run, RunStarted), "the run starts")
    # Only the thread that imported had a low priority, and so the threads of training have none.
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == os.getpriority(os.PRIO_PROCESS, 0)
    place = Path("/proc", str(process.pid))
    assert (place / "fd/0").readlink() == Path(os.devnull)
    assert (place / "fd/1").readlink() == (place / "fd/2").readlink() == run.log
    assert os.getsid(process.pid) == process.pid
    assert process.wait() == 0
    assert _kinds(run) == _kinds(cold)
    assert [path.name for path in sorted(run.path.iterdir())] == [path.name for path in sorted(cold.path.iterdir())]
    assert {private_mode(path) for path in (run.log, run.journal, run.heartbeat)} == {0o600}
    assert the(run, RunStarted).config == the(cold, RunStarted).config


@pytest.mark.slow
def test_what_it_imports_connects_no_device(tmp_path: Path) -> None:
    assert run_forked(IMPORTED, cwd=tmp_path, env={"KERAS_BACKEND": "jax"}).split() == ["False", "False"]


def _kinds(run: RunDirectory) -> list[str]:
    """The kinds of a run's events, in order, without those that depend on speed and however often one came in a row."""
    kinds = [json.loads(line)["type"] for line in run.journal.read_bytes().splitlines()]
    kinds = [kind for kind in kinds if not kind.endswith(("Sampled", "ValidationProgress"))]
    return [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before]
