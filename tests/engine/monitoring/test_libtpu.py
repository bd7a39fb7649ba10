"""What a TPU's runtime serves: read from a real gRPC server of the same protocol, through all its troubles."""

from __future__ import annotations

import importlib.util
import mmap
import socket
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.protobuf import descriptor_pb2  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tests.engine.monitoring.tpu_runtime import GIB, Runtime
from tests.helpers import wait_until
from tpu_console.engine.monitoring.sampler import (
    DUTY_CYCLE,
    HBM_TOTAL,
    HBM_USED,
    RuntimeMetrics,
    messages,
    metric_ports,
    spread,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Serve = Callable[..., Runtime]

TWO_CHIPS: dict[str, Mapping[int, float]] = {
    HBM_USED: {0: 3 * GIB, 1: 5 * GIB},
    HBM_TOTAL: {0: 16 * GIB, 1: 16 * GIB},
    DUTY_CYCLE: {0: 97.5, 1: 0.0},
}


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers, of which none outlives the test."""
    with ExitStack() as stack:

        def start(figures: Mapping[str, Mapping[int, float]] = TWO_CHIPS, port: int = 0) -> Runtime:
            runtime = Runtime(figures, port)
            stack.callback(runtime.close)
            return runtime

        yield start


def test_every_chip_s_figures_are_read_and_change_with_the_runtime_s(serve: Serve) -> None:
    runtime = serve()
    with closing(RuntimeMetrics([runtime.port])) as metrics:
        for metric, figures in TWO_CHIPS.items():
            assert metrics.read(metric) == (figures, "")
        runtime.figures[HBM_USED] = {0: 4 * GIB, 1: 60 * GIB}
        assert metrics.read(HBM_USED)[0] == {0: 4 * GIB, 1: 60 * GIB}


@pytest.mark.parametrize(
    ("break_", "mend", "why"),
    [
        (lambda one, _: one.awake.clear(), lambda one, _: one.awake.set(), "(DEADLINE_EXCEEDED)"),
        (lambda one, _: setattr(one, "raw", b"\xff\xff\xff"), lambda one, _: setattr(one, "raw", None), "localhost:"),
        (lambda one, _: one.figures.pop(DUTY_CYCLE), lambda one, _: one.figures.update(TWO_CHIPS), "(NOT_FOUND)"),
        (
            lambda one, _: one.figures.update({DUTY_CYCLE: {}}),
            lambda one, _: one.figures.update(TWO_CHIPS),
            "no figures",
        ),
        (lambda one, _: one.close(), lambda one, serve: serve(port=one.port), "localhost:"),
    ],
    ids=["it hangs", "it answers nonsense", "it does not know the metric", "it has no figures yet", "it is gone"],
)
def test_a_runtime_in_trouble_is_asked_once_in_a_while_and_heard_again(
    serve: Serve, break_: Callable[..., object], mend: Callable[..., object], why: str
) -> None:
    runtime, clock = serve(), Clock()
    with closing(RuntimeMetrics([runtime.port], deadline_s=0.5, clock=clock)) as metrics:

        def answered() -> bool:
            clock.now += 11
            return metrics.read(DUTY_CYCLE)[0] == TWO_CHIPS[DUTY_CYCLE]

        wait_until(answered, "the first answer")
        break_(runtime, serve)
        figures, why_not = metrics.read(DUTY_CYCLE)
        assert (figures, why in why_not) == ({}, True)
        mend(runtime, serve)
        assert metrics.read(DUTY_CYCLE) == ({}, why_not)  # it is not asked meanwhile
        wait_until(answered, "an answer")


def test_chips_with_a_port_each_are_put_together(serve: Serve) -> None:
    first, second = serve({DUTY_CYCLE: {0: 10.0}}), serve({DUTY_CYCLE: {1: 20.0}})
    with socket.create_server(("localhost", 0)) as listener:  # another server, which does not answer
        ports = (listener.getsockname()[1], first.port, second.port)
        with closing(RuntimeMetrics(ports, deadline_s=0.5)) as metrics:
            assert metrics.read(DUTY_CYCLE)[0] == {0: 10.0, 1: 20.0}


@pytest.mark.parametrize(
    ("variables", "ports"),
    [
        ({}, (8431,)),
        ({"TPU_RUNTIME_METRICS_PORTS": ""}, (8431,)),
        ({"TPU_RUNTIME_METRICS_PORTS": "8431,8432, 8433,8434"}, (8431, 8432, 8433, 8434)),
        ({"TPU_RUNTIME_METRICS_PORTS": "nonsense"}, (8431,)),
    ],
)
def test_the_ports_come_from_the_environment(variables: dict[str, str], ports: tuple[int, ...]) -> None:
    assert metric_ports(variables) == ports


@pytest.mark.parametrize(
    ("figures", "devices", "dealt"),
    [
        pytest.param({0: 1.0, 1: 2.0}, [0, 1], {0: 1.0, 1: 2.0}, id="a chip a device"),
        pytest.param({0: 1.0, 1: 2.0}, [0, 1, 2, 3], {0: 1.0, 1: 1.0, 2: 2.0, 3: 2.0}, id="v3: two devices a chip"),
        pytest.param({0: 1.0, 1: 2.0}, [3, 2, 0, 1], {0: 1.0, 1: 1.0, 2: 2.0, 3: 2.0}, id="replicas in another order"),
        pytest.param({8: 1.0, 13: 4.0, 9: 2.0, 12: 3.0}, [8, 9, 12, 13], {8: 1.0, 9: 2.0, 12: 3.0, 13: 4.0}, id="pod"),
        pytest.param({0: 1.0, 1: 2.0}, [4, 5], {4: 1.0, 5: 2.0}, id="numbered by host"),
        pytest.param({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}, [2], {2: 3.0}, id="a process a chip"),
        pytest.param({0: 1.0, 1: 2.0, 2: 3.0}, [7], {}, id="neighbours only"),
        pytest.param({0: 1.0, 1: 2.0, 2: 3.0}, [0, 1, 2, 3], {}, id="three of four"),
        pytest.param({0: 1.0, 1: 2.0}, [0, 1, 0, 1], {}, id="two machines"),
        pytest.param({}, [0], {}, id="nothing"),
    ],
)
def test_figures_are_dealt_out_to_devices(
    figures: dict[int, float], devices: list[int], dealt: dict[int, float]
) -> None:
    assert spread(figures, devices) == dealt


LIBTPU = importlib.util.find_spec("libtpu")


@pytest.mark.skipif(LIBTPU is None, reason="libtpu is not installed (extra `tpu`)")
def test_the_fields_are_those_that_libtpu_itself_has() -> None:
    assert LIBTPU is not None
    assert LIBTPU.origin is not None
    theirs = libtpu_protocol(Path(LIBTPU.origin).with_name("libtpu.so"))
    fields = {message.name: {field.name: field for field in message.field} for message in theirs.message_type}
    for name, ours in messages().items():
        described = descriptor_pb2.DescriptorProto()
        ours.DESCRIPTOR.CopyToProto(described)
        for field in described.field:
            their = fields[name][field.name]
            assert (field.number, field.type, field.label) == (their.number, their.type, their.label), field.name
    (service,) = theirs.service
    (method,) = (method for method in service.method if method.name == "GetRuntimeMetric")
    assert (service.name, theirs.package) == ("RuntimeMetricService", "tpu.monitoring.runtime")
    assert (method.input_type, method.output_type) == tuple(
        f".tpu.monitoring.runtime.{name}" for name in ("MetricRequest", "MetricResponse")
    )


def libtpu_protocol(library: Path) -> descriptor_pb2.FileDescriptorProto:
    """The description of the protocol that the library carries, found by its file's name."""
    path = b"cloud/tpu/lib/monitoring/runtime/proto/tpu_metric_service.proto"
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        begin = content.find(b"\x0a" + bytes([len(path)]) + path)
        assert begin >= 0
        text = content[begin : begin + (64 << 10)]
    service = text.index(b"RuntimeMetricService")
    for end in range(service, service + 4096):
        try:
            found = descriptor_pb2.FileDescriptorProto.FromString(text[:end])
        except DecodeError:  # cut in the middle of a field: the end is further on
            continue
        if found.service and found.syntax:
            return found
    raise AssertionError("the description's end was not found")
