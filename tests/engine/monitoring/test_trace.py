"""Traces as TPUs and GPUs write them, made up with their names; `test_profiling.py` reads real ones of CPUs."""

from __future__ import annotations

from typing import Any

import pytest

from tpu_console.engine.compat.tensorflow import trace_messages
from tpu_console.engine.errors import DataError
from tpu_console.engine.monitoring.trace import read_trace

SPACES, PROGRAMS = trace_messages()
MS = 10**9  # picoseconds


class Plane:
    """A plane of a trace, to which events are added."""

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


@pytest.mark.parametrize("data", [b"\xff" * 100, b"not a trace", SPACES.XSpace().SerializeToString()])
def test_what_is_no_trace_is_an_error_or_empty(data: bytes) -> None:
    if data:
        with pytest.raises(DataError):
            read_trace(data, frozenset({"dense"}))
    else:
        assert read_trace(data, frozenset({"dense"})).computing == 0


def test_a_torn_trace_is_an_error() -> None:
    space = SPACES.XSpace()
    Plane(space, "/device:TPU:0").add("XLA Ops", "fusion.1", 0, 1)
    with pytest.raises(DataError):
        read_trace(space.SerializeToString()[:-3], frozenset())
