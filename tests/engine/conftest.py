from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from tests.helpers import Host, hosts, run_host, small_config
from tests.small_disk import SmallDisk, small_disk
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import RunDirectory, create_run, list_runs
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.engine.jobs.predicting import Job
    from tpu_console.engine.config.run_config import RunConfig


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[RunConfig], Host]]:
    """Start host processes, of which none outlives the test."""
    yield from hosts(tmp_path / "runs")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, "4m") as small:
        yield small


def digits_config() -> RunConfig:
    """What the fixture `digits` trains."""
    return with_changes(find_preset("digits-cnn").config, [("epochs", 20)])


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The preset digits-cnn with fewer epochs, trained by a host process, once for all workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "digits"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = [run for run in list_runs(folder / "runs") if run.summary.is_file()]
        return ended[0] if ended else run_host(digits_config(), folder / "runs")


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    run = create_run("mine", tmp_path / "runs")
    journal = JournalWriter(run.journal)
    yield Recorder(run, journal)
    journal.close()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Predict with a run into a file of this test's own."""
    from tests.engine.jobs.predicting import Job  # it loads TensorFlow, which few tests need

    return Job(tmp_path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the data and the runs that a module's tests share."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def small_digits(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Digits, trained for a moment in this process, with its best epoch kept."""
    from tests.engine.jobs.predicting import train

    config = small_config(epochs=2, model_options={"hidden": [32]}, checkpoint={"monitor": "auto"})
    return train(config, tmp_path_factory.mktemp("small-digits"))
