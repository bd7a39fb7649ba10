"""Connecting accelerators in separate processes, as TensorFlow fixes a process's devices, and finding a TPU."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest

from tests.helpers import LIMIT_S, all_of, run_forked, run_host, small_config, the, timed_events_of
from tpu_console.engine.accelerators.tpu_strategy import (
    Target,
    choose_target,
    connect_tpu,
    describe_topology,
    probe,
    replicas,
)
from tpu_console.engine.errors import AcceleratorError
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


@pytest.mark.slow
@WITHOUT_GPU
def test_a_gpu_that_is_not_there_is_an_error_that_lists_what_is(connected: dict[str, Any]) -> None:
    error = connected["gpu"]
    assert error["what"] == "There is no GPU that TensorFlow can use."
    assert error["why"] == "No NVIDIA GPU was found."
    assert "cpu (" in error["remedy"]
    assert "sim:N" in error["remedy"]


@pytest.mark.slow
@WITHOUT_GPU
def test_auto_says_what_it_chose_and_why(connected: dict[str, Any]) -> None:
    assert connected["auto"]["accelerator"] == "cpu"
    assert connected["auto"]["reason"] == "auto: No NVIDIA GPU was found."


@pytest.mark.slow
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


@pytest.mark.slow
def test_simulated_replicas_are_numbered_devices(connected: dict[str, Any]) -> None:
    event = connected["sim:2"]
    assert (event["accelerator"], event["strategy"]) == ("sim:2", "MirroredStrategy")
    assert [replica["index"] for replica in event["replicas"]] == [0, 1]
    assert len({replica["device"] for replica in event["replicas"]}) == 2


@pytest.mark.slow
def test_another_accelerator_in_the_same_process_is_explained(connected: dict[str, Any]) -> None:
    assert connected["sim:3"]["what"] == "The accelerator 'sim:3' can no longer be set up in this process."
    assert "its own process" in connected["sim:3"]["remedy"]


@pytest.mark.slow
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


@pytest.mark.slow
def test_two_replicas_learn_what_one_learns(one: RunDirectory, two: RunDirectory) -> None:
    # Only the order of summation differs: float32's rounding, grown over some steps.
    assert all_of(one, EpochEnded)[-1].logs["loss"] < 0.9 * all_of(one, EpochEnded)[0].logs["loss"]
    for alone, shared in zip(all_of(one, EpochEnded), all_of(two, EpochEnded), strict=True):
        assert shared.logs.keys() == alone.logs.keys()
        for name in ("loss", "val_loss"):
            assert shared.logs[name] == pytest.approx(alone.logs[name], rel=1e-4)
        for name in ("accuracy", "val_accuracy"):
            assert shared.logs[name] == pytest.approx(alone.logs[name], abs=1e-6)


@pytest.mark.slow
def test_replicas_share_the_global_batch_and_run_one_step_at_a_time(two: RunDirectory) -> None:
    fit = the(two, FitStarted)
    assert (fit.global_batch, fit.replica_batch, fit.steps_per_execution) == (128, 64, 1)
    assert "keras#19246" in fit.execution_reason
    assert "so 2 is ignored" in fit.execution_reason
    assert len(the(two, AcceleratorReady).replicas) == 2


@pytest.mark.slow
def test_the_end_of_an_epoch_and_of_training_waits_for_no_iterator(two: RunDirectory) -> None:
    # Iterators that tune themselves end as late as they ran: longer than the epochs took, once a replica.
    timed = timed_events_of(two)
    ends = [number for number, (_, event) in enumerate(timed) if isinstance(event, EpochEnded)]
    waits = [timed[number + 1][0] - timed[number][0] for number in ends]
    assert len(waits) == 12
    assert max(waits) < 3.0


@pytest.mark.slow
def test_simulated_replicas_report_why_they_have_no_memory_figures(two: RunDirectory) -> None:
    memory = all_of(two, MemorySampled)[0].replicas
    assert [figure.index for figure in memory] == [0, 1]
    assert all(figure.used_bytes is None and "shares the host process" in figure.why_not for figure in memory)


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("asked", "environ", "is_here", "address", "why"),
    [
        ("10.0.0.2:8470", {"COLAB_TPU_ADDR": "1.2.3.4:8470"}, True, "grpc://10.0.0.2:8470", "asked for"),
        ("grpc://10.0.0.2:8470", {}, False, "grpc://10.0.0.2:8470", "asked for"),
        ("my-tpu", {}, True, "my-tpu", "asked for"),
        ("", {"COLAB_TPU_ADDR": "1.2.3.4:8470", "TPU_NAME": "n"}, True, "grpc://1.2.3.4:8470", "COLAB_TPU_ADDR"),
        ("", {"TPU_NAME": "n"}, True, "local", "the TPU of this machine"),
        ("", {"TPU_NAME": "n"}, False, "n", "TPU_NAME"),
    ],
)
def test_the_tpu_is_looked_for_in_tensorflow_s_order(
    asked: str, environ: dict[str, str], is_here: bool, address: str, why: str
) -> None:
    assert choose_target(asked, environ, is_here=is_here) == Target(address, why)


def test_without_any_tpu_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLAB_TPU_ADDR", "TPU_NAME"):
        monkeypatch.delenv(name, raising=False)
    assert choose_target("", {}, is_here=False) is None
    with pytest.raises(AcceleratorError, match="There is no TPU that TensorFlow can use"):
        connect_tpu("")


def test_a_topology_names_every_device_its_chip_and_core() -> None:
    # A v3-8, as TensorFlow's Topology describes it: 4 chips in a square, two cores each.
    coordinates = np.array([[[x, y, 0, core] for y in (0, 1) for x in (0, 1) for core in (0, 1)]])
    found = replicas(coordinates, "TPU v3", "local")
    assert [replica.index for replica in found] == list(range(8))
    assert (found[3].device, found[3].coordinates, found[3].core) == ("/task:0/device:TPU:3", "1,0,0", 1)
    assert describe_topology([2, 2, 1, 2], 1, 8) == "2×2×1 mesh of chips with 2 cores, 1 task of 8 devices"
    assert describe_topology([2, 2, 4, 1], 4, 4) == "2×2×4 mesh of chips, 4 tasks of 4 devices"


@pytest.mark.slow
def test_a_grpc_server_without_a_tpu_is_reported() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(AcceleratorError) as caught:
            probe(Target(f"grpc://127.0.0.1:{port}", "TPU_NAME"), limit_s=2 * LIMIT_S)
        assert "is not a TPU" in caught.value.why
    finally:
        server.stop(None)


@pytest.mark.slow
def test_a_probe_that_takes_too_long_is_ended() -> None:
    with pytest.raises(AcceleratorError) as caught:
        probe(Target("local", "the TPU of this machine"), limit_s=1)  # importing TensorFlow alone takes longer
    assert caught.value.what == "The TPU at local (the TPU of this machine) did not answer within 1 s."


@pytest.mark.slow
def test_tensorflow_without_tpu_operations_is_reported_with_the_remedy() -> None:
    with pytest.raises(AcceleratorError) as caught:
        probe(Target("local", "asked for"), limit_s=2 * LIMIT_S)
    assert "built without TPU operations" in caught.value.why
    assert "tensorflow-tpu" in caught.value.remedy
