"""Samples devices and the host once per second during a run, in its own thread; a missing figure has a reason.

A TPU is asked through libtpu. The protocol is `tpu_info/proto/tpu_metric_service.proto` of
google/cloud-accelerator-diagnostics; the field numbers were compared with the descriptor inside libtpu 0.0.51. In a
container with a limit, its own counters are read: the figures of the whole machine include its neighbors.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import psutil
from msgspec.structs import replace

from ..accelerators.framework import NO_DUTY, Accelerator
from ..config.values import parse_accelerator
from ..machine.environment import find_resources, used_memory_bytes
from ..machine.sources import Sources, this_machine
from ..runs import events

if TYPE_CHECKING:
    from ..runs.recorder import Recorder


HBM_USED = "tpu.runtime.hbm.memory.usage.bytes"
HBM_TOTAL = "tpu.runtime.hbm.memory.total.bytes"
DUTY_CYCLE = "tpu.runtime.tensorcore.dutycycle.percent"

PACKAGE = "tpu.monitoring.runtime"
METHOD = f"/{PACKAGE}.RuntimeMetricService/GetRuntimeMetric"

_PORTS, _USUAL_PORT = "TPU_RUNTIME_METRICS_PORTS", 8431
_DEADLINE_S = 0.5
_QUIET_S = 10.0
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # the server is on this machine
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel inherits the waiting time of one that failed
)
# The few messages and fields that are needed: name, number, type; a star stands for many. They are declared as
# in proto2, where an absent field differs from one that is 0, so that it shows which of the alternatives is set.
_MESSAGES = {
    "MetricRequest": (("metric_name", 1, "string"),),
    "MetricResponse": (("metric", 1, "TPUMetric"),),
    "TPUMetric": (("name", 1, "string"), ("metrics", 3, "*Metric")),
    "Metric": (("attribute", 1, "Attribute"), ("gauge", 3, "Gauge")),
    "Attribute": (("key", 1, "string"), ("value", 2, "AttrValue")),
    "AttrValue": (("int_attr", 3, "int64"),),
    "Gauge": (("as_double", 1, "double"), ("as_int", 2, "int64")),
}


class RuntimeMetrics:
    """Asks a TPU's runtime on this machine, at one port or one for each chip's process; use it from one thread.

    A runtime that is not there, hangs or does not know a metric costs a wait of `deadline_s` and is asked again later.
    """

    def __init__(
        self, ports: Sequence[int], *, deadline_s: float = _DEADLINE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ports, self._deadline_s, self._clock = ports, deadline_s, clock
        self._channels: dict[int, Any] = {}
        self._silences: dict[tuple[int, str], tuple[float, str]] = {}  # until when, and why

    def read(self, metric: str) -> tuple[dict[int, float], str]:
        """Read a metric: figures by the runtime's number of the device, or why there are none."""
        try:
            import grpc
        except ImportError:
            return {}, "grpcio is not installed"
        figures: dict[int, float] = {}
        asked, answer = messages()["MetricRequest"], messages()["MetricResponse"]
        for port in self._ports:
            if self._clock() < self._silences.get((port, metric), (0.0, ""))[0]:
                continue
            if port not in self._channels:
                credentials = grpc.local_channel_credentials()
                self._channels[port] = grpc.secure_channel(f"localhost:{port}", credentials, _OPTIONS)
            call = self._channels[port].unary_unary(METHOD, asked.SerializeToString, answer.FromString)
            why = "the TPU's runtime has no figures for it"
            try:
                found = call(asked(metric_name=metric), timeout=self._deadline_s).metric.metrics
            except grpc.RpcError as error:
                self._channels.pop(port).close()
                found, why = [], f"no TPU runtime gives figures at localhost:{port} ({error.code().name})"
            for entry in found:
                is_double = entry.gauge.HasField("as_double")
                figure = float(entry.gauge.as_double if is_double else entry.gauge.as_int)
                figures.setdefault(entry.attribute.value.int_attr, figure)
            if not found:
                self._silences[port, metric] = self._clock() + _QUIET_S, why
        reasons = [self._silences[port, metric][1] for port in self._ports if (port, metric) in self._silences]
        return figures, "" if figures else next(iter(reasons), "")

    def close(self) -> None:
        """Close the connections."""
        for port in list(self._channels):
            self._channels.pop(port).close()


