"""What is sampled beside training: the host within its limits, devices with reasons, this host's pace, the thread.

A TPU's runtime is a real gRPC server of the same protocol, which goes through all its troubles.
"""

import json
import mmap
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import ExitStack, closing, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tests.helpers import (
    LIMIT_S,
    all_of,
    epoch_ended,
    events_of,
    replace,
    run_forked,
    run_python,
    small_config,
    wait_until,
)
from tpu_console.engine.accelerators.backend import FRAMEWORKS
from tpu_console.engine.accelerators.framework import Accelerator, Share
from tpu_console.engine.machine.sources import Sources, this_machine
from tpu_console.engine.monitoring import sampler
from tpu_console.engine.monitoring.sampler import DUTY_CYCLE, HBM_TOTAL, HBM_USED, DeviceReader, HostPace, HostReader
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.process.main import EngineThread
from tpu_console.engine.runs import events
from tpu_console.engine.runs.events import HostSampled, MemorySampled, Progress, Replica, ReplicaMemory
from tpu_console.engine.runs.journal import JournalWriter, encode
from tpu_console.engine.training.notebook import NotebookRun

Serve = Callable[..., "Runtime"]

GIB = 1 << 30


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def put(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def machine(root: Path, files: dict[str, str], cpus: int = 8) -> Sources:
    put(root, {"proc/meminfo": f"MemTotal: {64 << 20} kB\n", **files})
    return replace(this_machine(), root=root, cpus=cpus)


VERSION_2 = {
    "proc/self/cgroup": "0::/pod/run\n",
    "sys/fs/cgroup/pod/cpu.max": "200000 100000\n",
    "sys/fs/cgroup/pod/cpu.stat": "usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\n",
    "sys/fs/cgroup/pod/run/cpu.max": "max 100000\n",
    "sys/fs/cgroup/pod/run/memory.max": f"{8 * GIB}\n",
    "sys/fs/cgroup/pod/run/memory.current": f"{5 * GIB}\n",
    "sys/fs/cgroup/pod/run/memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",
}
VERSION_1 = {
    "proc/self/cgroup": "4:memory:/job\n3:cpuacct:/job\n2:cpu:/job\n",
    "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "200000\n",
    "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpuacct/job/cpuacct.usage": "5000000000\n",
    "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{8 * GIB}\n",
    "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{5 * GIB}\n",
    "sys/fs/cgroup/memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {2 * GIB}\n",
}


@pytest.mark.parametrize(
    ("files", "later"),
    [
        pytest.param(VERSION_2, {"sys/fs/cgroup/pod/cpu.stat": "usage_usec 6500000\n"}, id="cgroup 2"),
        pytest.param(VERSION_1, {"sys/fs/cgroup/cpuacct/job/cpuacct.usage": "6500000000\n"}, id="cgroup 1"),
    ],
)
def test_a_container_s_limits_are_what_its_use_is_set_against(
    files: dict[str, str], later: dict[str, str], tmp_path: Path
) -> None:
    clock = Clock()
    reader = HostReader(3, machine(tmp_path, files), clock)
    clock.now += 1.0
    put(tmp_path, later)
    sample = reader.read()
    assert (sample.process, sample.host, sample.elapsed_s) == (3, os.uname().nodename, None)
    # A second and a half of a core, where two may be kept busy for a second.
    assert sample.cpu_percent == 75.0
    assert (sample.ram_bytes, sample.ram_limit_bytes) == (3 * GIB, 8 * GIB)
    assert sample.why_not.keys() == {"disk_read_bytes_per_s"}


def test_a_container_that_does_not_report_its_use_is_named_as_the_reason(tmp_path: Path) -> None:
    told = {path: text for path, text in VERSION_2.items() if not path.endswith(("cpu.stat", "memory.current"))}
    sample = HostReader(sources=machine(tmp_path, told)).read()
    assert (sample.cpu_percent, sample.ram_bytes, sample.ram_limit_bytes) == (None, None, 8 * GIB)
    assert sample.why_not.keys() == {"cpu_percent", "ram_bytes", "disk_read_bytes_per_s"}


DISKS = """\
 259       0 nvme0n1 100 0 {disk} 5 0 0 0 0 0 0 0
 259       1 nvme0n1p1 100 0 {disk} 5 0 0 0 0 0 0 0
 253       0 dm-0 100 0 {disk} 5 0 0 0 0 0 0 0
   8       0 sda 100 0 {other} 5 0 0 0 0 0 0 0
   7       0 loop0 100 0 99999 5 0 0 0 0 0 0 0
"""


def test_what_is_read_from_disks_is_counted_once(tmp_path: Path) -> None:
    clock = Clock()
    files = {f"sys/block/{disk}/device/model": "disk" for disk in ("nvme0n1", "sda")}
    files |= {f"sys/block/{disk}/size": "1" for disk in ("dm-0", "loop0")}
    files["proc/diskstats"] = DISKS.format(disk=1000, other=500)
    reader = HostReader(sources=machine(tmp_path, files), clock=clock)
    clock.now += 2.0
    put(tmp_path, {"proc/diskstats": DISKS.format(disk=3000, other=600)})
    sample = reader.read()
    assert sample.disk_read_bytes_per_s == (2000 + 100) * 512 / 2
    assert "disk_read_bytes_per_s" not in sample.why_not


def fit(batch: int | None = 32) -> events.FitStarted:
    return events.FitStarted(2, 100, batch, None, 1)


def step(number: int, elapsed_s: float) -> Progress:
    return Progress(1, number, number, elapsed_s, {})


def test_the_pace_is_that_of_this_host_s_share_since_the_last_look() -> None:
    clock = Clock()
    pace = HostPace(share=0.25, clock=clock)
    assert (pace.elapsed_s(), pace.look()[0]) == (None, None)
    assert "begun" in pace.look()[1]
    pace.on_event(fit())
    clock.now += 12.5
    assert (pace.elapsed_s(), pace.look()[0]) == (12.5, None)
    pace.on_event(step(1, 20.0))  # compilation ended
    assert pace.look()[0] is None
    pace.on_event(step(11, 20.5))
    pace.on_event(step(21, 21.0))
    assert pace.look() == (20 * 32 * 0.25, "")
    pace.on_event(step(26, 22.0))
    assert pace.look() == (5 * 32 * 0.25, "")
    assert pace.look()[0] is None


def test_validation_does_not_count_as_training_time() -> None:
    pace = HostPace()
    pace.on_event(fit())
    pace.on_event(step(10, 1.0))
    pace.on_event(step(20, 2.0))
    assert pace.look() == (320.0, "")
    # Half a second of training, seven of validation.
    pace.on_event(epoch_ended(1, step=25, elapsed_s=9.5, validation_s=7.0))
    pace.on_event(step(30, 10.0))
    assert pace.look() == (320.0, "")


def test_a_resumed_run_and_a_second_fit_go_on_with_their_seconds_and_compile_apart() -> None:
    clock = Clock()
    pace = HostPace(clock=clock, earlier_s=100.0)
    pace.on_event(fit(batch=None))
    pace.on_event(step(10, 1.0))
    assert "batch" in pace.look()[1]
    clock.now += 30
    pace.on_event(fit(batch=64))
    pace.on_event(step(11, 30.0))
    pace.on_event(step(21, 31.0))
    assert (pace.look(), pace.elapsed_s()) == ((640.0, ""), 130)
    pace.on_event(events.RunResumed(1, 0, 10, 20.0, 1, "here"))  # it goes back to a checkpoint
    clock.now += 30  # the model is compiled again
    assert pace.elapsed_s() is None
    pace.on_event(fit())
    clock.now += 5
    assert pace.elapsed_s() == 25
    for phase in (events.Phase.PAUSED, events.Phase.TRAINING):
        pace.on_event(events.PhaseStarted(phase))
        clock.now += 5
    assert pace.elapsed_s() == 30  # without the pause


def accelerator(name: str, *replicas: Replica, backend: str = "tensorflow", process: int = 0) -> Accelerator:
    return Accelerator(name, "asked for", FRAMEWORKS[backend], "", replicas, nullcontext, {}, share=Share(process))


def test_a_cpu_s_memory_is_the_process_s() -> None:
    (memory,) = DeviceReader(accelerator("cpu", Replica(0, "/device:CPU:0", "CPU", "here"))).read().replicas
    assert memory.used_bytes is not None
    assert memory.peak_bytes is not None
    assert memory.limit_bytes is not None
    assert 1 << 20 < memory.used_bytes <= memory.peak_bytes < memory.limit_bytes
    assert (memory.why_not, memory.duty_percent) == ("", None)
    assert "TPU" in memory.duty_why_not


def test_only_this_process_s_replicas_are_read() -> None:
    replicas = [Replica(index, f"/device:CPU:{index}", "CPU", "here", process=index // 2) for index in range(4)]
    told = DeviceReader(accelerator("sim:4", *replicas, process=1)).read().replicas
    assert [memory.index for memory in told] == [2, 3]
    assert all("shares" in memory.why_not for memory in told)


JAX = """
import json, msgspec, sys
from contextlib import nullcontext
import jax
from tpu_console.engine.accelerators.framework import Accelerator
from tpu_console.engine.accelerators.backend import FRAMEWORKS
from tpu_console.engine.runs.events import Replica
from tpu_console.engine.monitoring.sampler import DeviceReader, RuntimeMetrics
replicas = tuple(
    Replica(index, f"{device.platform}:{device.id}", device.device_kind, "here")
    for index, device in enumerate(jax.local_devices())
)
told = {}
for name in ("gpu", "tpu"):
    connected = Accelerator(name, "asked for", FRAMEWORKS["jax"], "", replicas, nullcontext, {})
    reader = DeviceReader(connected, RuntimeMetrics([int(sys.argv[1])]))
    told[name] = msgspec.to_builtins(reader.read())["replicas"]
print(json.dumps(told))
"""


@pytest.mark.slow
def test_jax_says_why_it_reports_no_memory_of_a_cpu_and_the_runtime_fills_it_in(serve: Serve, tmp_path: Path) -> None:
    used = {0: 3 * GIB, 1: 5 * GIB, 2: 6 * GIB, 3: 7 * GIB}
    duty = {0: 97.46, 1: 12.0}  # by chip, of two devices each
    runtime = serve({HBM_USED: used, HBM_TOTAL: dict.fromkeys(used, 16 * GIB), DUTY_CYCLE: duty})
    environment = {"KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    printed = run_forked(JAX, str(runtime.port), cwd=tmp_path, env=environment)
    told = {name: [ReplicaMemory(**memory) for memory in memories] for name, memories in json.loads(printed).items()}
    why_not, no_duty = told["gpu"][0].why_not, told["gpu"][0].duty_why_not
    assert "JAX" in why_not
    assert "TPU" in no_duty
    assert told["gpu"] == [ReplicaMemory(index, None, None, None, why_not, None, no_duty) for index in range(4)]
    # The peak is still missing, and why.
    assert told["tpu"] == [
        ReplicaMemory(index, used[index], None, 16 * GIB, why_not, 97.5 if index < 2 else 12.0) for index in range(4)
    ]


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({}, False),
        ({"used_bytes": 1009, "peak_bytes": 1009}, False),
        ({"used_bytes": 1010}, True),
        ({"used_bytes": None, "why_not": "gone"}, True),
        ({"duty_percent": 50.9}, False),
        ({"duty_percent": 49.0}, True),
        ({"duty_percent": None, "duty_why_not": "gone"}, True),
    ],
)
def test_a_change_of_one_percent_is_written(changes: dict[str, Any], differs: bool) -> None:
    before = ReplicaMemory(0, 1000, 1000, 5000, "", 50.0, "")
    assert sampler.differs(MemorySampled((before,)), MemorySampled((replace(before, **changes),))) is differs


@pytest.mark.slow
def test_a_run_s_host_is_sampled_on_the_axis_of_its_progress(tmp_path: Path) -> None:
    config = small_config(batch_size=8, steps_per_epoch=100_000, epochs=9)
    run = prepare_run(config, tmp_path / "runs")
    thread = EngineThread(run, config, JournalWriter(run.journal), source=events.RunSource.IN_PROCESS)
    thread.start()
    wait_until(lambda: len([s for s in all_of(run, HostSampled) if s.examples_per_s]) >= 3, "three samples")
    thread.control.stop("asked by a test")
    thread.join(LIMIT_S)
    assert thread.succeeded
    assert isinstance(events_of(run)[-1], events.RunFinished)
    samples, progress = all_of(run, HostSampled), all_of(run, Progress)
    rates = [sample for sample in samples if sample.examples_per_s]
    overall = 8 * (progress[-1].step - progress[0].step) / (progress[-1].elapsed_s - progress[0].elapsed_s)
    mean = sum(sample.examples_per_s or 0 for sample in rates) / len(rates)
    assert mean == pytest.approx(overall, rel=0.3)
    assert all(sample.cpu_percent is not None and 0 <= sample.cpu_percent <= 100 for sample in samples)
    assert all(1 << 20 < (sample.ram_bytes or 0) < (sample.ram_limit_bytes or 0) for sample in samples)
    assert len(encode(rates[0], 1_795_200_000.123456)) < 300
    assert all_of(run, MemorySampled)[0].replicas[0].used_bytes


def test_a_notebook_s_host_is_sampled_until_its_run_ends() -> None:
    notebook = NotebookRun("mine")
    run = notebook.recorder.run
    notebook.recorder.emit(fit(batch=None))
    wait_until(lambda: all_of(run, HostSampled), "a sample")
    notebook.finish()
    assert isinstance(events_of(run)[-1], events.RunFinished)
    sample = all_of(run, HostSampled)[-1]
    assert sample.elapsed_s is not None
    assert "batch" in sample.why_not["examples_per_s"]
    assert not all_of(run, MemorySampled)


def test_sampling_loads_no_framework_and_no_grpc_by_itself(tmp_path: Path) -> None:
    code = (
        "import sys, tpu_console.engine.monitoring.sampler\n"
        "print(sorted({'tensorflow', 'keras', 'jax', 'grpc', 'google.protobuf'} & sys.modules.keys()))"
    )
    assert run_python(code, cwd=tmp_path) == "[]\n"


TWO_CHIPS: dict[str, Mapping[int, float]] = {
    HBM_USED: {0: 3 * GIB, 1: 5 * GIB},
    HBM_TOTAL: {0: 16 * GIB, 1: 16 * GIB},
    DUTY_CYCLE: {0: 97.5, 1: 0.0},
}


def response(metric: str, figures: Mapping[int, float]) -> bytes:
    answer = sampler.messages()["MetricResponse"]()
    answer.metric.name = metric
    for device, figure in figures.items():
        one = answer.metric.metrics.add()
        one.attribute.value.int_attr = device
        setattr(one.gauge, "as_int" if isinstance(figure, int) else "as_double", figure)
    content: bytes = answer.SerializeToString()
    return content


class Runtime(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc is untyped
    """The server, with figures by metric and device, which may be changed; it knows no other metric."""

    def __init__(self, figures: Mapping[str, Mapping[int, float]], port: int = 0) -> None:
        self.figures = dict(figures)
        self.awake = threading.Event()  # if cleared, it accepts requests and does not answer
        self.awake.set()
        self.raw: bytes | None = None  # its answer to every request, if any
        self._server = grpc.server(futures.ThreadPoolExecutor(4), handlers=(self,), options=(("grpc.so_reuseport", 0),))
        self.port: int = self._server.add_secure_port(f"localhost:{port}", grpc.local_server_credentials())
        self._server.start()

    def service(self, handler_call_details: Any) -> Any:
        is_known = handler_call_details.method == sampler.METHOD
        return grpc.unary_unary_rpc_method_handler(self._answer) if is_known else None

    def _answer(self, request: bytes, context: Any) -> bytes:
        metric = sampler.messages()["MetricRequest"].FromString(request).metric_name
        self.awake.wait(60)
        if metric not in self.figures:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Unsupported metric name: {metric}")
        return self.raw if self.raw is not None else response(metric, self.figures[metric])

    def close(self) -> None:
        self.awake.set()
        self._server.stop(None).wait()


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(figures: Mapping[str, Mapping[int, float]] = TWO_CHIPS, port: int = 0) -> Runtime:
            runtime = Runtime(figures, port)
            stack.callback(runtime.close)
            return runtime

        yield start


def test_every_chip_s_figures_are_read_and_change_with_the_runtime_s(serve: Serve) -> None:
    runtime = serve()
    with closing(sampler.RuntimeMetrics([runtime.port])) as metrics:
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
    with closing(sampler.RuntimeMetrics([runtime.port], deadline_s=0.5, clock=clock)) as metrics:

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
        with closing(sampler.RuntimeMetrics(ports, deadline_s=0.5)) as metrics:
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
    assert sampler.metric_ports(variables) == ports


@pytest.mark.parametrize(
    ("figures", "devices", "dealt"),
    [
        pytest.param({0: 1.0, 1: 2.0}, [0, 1], {0: 1.0, 1: 2.0}, id="a chip a device"),
        pytest.param({0: 1.0, 1: 2.0}, [0, 1, 2, 3], {0: 1.0, 1: 1.0, 2: 2.0, 3: 2.0}, id="v3: two devices a chip"),
        pytest.param({0: 1.0, 1: 2.0}, [3, 2, 0, 1], {0: 1.0, 1: 1.0, 2: 2.0, 3: 2.0}, id="replicas in another order"),
        pytest.param({8: 1.0, 13: 4.0, 9: 2.0, 12: 3.0}, [8, 9, 12, 13], {8: 1.0, 9: 2.0, 12: 3.0, 13: 4.0}, id="pod"),
        pytest.param({0: 1.0, 1: 2.0}, [4, 5], {4: 1.0, 5: 2.0}, id="numbered by host"),
        pytest.param({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}, [2], {2: 3.0}, id="a process a chip"),
        pytest.param({0: 1.0, 1: 2.0, 2: 3.0}, [7], {}, id="neighbors only"),
        pytest.param({0: 1.0, 1: 2.0, 2: 3.0}, [0, 1, 2, 3], {}, id="three of four"),
        pytest.param({0: 1.0, 1: 2.0}, [0, 1, 0, 1], {}, id="two machines"),
        pytest.param({}, [0], {}, id="nothing"),
    ],
)
def test_figures_are_dealt_out_to_devices(
    figures: dict[int, float], devices: list[int], dealt: dict[int, float]
) -> None:
    assert sampler.spread(figures, devices) == dealt


def test_the_fields_are_those_that_libtpu_itself_has() -> None:
    found = find_spec("libtpu")
    if found is None or found.origin is None:
        pytest.skip("libtpu is not installed (extra `tpu`)")
    theirs = libtpu_protocol(Path(found.origin).with_name("libtpu.so"))
    fields = {message.name: {field.name: field for field in message.field} for message in theirs.message_type}
    for name, ours in sampler.messages().items():
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
