"""What is sampled beside training: the host within its limits, devices with reasons, this host's pace, the thread."""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.monitoring.tpu_runtime import GIB, Runtime
from tests.helpers import LIMIT_S, all_of, events_of, replace, run_python, small_config, wait_until
from tpu_console.engine.accelerators.framework import Accelerator, Share
from tpu_console.engine.accelerators.table import FRAMEWORKS
from tpu_console.engine.machine.sources import Sources, this_machine
from tpu_console.engine.monitoring.sampler import (
    DUTY_CYCLE,
    HBM_TOTAL,
    HBM_USED,
    DeviceReader,
    HostPace,
    HostReader,
    differs,
)
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.process.main import EngineThread
from tpu_console.engine.runs.events import (
    EpochEnded,
    FitStarted,
    HostSampled,
    MemorySampled,
    Progress,
    Replica,
    ReplicaMemory,
    RunFinished,
    RunResumed,
    RunSource,
)
from tpu_console.engine.runs.journal import JournalWriter, encode
from tpu_console.engine.training.notebook import NotebookRun

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def put(root: Path, files: dict[str, str]) -> None:
    """Write files below a folder."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def machine(root: Path, files: dict[str, str], cpus: int = 8) -> Sources:
    """A machine with so many processors, 64 GiB and some files."""
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
    reader = HostReader(sources=machine(tmp_path, files), clock=clock)
    clock.now += 1.0
    put(tmp_path, later)
    sample = reader.read()
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


def burn(seconds: float) -> None:
    """Keep one core busy."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_this_machine_s_own_figures() -> None:
    reader = HostReader(process=3)
    burn(0.3)
    sample = reader.read()
    assert (sample.process, sample.host, sample.elapsed_s) == (3, os.uname().nodename, None)
    assert sample.cpu_percent is not None
    assert 0 < sample.cpu_percent <= 100  # how much depends on what else the machine does
    assert sample.ram_bytes is not None
    assert sample.ram_limit_bytes is not None
    assert 1 << 20 < sample.ram_bytes < sample.ram_limit_bytes


def fit(batch: int | None = 32) -> FitStarted:
    return FitStarted(2, 100, batch, None, 1)


def step(number: int, elapsed_s: float) -> Progress:
    return Progress(1, number, number, elapsed_s, {})


def epoch(number: int, elapsed_s: float, validation_s: float) -> EpochEnded:
    return EpochEnded(1, number, 100, elapsed_s, 1.0, 0.0, validation_s, None, None, None, {})


def test_the_pace_is_that_of_this_host_s_share_since_the_last_look() -> None:
    clock = Clock()
    pace = HostPace(share=0.25, clock=clock)
    assert (pace.elapsed_s(), pace.look()[0]) == (None, None)
    assert "has not begun" in pace.look()[1]
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
    pace.on_event(epoch(25, 9.5, validation_s=7.0))  # half a second of training, seven of validation
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


def test_a_run_that_goes_back_to_a_checkpoint_goes_on_with_its_seconds() -> None:
    clock = Clock()
    pace = HostPace(clock=clock)
    pace.on_event(fit())
    clock.now += 50
    pace.on_event(RunResumed(1, 0, 10, 20.0, 1, "here"))
    clock.now += 30  # the model is compiled again
    assert pace.elapsed_s() is None
    pace.on_event(fit())
    clock.now += 5
    assert pace.elapsed_s() == 25


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
from tpu_console.engine.accelerators.table import FRAMEWORKS
from tpu_console.engine.runs.events import Replica
from tpu_console.engine.monitoring.sampler import DeviceReader
from tpu_console.engine.monitoring.sampler import RuntimeMetrics
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


