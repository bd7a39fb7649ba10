"""Connecting accelerators in separate processes, as TensorFlow fixes a process's devices, and finding a TPU."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest

from tests.helpers import LIMIT_S, run_forked
from tpu_console.engine.accelerators.backend import FRAMEWORKS
from tpu_console.engine.accelerators.tensorflow import (
    Target,
    choose_target,
    connect_tpu,
    describe_topology,
    probe,
    refusal,
    replicas,
)
from tpu_console.engine.errors import AcceleratorError
from tpu_console.engine.machine.devices import detect_hardware

CONNECT = """
import json, sys
from msgspec import to_builtins
from tests.helpers import small_config
from tpu_console.engine.accelerators.backend import FRAMEWORKS
from tpu_console.engine.errors import AcceleratorError
told = {}
for name in sys.argv[1:]:
    try:
        told[name] = to_builtins(FRAMEWORKS["tensorflow"].connect(small_config(), name).event())
    except AcceleratorError as error:
        told[name] = {"what": error.what, "why": error.why, "remedy": error.remedy}
print(json.dumps(told))
"""


@pytest.mark.slow
def test_one_process_connects_one_accelerator_and_explains_what_is_missing(tmp_path: Path) -> None:
    told = json.loads(run_forked(CONNECT, "gpu", "auto", "cpu", "sim:2", "sim:3", cwd=tmp_path))
    if not detect_hardware().gpus:
        error, auto = told["gpu"], told["auto"]
        assert ("no GPU" in error["what"], "NVIDIA" in error["why"]) == (True, True)
        assert {"cpu", "sim:N"} <= {*error["remedy"].split()}
        assert (auto["accelerator"], auto["reason"]) == ("cpu", f"auto: {error['why']}")
    cpu, simulated = told["cpu"], told["sim:2"]
    assert (cpu["accelerator"], cpu["reason"], cpu["strategy"]) == ("cpu", "asked for", "one device")
    (replica,) = cpu["replicas"]
    assert replica["kind"].startswith("CPU, ")
    assert replica["host"]
    assert (simulated["accelerator"], simulated["strategy"]) == ("sim:2", "MirroredStrategy")
    assert [replica["index"] for replica in simulated["replicas"]] == [0, 1]
    assert len({replica["device"] for replica in simulated["replicas"]}) == 2
    assert "'sim:3'" in told["sim:3"]["what"]
    assert "its own process" in told["sim:3"]["remedy"]


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
        connect_tpu(FRAMEWORKS["tensorflow"], "")


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
    assert "within 1 s" in caught.value.what


PROBE = "import runpy; runpy.run_module('tpu_console.engine.accelerators.tensorflow', None, '__main__', True)"


@pytest.mark.slow
def test_tensorflow_without_tpu_operations_is_reported_with_the_remedy(tmp_path: Path) -> None:
    answer = json.loads(run_forked(PROBE, "local", cwd=tmp_path, env={"TPU_SKIP_MDS_QUERY": "1"}))
    error = refusal(Target("local", "asked for"), answer["error"])
    assert "TPU operations" in error.why
    assert "tensorflow-tpu" in error.remedy
