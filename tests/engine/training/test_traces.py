"""Traces of TPUs and GPUs: a real one, programs of the TPU compiler, and made-up ones.

`test_profiling.py` reads real ones of CPUs.
"""

import gzip
import math
from pathlib import Path
from typing import Any

import pytest

from tpu_console.engine.compat.tensorflow import trace_messages
from tpu_console.engine.errors import DataError
from tpu_console.engine.runs.events import AcceleratorReady, Profiled, Spent
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.training.profiling import Trace, read_trace
from tpu_console.tui.text.profile import reason_of

SPACES, PROGRAMS = trace_messages()
MS = 10**9  # picoseconds
TRACES = Path(__file__).parent / "traces"
MATRIX_UNIT, HBM = 197.0, 819.0  # TFLOP/s and GB/s of a v5e chip


class Plane:
    def __init__(self, space: Any, name: str) -> None:
        self.plane = space.planes.add(name=name)
        self._ids: dict[str, int] = {}

    def add(self, line: str, name: str, begin_ms: float, ms: float, **stats: str) -> None:
        found = next((one for one in self.plane.lines if one.name == line), None) or self.plane.lines.add(name=line)
        number = len(self._ids) + 1
        self._ids[f"{name}/{number}"] = number
        self.plane.event_metadata[number].name = name
        event = found.events.add(metadata_id=number, offset_ps=round(begin_ms * MS), duration_ps=round(ms * MS))
        for key, text in stats.items():
            at = self._ids.setdefault(key, 1000 + len(self._ids))
            self.plane.stat_metadata[at].name = key
            event.stats.add(metadata_id=at, str_value=text)


def test_the_lines_of_a_tpu_are_not_counted_twice() -> None:
    space = SPACES.XSpace()
    for core in range(2):
        plane = Plane(space, f"/device:TPU:{core}")
        plane.add("XLA Modules", "jit_train_step(1)", 0, 10)
        plane.add("XLA Ops", "while.1", 0, 6, tf_op="jit(train_step)/jvp(dense)/while:")
        plane.add("XLA Ops", "fusion.1", 1, 4, tf_op="jit(train_step)/jvp(dense)/dot_general:")
        plane.add("XLA Ops", "all-reduce.1", 6, 2, tf_op="jit(train_step)/psum:")
        plane.add("XLA Ops", "infeed.1", 8, 1)
        plane.add("Async XLA Ops", "copy-start", 0, 9)
    Plane(space, "/host:CPU").add("tf_Compute/1", "model/dense/MatMul:MatMul", 0, 50)
    found = read_trace(space.SerializeToString(), frozenset({"dense"}), "adam")
    assert (found.computing, found.exchange, found.transfer) == pytest.approx((0.008, 0.002, 0.001))
    assert found.layers == pytest.approx({"dense": 0.006})
    assert found.operations == pytest.approx({"while": 0.002, "dot_general": 0.004})


def test_operations_of_several_streams_at_once_count_once() -> None:
    space = SPACES.XSpace()
    plane = Plane(space, "/device:GPU:0")
    plane.add("Stream #1(Compute)", "gemm", 0, 4, tf_op="model/conv2d_1/MatMul:MatMul")
    plane.add("Stream #2(Compute)", "add", 2, 4, tf_op="model/conv2d_1_2/Add:AddV2")
    plane.add("Stream #3(MemcpyH2D)", "MemcpyH2D", 5, 3)
    plane.add("Steps", "1", 0, 100)
    found = read_trace(space.SerializeToString(), frozenset({"conv2d", "conv2d_1"}), "adam")
    assert (found.computing, found.transfer) == pytest.approx((0.006, 0.002))
    assert found.layers == pytest.approx({"conv2d": 0.003, "conv2d_1": 0.003})