def metric_ports(environ: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """Return the ports where a TPU's runtime listens, from the environment."""
    ports = [part.strip() for part in environ.get(_PORTS, "").split(",")]
    return tuple(int(part) for part in ports if part.isdigit()) or (_USUAL_PORT,)


@cache
def messages() -> dict[str, Any]:
    """Make the classes of the protocol's messages, by their names."""
    from google.protobuf import descriptor_pb2, message_factory  # type: ignore[import-untyped]

    file = descriptor_pb2.FileDescriptorProto(name="tpu_console/libtpu.proto", package=PACKAGE)
    of_field = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            many, plain = kind.startswith("*"), kind.removeprefix("*")
            label = of_field.LABEL_REPEATED if many else of_field.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if plain in _MESSAGES:
                added.type, added.type_name = of_field.TYPE_MESSAGE, f".{PACKAGE}.{plain}"
            else:
                added.type = of_field.Type.Value(f"TYPE_{plain.upper()}")
    # In a separate pool, because tpu-info may load the original in the same process.
    made = message_factory.GetMessages([file])
    return {name: made[f"{PACKAGE}.{name}"] for name in _MESSAGES}


def spread(figures: Mapping[int, float], devices: Sequence[int]) -> dict[int, float]:
    """Assign figures by the runtime's device or chip to this process's devices; empty if they do not fit.

    A runtime may have more devices. It counts some things by chip, and v2 and v3 chips have two devices, which then
    share a figure, as in ``tpu-info``.
    """
    if len(figures) > len(devices):
        return {device: figures[device] for device in devices} if set(devices) <= figures.keys() else {}
    # Devices of several machines have the same numbers, and only one of these machines is this one.
    if not figures or len(devices) % len(figures) or len(set(devices)) < len(devices):
        return {}
    each = len(devices) // len(figures)
    ordered = [figures[number] for number in sorted(figures)]
    return {device: ordered[place // each] for place, device in enumerate(sorted(devices))}


_MOVED = 0.01  # of the memory in use; a smaller change is not written
_MOVED_POINTS = 1.0  # of the duty cycle


class DeviceReader:
    """Reads the devices that this process drives; cheap, and safe outside the training thread."""

    def __init__(self, accelerator: Accelerator, runtime: RuntimeMetrics | None = None) -> None:
        self._accelerator = accelerator
        mine = [replica for replica in accelerator.replicas if replica.process == accelerator.share.index]
        # The framework's number ends the device's name: ``/device:TPU:3``, ``tpu:12``.
        found = {replica.index: re.search(r"\d+$", replica.device) for replica in mine}
        self._numbers = {index: int(number[0]) if number else index for index, number in found.items()}
        self._limit_bytes = find_resources(this_machine()).memory_bytes or None
        self.runtime = runtime or RuntimeMetrics(metric_ports())

    def read(self) -> events.MemorySampled:
        """Read every device once; a TPU's runtime that hangs delays this by half a second for each figure."""
        name = self._accelerator.name
        known: tuple[int | None, int | None, int | None, str] = (None, None, None, "shares the host process's memory")
        if name == "cpu":  # this process is the only replica
            found = re.search(r"^VmHWM:\s+(\d+) kB", this_machine().text("proc/self/status"), re.MULTILINE)
            peak, limit = int(found[1]) * 1024 if found else None, self._limit_bytes
            why_not = "the kernel does not report it" if peak is None or limit is None else ""
            known = (psutil.Process().memory_info().rss, peak, limit, why_not)
        elif not parse_accelerator(name).simulated:
            memories = self._accelerator.framework.memory(name, self._numbers)
            return events.MemorySampled(tuple(self._with_runtime(memories) if name == "tpu" else memories))
        return events.MemorySampled(tuple(events.ReplicaMemory(n, *known, None, NO_DUTY) for n in self._numbers))

    def _with_runtime(self, memories: list[events.ReplicaMemory]) -> list[events.ReplicaMemory]:
        """Add the duty cycle, and the memory if the framework does not report it."""
        duty, why_no_duty = self._metric(DUTY_CYCLE)
        used, total, why_not = dict[int, float](), dict[int, float](), ""
        if any(memory.used_bytes is None or memory.limit_bytes is None for memory in memories):
            (used, why_not), (total, _) = self._metric(HBM_USED), self._metric(HBM_TOTAL)
        return [
            replace(
                memory,
                used_bytes=_first(memory.used_bytes, used.get(number)),
                limit_bytes=_first(memory.limit_bytes, total.get(number)),
                why_not="; ".join(filter(None, (memory.why_not, why_not))),
                duty_percent=round(duty[number], 1) if number in duty else None,
                duty_why_not=why_no_duty,
            )
            for memory in memories
            for number in [self._numbers[memory.index]]
        ]

    def _metric(self, name: str) -> tuple[dict[int, float], str]:
        numbers = list(self._numbers.values())
        figures, why_not = self.runtime.read(name)
        by_device = spread(figures, numbers)
        if figures and not by_device:
            return {}, f"the TPU's runtime reports {len(figures)} devices, but this process has {len(numbers)}"
        return by_device, why_not


def _first(known: int | None, served: float | None) -> int | None:
    return known if known is not None or served is None else int(served)


def differs(before: events.MemorySampled, after: events.MemorySampled) -> bool:
    """Return whether a figure changed enough to be written again."""
    return len(before.replicas) != len(after.replicas) or any(
        _moved(old.used_bytes, new.used_bytes, _MOVED * (old.used_bytes or 1))
        or _moved(old.duty_percent, new.duty_percent, _MOVED_POINTS)
        or (old.limit_bytes, old.why_not, old.duty_why_not) != (new.limit_bytes, new.why_not, new.duty_why_not)
        for old, new in zip(before.replicas, after.replicas, strict=True)
    )


def _moved(old: float | None, new: float | None, least: float) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) >= least


_SECTOR_BYTES = 512  # in /proc/diskstats, regardless of the disk


class HostReader:
    """Reads what this host does between two calls of `read`."""

    def __init__(
        self, process: int = 0, sources: Sources | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._process, self._host, self._clock = process, socket.gethostname(), clock
        self._sources = sources or this_machine()
        self._resources = find_resources(self._sources)
        self._cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
        # A volume or a partition would count a disk's bytes twice.
        hardware = (self._sources.root / "sys/block").glob("*/device")
        self._disks = frozenset(device.parent.name for device in hardware)
        self._cpu = self._cpu_seconds()
        self._disk = (clock(), self._disk_read_bytes())

    def read(self) -> events.HostSampled:
        """Return the figures since the last call, without those that only training knows."""
        why_not: dict[str, str] = {}
        memory = psutil.virtual_memory()
        used: int | None = memory.total - memory.available  # without what the kernel only keeps of files
        limit = memory.total
        if file := self._resources.memory_limit:
            used, limit = used_memory_bytes(self._sources, file), self._resources.memory_bytes
        if used is None:
            why_not["ram_bytes"] = "the container does not report its use"
        busy_before, self._cpu = self._cpu, self._cpu_seconds()
        cpu_percent = None
        if busy_before is None or self._cpu is None:
            why_not["cpu_percent"] = f"the container has {self._resources.cores:g} cores and does not report its use"
        else:
            busy, whole = (now - then for now, then in zip(self._cpu, busy_before, strict=True))
            cpu_percent = round(min(100.0, max(0.0, 100 * busy / max(whole, 1e-9))), 1)
        (then, before), (now, after) = self._disk, (self._clock(), self._disk_read_bytes())
        self._disk = (now, after)
        disk_rate = None
        if before is None or after is None or now <= then:
            why_not["disk_read_bytes_per_s"] = "no disk's counters can be read here"
        else:
            disk_rate = float(round(max(0, after - before) / (now - then)))
        return events.HostSampled(
            process=self._process,
            host=self._host,
            elapsed_s=None,
            cpu_percent=cpu_percent,
            ram_bytes=used,
            ram_limit_bytes=limit,
            disk_read_bytes_per_s=disk_rate,
            why_not=why_not,
        )

    def _cpu_seconds(self) -> tuple[float, float] | None:
        """Return seconds in which a core was busy, and those in which one could have been."""
        if limit := self._resources.core_limit:
            folder = limit.rpartition("/")[0]
            files = [(f"{folder}/cpu.stat", 1e6), (f"{folder}/cpuacct.usage", 1e9)]
            files.append((files[1][0].replace("/cpu/", "/cpuacct/", 1), 1e9))
            for file, per_second in files:
                if used := re.search(r"^(?:usage_usec )?(\d+)$", self._sources.text(file), re.MULTILINE):
                    return int(used[1]) / per_second, self._clock() * self._resources.cores
            return None
        # The kernel keeps a sum over all cores; reading hundreds of them one by one would cost a hundred times as much.
        mine = [psutil.cpu_times()]
        if len(self._cores) < (os.cpu_count() or 1):
            mine = [times for number, times in enumerate(psutil.cpu_times(percpu=True)) if number in self._cores]
        idle = sum(times.idle + getattr(times, "iowait", 0.0) for times in mine)
        # A guest's time is in that of its host already.
        whole = sum(sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0) for times in mine)
        return whole - idle, whole

    def _disk_read_bytes(self) -> int | None:
        lines = (line.split() for line in self._sources.text("proc/diskstats").splitlines())
        read = [int(line[5]) * _SECTOR_BYTES for line in lines if len(line) > 5 and line[2] in self._disks]
        return sum(read) if read else None


_SHORTEST_S = 0.1  # below it a rate would be noise


class HostPace:
    """Follows a run's events: how long it has trained, and how many examples per second pass between two looks.

    `share` is this host's share of the replicas; `earlier_s` are the seconds of training before the run was resumed.
    """

    def __init__(self, share: float = 1.0, earlier_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._lock = threading.Lock()
        self._has_begun = False
        self._elapsed_s, self._since = earlier_s, 0.0  # seconds of training until then
        self._is_paused = False
        self._batch: int | None = None
        self._validated_s = 0.0
        self._last: tuple[int, float] | None = None  # steps, and seconds of training, at the last look
        self._newest: tuple[int, float] | None = None

    def on_event(self, event: events.Event) -> None:
        """Follow an event of the run; called in the thread that writes it."""
        with self._lock:
            match event:
                case events.Progress() | events.EpochEnded():
                    self._validated_s += event.validation_s if isinstance(event, events.EpochEnded) else 0.0
                    self._newest = event.step, event.elapsed_s - self._validated_s
                    # The first execution, which compiles, ends here: nothing before it is counted.
                    self._last = self._last or self._newest
                case events.PhaseStarted():
                    self._elapsed_s, self._since = self._elapsed(), self._clock()
                    self._is_paused = event.phase == events.Phase.PAUSED
                case events.RunResumed():  # it goes back to a checkpoint
                    self._has_begun, self._elapsed_s = False, event.elapsed_s
                case events.FitStarted():  # a second `fit` of the run continues its seconds and compiles again
                    self._elapsed_s, self._since = self._elapsed(), self._clock()
                    self._has_begun, self._batch = True, event.global_batch
                    self._last = self._newest = None

    def _elapsed(self) -> float:
        runs = self._has_begun and not self._is_paused
        return self._elapsed_s + (self._clock() - self._since if runs else 0.0)

    def elapsed_s(self) -> float | None:
        """Return seconds since the run's first `fit` began, as the event `Progress` counts them; None before."""
        with self._lock:
            return round(self._elapsed(), 3) if self._has_begun else None

    def look(self) -> tuple[float | None, str]:
        """Return examples a second since the last look, and why there is no figure."""
        with self._lock:
            if not self._has_begun:
                return None, "training has not begun"
            if not self._batch:
                return None, "the batch size is unknown"
            if self._last is not None and self._newest is not None:
                steps, seconds = (now - then for now, then in zip(self._newest, self._last, strict=True))
                if seconds >= _SHORTEST_S and steps > 0:
                    self._last = self._newest
                    return round(steps * self._batch * self._share / seconds, 1), ""
            return None, "no step of training has ended since the last look"


_EVERY_S = 1.0


class Sampler:
    """Writes the figures of this host, and those of its devices when they change, while a block runs.

    `accelerator` is None in a notebook, which chooses its own; `earlier_s` is that of `HostPace`.
    """

    def __init__(self, recorder: Recorder, accelerator: Accelerator | None = None, earlier_s: float = 0.0) -> None:
        share = 1.0  # of the replicas
        if accelerator is not None:
            mine = sum(replica.process == accelerator.share.index for replica in accelerator.replicas)
            share = mine / len(accelerator.replicas)
        self._recorder = recorder
        self._devices = DeviceReader(accelerator) if accelerator is not None else None
        self._host = HostReader(accelerator.share.index if accelerator is not None else 0)
        self._pace = HostPace(share, earlier_s)
        self._last: events.MemorySampled | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tpu-console-sampler", daemon=True)

    def start(self) -> Self:
        """Start sampling."""
        self._recorder.listen(self._pace.on_event)
        self._thread.start()
        return self

    def stop(self, *_: object) -> None:
        """Stop sampling; wait for a sample that is under way."""
        self._over.set()
        self._thread.join(2.0)

    __enter__, __exit__ = start, stop

    def _run(self) -> None:
        self._sample_devices()
        while not self._over.wait(_EVERY_S):
            sample = self._host.read()
            rate, why_not = self._pace.look()
            reasons = {**sample.why_not, "examples_per_s": why_not} if why_not else sample.why_not
            elapsed_s = self._pace.elapsed_s()
            self._recorder.emit(replace(sample, elapsed_s=elapsed_s, examples_per_s=rate, why_not=reasons))
            self._sample_devices()
        if self._devices is not None:
            self._devices.runtime.close()

    def _sample_devices(self) -> None:
        if self._devices is None:
            return
        sample = self._devices.read()
        if self._last is None or differs(self._last, sample):
            self._last = sample
            self._recorder.emit(sample)
