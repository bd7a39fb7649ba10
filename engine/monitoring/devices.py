"""Reads how much memory the devices of this host use and how busy they are, or why that is not known.

For TPUs it asks libtpu. The protocol is `tpu_info/proto/tpu_metric_service.proto` of
google/cloud-accelerator-diagnostics; the field numbers were compared with the descriptor inside libtpu 0.0.51.
"""

from __future__ import annotations

import os
import re
import time
from functools import cache
from typing import TYPE_CHECKING, Any

import psutil
from msgspec.structs import replace

from ..accelerators.framework import NO_DUTY
from ..config.values import parse_accelerator
from ..machine.resources import find_resources
from ..machine.sources import this_machine
from ..runs.events import MemorySampled, ReplicaMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..accelerators.framework import Accelerator


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
        self._ports = ports
        self._deadline_s = deadline_s
        self._clock = clock
        self._channels: dict[int, Any] = {}
        self._silences: dict[tuple[int, str], tuple[float, str]] = {}  # until when, and why

    def read(self, metric: str) -> tuple[dict[int, float], str]:
        """Read a metric: figures by the runtime's number of the device, or why there are none."""
        try:
            import grpc
        except ImportError:
            return {}, "grpcio is not installed"
        figures: dict[int, float] = {}
        request = messages()["MetricRequest"](metric_name=metric)
        for port in self._ports:
            if self._clock() < self._silences.get((port, metric), (0.0, ""))[0]:
                continue
            why = "the TPU's runtime has no figures for it"
            try:
                found = self._call(port)(request, timeout=self._deadline_s).metric.metrics
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

    def _call(self, port: int) -> Callable[..., Any]:
        import grpc

        if port not in self._channels:
            credentials = grpc.local_channel_credentials()
            self._channels[port] = grpc.secure_channel(f"localhost:{port}", credentials, _OPTIONS)
        write, read = messages()["MetricRequest"].SerializeToString, messages()["MetricResponse"].FromString
        call: Callable[..., Any] = self._channels[port].unary_unary(METHOD, write, read)
        return call


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
        self._runtime = runtime or RuntimeMetrics(metric_ports())

    def read(self) -> MemorySampled:
        """Read every device once; a TPU's runtime that hangs delays this by half a second for each figure."""
        name = self._accelerator.name
        if name == "cpu":  # this process is the only replica
            used = psutil.Process().memory_info().rss
            found = re.search(r"^VmHWM:\s+(\d+) kB", this_machine().text("proc/self/status"), re.MULTILINE)
            peak, limit = int(found[1]) * 1024 if found else None, self._limit_bytes
            why_not = "the kernel does not report it" if peak is None or limit is None else ""
            memories = [ReplicaMemory(index, used, peak, limit, why_not, None, NO_DUTY) for index in self._numbers]
        elif parse_accelerator(name).simulated:
            shares = "shares the host process's memory"
            memories = [ReplicaMemory(index, None, None, None, shares, None, NO_DUTY) for index in self._numbers]
        else:
            memories = self._accelerator.framework.memory(name, self._numbers)
        return MemorySampled(tuple(self._with_runtime(memories) if name == "tpu" else memories))

    def close(self) -> None:
        """Close the connections."""
        self._runtime.close()

    def _with_runtime(self, memories: list[ReplicaMemory]) -> list[ReplicaMemory]:
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
        figures, why_not = self._runtime.read(name)
        by_device = spread(figures, numbers)
        if figures and not by_device:
            return {}, f"the TPU's runtime reports {len(figures)} devices, but this process has {len(numbers)}"
        return by_device, why_not


def _first(known: int | None, served: float | None) -> int | None:
    return known if known is not None or served is None else int(served)


def differs(before: MemorySampled, after: MemorySampled) -> bool:
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