def test_what_the_compiler_made_counts_with_what_uses_it() -> None:
    space = SPACES.XSpace()
    program = PROGRAMS.HloProto()
    program.hlo_module.name = "jit_train_step"
    part = program.hlo_module.computations.add(id=1)
    part.instructions.add(id=1, name="param", opcode="parameter").metadata.op_name = "state[0]"
    part.instructions.add(id=2, name="copy.1", opcode="copy", operand_ids=[1])
    part.instructions.add(id=3, name="dot.1", opcode="dot", operand_ids=[2]).metadata.op_name = "jvp(dense)/dot"
    part.instructions.add(id=4, name="copy.2", opcode="copy", operand_ids=[3])
    part.instructions.add(id=5, name="sub.1", opcode="subtract", operand_ids=[4]).metadata.op_name = "step/adam/sub"
    names = Plane(space, "/host:metadata").plane
    names.event_metadata[1].stats.add(metadata_id=1, bytes_value=program.SerializeToString())
    plane = Plane(space, "/host:CPU")
    for at, name in enumerate(("copy.1", "dot.1", "copy.2", "sub.1")):
        plane.add("tf_XLAEigen/1", name, at, 1, hlo_op=name, hlo_module="jit_train_step")
    plane.add("python", "multi_step_on_iterator", 0, 50)
    plane.add("tf_data_iterator/1", "model/dense/Gather:Gather", 0, 50)
    found = read_trace(space.SerializeToString(), frozenset({"dense"}), "adam")
    assert found.layers == pytest.approx({"dense": 0.003, "adam": 0.001})


def a_v5e_step(precision: str) -> tuple[bytes, float]:
    """Return a trace of a step that the TPU compiler compiled, as a TPU writes it, and its seconds.

    Each operation takes as long as its result and what it reads take to move.
    """
    data = gzip.decompress((TRACES / f"{precision}.hlo.pb.gz").read_bytes())
    program = PROGRAMS.HloProto.FromString(data).hlo_module
    space, at = SPACES.XSpace(), 0
    names = space.planes.add(name="/host:metadata")
    names.event_metadata[1].name = f"{program.name}(123)"
    names.event_metadata[1].stats.add(metadata_id=1, bytes_value=data)
    plane = space.planes.add(name="/device:TPU:0")
    space.planes.add(name="/device:TPU:0 SparseCore 0").lines.add(name="XLA Ops").events.add(duration_ps=MS)
    stats = ["peak_teraflops_per_second", "peak_hbm_bw_gigabytes_per_second", "program_id", "memory_access_breakdown"]
    for number, name in enumerate([*stats, "hlo_category", "convolution fusion"], 1):
        plane.stat_metadata[number].name = name
    plane.stats.add(metadata_id=1, double_value=MATRIX_UNIT)
    plane.stats.add(metadata_id=2, double_value=HBM)
    line = plane.lines.add(name="XLA Ops")
    (entry,) = (part for part in program.computations if part.id == program.entry_computation_id)
    sizes = {
        one.id: math.prod(one.shape.dimensions) * (2 if one.shape.element_type == 16 else 4)
        for one in entry.instructions
    }
    for number, one in enumerate(entry.instructions, 1):
        if one.opcode not in {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}:
            size = sizes[one.id] + sum(sizes[operand] for operand in one.operand_ids)
            metadata, ps = plane.event_metadata[number], round(size / (HBM * 1e9) * 1e12)
            metadata.name, metadata.display_name = f"%{one.name} = f32[] {one.opcode}(f32[] %a)", one.name
            metadata.stats.add(metadata_id=3, uint64_value=123)
            varint = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21])
            access = bytes([8, 1, 16, 1, 24]) + varint
            metadata.stats.add(metadata_id=4, bytes_value=bytes([10, len(access)]) + access)
            metadata.stats.add(metadata_id=5, ref_value=6)
            line.events.add(metadata_id=number, offset_ps=at, duration_ps=ps)
            at += ps
    return space.SerializeToString(), at / 1e12