@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed (extra `tpu`)")
@pytest.mark.slow
def test_jax_says_why_it_reports_no_memory_of_a_cpu_and_the_runtime_fills_it_in(tmp_path: Path) -> None:
    runtime = Runtime(
        {
            HBM_USED: {0: 3 * GIB, 1: 5 * GIB, 2: 6 * GIB, 3: 7 * GIB},
            HBM_TOTAL: dict.fromkeys(range(4), 16 * GIB),
            DUTY_CYCLE: {0: 97.46, 1: 12.0},  # by chip, of two devices each
        }
    )
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    try:
        printed = run_python(JAX, str(runtime.port), cwd=tmp_path, env=environment)
    finally:
        runtime.close()
    told = {name: [ReplicaMemory(**memory) for memory in memories] for name, memories in json.loads(printed).items()}
    why_not = "JAX reports no memory for this device"
    assert [(memory.used_bytes, memory.limit_bytes, memory.why_not) for memory in told["gpu"]] == [
        (None, None, why_not)
    ] * 4
    assert all("TPU" in memory.duty_why_not for memory in told["gpu"])
    # The peak is still missing, and why.
    assert told["tpu"] == [
        ReplicaMemory(0, 3 * GIB, None, 16 * GIB, why_not, 97.5, ""),
        ReplicaMemory(1, 5 * GIB, None, 16 * GIB, why_not, 97.5, ""),
        ReplicaMemory(2, 6 * GIB, None, 16 * GIB, why_not, 12.0, ""),
        ReplicaMemory(3, 7 * GIB, None, 16 * GIB, why_not, 12.0, ""),
    ]


def test_a_change_of_one_percent_is_written() -> None:
    before = ReplicaMemory(0, 1000, 1000, 5000, "", 50.0, "")

    def told(**changes: Any) -> bool:
        return differs(MemorySampled((before,)), MemorySampled((replace(before, **changes),)))

    assert not told()
    assert not told(used_bytes=1009, peak_bytes=1009)
    assert told(used_bytes=1010)
    assert told(used_bytes=None, why_not="gone")
    assert not told(duty_percent=50.9)
    assert told(duty_percent=49.0)
    assert told(duty_percent=None, duty_why_not="gone")


@pytest.mark.slow
def test_a_run_s_host_is_sampled_on_the_axis_of_its_progress(tmp_path: Path) -> None:
    config = small_config(batch_size=8, steps_per_epoch=100_000, epochs=9)
    run = prepare_run(config, tmp_path / "runs")
    thread = EngineThread(run, config, JournalWriter(run.journal), source=RunSource.IN_PROCESS)
    thread.start()
    wait_until(lambda: len([s for s in all_of(run, HostSampled) if s.examples_per_s]) >= 3, "three samples")
    thread.control.stop("asked by a test")
    thread.join(LIMIT_S)
    assert thread.succeeded
    events = events_of(run)
    assert isinstance(events[-1], RunFinished)
    samples = [(place, event) for place, event in enumerate(events) if isinstance(event, HostSampled)]
    rates = [sample for _, sample in samples if sample.examples_per_s]
    progress = [event for event in events if isinstance(event, Progress)]
    overall = 8 * (progress[-1].step - progress[0].step) / (progress[-1].elapsed_s - progress[0].elapsed_s)
    mean = sum(sample.examples_per_s or 0 for sample in rates) / len(rates)
    assert mean == pytest.approx(overall, rel=0.3)
    assert all(sample.cpu_percent is not None and sample.ram_bytes for _, sample in samples)
    assert len(encode(rates[0], 1_795_200_000.123456)) < 300
    assert all_of(run, MemorySampled)[0].replicas[0].used_bytes


def test_a_notebook_s_host_is_sampled_until_its_run_ends() -> None:
    notebook = NotebookRun("mine")
    run = notebook.recorder.run
    notebook.recorder.emit(fit(batch=None))
    wait_until(lambda: all_of(run, HostSampled), "a sample")
    notebook.finish()
    assert isinstance(events_of(run)[-1], RunFinished)
    sample = all_of(run, HostSampled)[-1]
    assert sample.elapsed_s is not None
    assert "batch size" in sample.why_not["examples_per_s"]
    assert not all_of(run, MemorySampled)


def test_sampling_loads_no_framework_and_no_grpc_by_itself(tmp_path: Path) -> None:
    code = (
        "import sys, tpu_console.engine.monitoring.sampler\n"
        "print(sorted({'tensorflow', 'keras', 'jax', 'grpc', 'google.protobuf'} & sys.modules.keys()))"
    )
    assert run_python(code, cwd=tmp_path) == "[]\n"
