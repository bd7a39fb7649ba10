"""Accelerators in processes of their own, because TensorFlow fixes its devices for a process's life."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import all_of, run_forked, run_host, small_config, the, timed_events_of
from tpu_console.engine.machine.devices import detect_hardware
from tpu_console.engine.runs.events import (
    AcceleratorReady,
    DataReady,
    EpochEnded,
    FitStarted,
    MemorySampled,
    RunFailed,
    RunFinished,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = pytest.mark.slow

WITHOUT_GPU = pytest.mark.skipif(bool(detect_hardware().gpus), reason="this machine has a GPU")

CONNECT = """
import dataclasses, json, sys
from tests.helpers import small_config
from tpu_console.engine.accelerators.table import FRAMEWORKS
from tpu_console.engine.errors import AcceleratorError
told = {}
for name in sys.argv[1:]:
    try:
        told[name] = dataclasses.asdict(FRAMEWORKS["tensorflow"].connect(small_config(), name).event())
    except AcceleratorError as error:
        told[name] = {"what": error.what, "why": error.why, "remedy": error.remedy}
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What asking for one accelerator after another gives, in one process."""
    printed = run_forked(CONNECT, "gpu", "auto", "cpu", "sim:2", "sim:3", cwd=tmp_path_factory.mktemp("connect"))
    told: dict[str, Any] = json.loads(printed)
    return told


@WITHOUT_GPU
def test_a_gpu_that_is_not_there_is_an_error_that_lists_what_is(connected: dict[str, Any]) -> None:
    error = connected["gpu"]
    assert error["what"] == "There is no GPU that TensorFlow can use."
    assert error["why"] == "No NVIDIA GPU was found."
    assert "cpu (" in error["remedy"]
    assert "sim:N" in error["remedy"]


@WITHOUT_GPU
def test_auto_says_what_it_chose_and_why(connected: dict[str, Any]) -> None:
    assert connected["auto"]["accelerator"] == "cpu"
    assert connected["auto"]["reason"] == "auto: No NVIDIA GPU was found."


def test_the_cpu_is_one_replica(connected: dict[str, Any]) -> None:
    event = connected["cpu"]
    assert (event["accelerator"], event["reason"], event["strategy"]) == (
        "cpu",
        "asked for",
        "one device",
    )
    (replica,) = event["replicas"]
    assert replica["kind"].startswith("CPU, ")
    assert replica["host"]


def test_simulated_replicas_are_numbered_devices(connected: dict[str, Any]) -> None:
    event = connected["sim:2"]
    assert (event["accelerator"], event["strategy"]) == ("sim:2", "MirroredStrategy")
    assert [replica["index"] for replica in event["replicas"]] == [0, 1]
    assert len({replica["device"] for replica in event["replicas"]}) == 2


def test_another_accelerator_in_the_same_process_is_explained(connected: dict[str, Any]) -> None:
    assert connected["sim:3"]["what"] == "The accelerator 'sim:3' can no longer be set up in this process."
    assert "its own process" in connected["sim:3"]["remedy"]


@WITHOUT_GPU
def test_a_run_that_asks_for_a_missing_gpu_fails_with_that_sentence(tmp_path: Path) -> None:
    failed = the(run_host(small_config(accelerator="gpu"), tmp_path), RunFailed)
    assert failed.what == "There is no GPU that TensorFlow can use."
    assert "sim:N" in failed.remedy


def replicated(accelerator: str, batch: int, folder: Path, **changes: Any) -> RunDirectory:
    """The same training on some accelerator.

    Plain gradient descent, so that a gradient of the wrong size shows, and all of the data in every step: the
    order of shuffled examples is another one under a strategy.
    """
    return run_host(
        small_config(
            accelerator=accelerator,
            batch_size=batch,
            epochs=12,
            seed=5,
            data={"train_limit": 128},
            optimizer={"name": "sgd", "learning_rate": 0.5},
            **changes,
        ),
        folder,
    )


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return replicated("cpu", 128, tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return replicated("sim:2", 64, tmp_path_factory.mktemp("two"), steps_per_execution=2)


def test_two_replicas_learn_what_one_learns(one: RunDirectory, two: RunDirectory) -> None:
    # Only the order of summation differs: float32's rounding, grown over some steps.
    assert all_of(one, EpochEnded)[-1].logs["loss"] < 0.9 * all_of(one, EpochEnded)[0].logs["loss"]
    for alone, shared in zip(all_of(one, EpochEnded), all_of(two, EpochEnded), strict=True):
        assert shared.logs.keys() == alone.logs.keys()
        for name in ("loss", "val_loss"):
            assert shared.logs[name] == pytest.approx(alone.logs[name], rel=1e-4)
        for name in ("accuracy", "val_accuracy"):
            assert shared.logs[name] == pytest.approx(alone.logs[name], abs=1e-6)


def test_replicas_share_the_global_batch_and_run_one_step_at_a_time(two: RunDirectory) -> None:
    fit = the(two, FitStarted)
    assert (fit.global_batch, fit.replica_batch, fit.steps_per_execution) == (128, 64, 1)
    assert "keras#19246" in fit.execution_reason
    assert "so 2 is ignored" in fit.execution_reason
    assert len(the(two, AcceleratorReady).replicas) == 2


def test_the_end_of_an_epoch_and_of_training_waits_for_no_iterator(two: RunDirectory) -> None:
    # Iterators that tune themselves end as late as they ran: longer than the epochs took, once a replica.
    timed = timed_events_of(two)
    ends = [number for number, (_, event) in enumerate(timed) if isinstance(event, EpochEnded)]
    waits = [timed[number + 1][0] - timed[number][0] for number in ends]
    assert len(waits) == 12
    assert max(waits) < 3.0


def test_simulated_replicas_report_why_they_have_no_memory_figures(two: RunDirectory) -> None:
    memory = all_of(two, MemorySampled)[0].replicas
    assert [figure.index for figure in memory] == [0, 1]
    assert all(figure.used_bytes is None and "shares the host process" in figure.why_not for figure in memory)


def test_validation_data_that_does_not_divide_is_validated_whole(tmp_path: Path) -> None:
    replicas = 4
    config = small_config(
        accelerator=f"sim:{replicas}", batch_size=16, steps_per_execution="auto", data={"validation_fraction": 0.203}
    )
    run = run_host(config, tmp_path)
    data = the(run, DataReady)
    assert data.validation_examples is not None
    assert data.validation_examples % replicas
    assert the(run, FitStarted).steps_per_execution == 1
    accuracy = the(run, EpochEnded).logs["val_accuracy"]
    # A mean over exactly so many examples.
    assert accuracy * data.validation_examples == pytest.approx(round(accuracy * data.validation_examples), abs=1e-2)
    assert the(run, RunFinished).summary["replicas"] == replicas