def test_a_program_that_waits_for_a_core_or_memory_computes() -> None:
    space = SPACES.XSpace()
    plane = Plane(space, "/host:CPU")
    plane.add("tf_XLAExecute/1", "ThunkExecutor::Execute (wait for completion)", 0, 10)
    plane.add("tf_XLAEigen/1", "dot.1", 1, 3, hlo_op="dot.1", tf_op="jit(step)/dense/dot:")
    plane.add("tf_XLAEigen/1", "all-reduce.1", 4, 2, hlo_op="all-reduce.1")
    found = read_trace(space.SerializeToString(), frozenset({"dense"}), "adam")
    assert (found.computing, found.exchange) == pytest.approx((0.010, 0.002))
    assert found.layers == pytest.approx({"dense": 0.008})


def as_event(found: Trace, seconds: float) -> Profiled:
    """Return what a run reports of a trace if it computes all the time."""
    return Profiled(
        epoch=1,
        step=10,
        elapsed_s=1.0,
        steps=1,
        step_s=seconds,
        spent={Spent.COMPUTING: seconds},
        layers=dict(sorted(found.layers.items(), key=lambda one: -one[1])),
        operations=found.operations,
        callbacks={},
        optimizer="adam",
        weights={"dense": 1.0},
        trace="",
        float32_s=found.float32,
        matrix_unit=found.matrix_unit,
        bandwidth=found.bandwidth,
    )


def test_a_step_of_the_tpu_compiler_shows_its_layers_and_its_float32() -> None:
    first, layers = {}, frozenset({"conv2d", "max_pooling2d", "re_lu", "flatten", "dense", "dense_1"})
    state = RunState(accelerator=AcceleratorReady("tpu", "", "", (), {}, "jax"))
    for precision in ("float32", "mixed_bfloat16"):
        data, seconds = a_v5e_step(precision)
        found = read_trace(data, layers, "adam")
        assert found.computing == pytest.approx(seconds)
        assert sum(found.layers.values()) == pytest.approx(seconds)
        assert found.layers.get("", 0.0) < 0.05 * seconds
        assert found.layers.keys() >= {"conv2d", "dense", "dense_1", "max_pooling2d"}
        assert found.bandwidth == pytest.approx(1.0, rel=1e-3)
        first[precision] = reason_of(as_event(found, seconds), state)
    assert "precision=mixed_bfloat16" in first["float32"]
    assert "'dense'" in first["mixed_bfloat16"]
    assert "100%" in first["mixed_bfloat16"]  # of the memory's bandwidth


@pytest.mark.skipif(not (TRACES / "v6e.xplane.pb.gz").exists(), reason="fetched by tests.engine.training.traces")
def test_a_real_trace_of_eight_chips_that_wait_for_the_memory_of_their_host() -> None:
    found = read_trace(gzip.decompress((TRACES / "v6e.xplane.pb.gz").read_bytes()), frozenset(), "adam")
    assert found.transfer == pytest.approx(76.06, rel=1e-3)
    assert (found.computing, found.exchange) == pytest.approx((2.716, 0.365), rel=1e-2)
    assert found.operations.keys() == {"add", "broadcast_in_dim"}
    assert found.bandwidth == pytest.approx(0.797, rel=1e-2)
    assert found.matrix_unit == pytest.approx(0.0, abs=1e-3)  # it only adds
    alone = found.computing - found.exchange
    assert found.float32 == pytest.approx(alone)
    state = RunState(accelerator=AcceleratorReady("tpu", "", "", (), {}, "jax"))
    assert "precision=mixed_bfloat16" in reason_of(as_event(found, alone), state)


def test_what_is_no_trace_or_a_torn_one_is_an_error_and_an_empty_one_has_nothing() -> None:
    space = SPACES.XSpace()
    assert read_trace(space.SerializeToString(), frozenset({"dense"})).computing == 0
    Plane(space, "/device:TPU:0").add("XLA Ops", "fusion.1", 0, 1)
    for data in (b"\xff" * 100, b"not a trace", space.SerializeToString()[:-3]):
        with pytest.raises(DataError):
            read_trace(data, frozenset({"dense"}))
