"""Reads how much memory the devices of this host use and how busy they are, or why that is not known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil

from ..accelerators.backend import JAX
from ..config.accelerator import parse_accelerator
from ..errors import one_line
from ..machine.resources import find_resources
from ..machine.sources import this_machine
from ..runs.events import MemorySampled, Replica, ReplicaMemory
from .libtpu import DUTY_CYCLE, HBM_TOTAL, HBM_USED, RuntimeMetrics, metric_ports, spread

if TYPE_CHECKING:
    from ..accelerators.accelerator import Accelerator

_NO_DUTY = "only a TPU reports it"
_MOVED = 0.01  # of the memory in use; a smaller change is not written
_MOVED_POINTS = 1.0  # of the duty cycle


class DeviceReader:
    """Reads the devices that this process drives; cheap, and safe outside the training thread."""

    def __init__(self, accelerator: Accelerator, runtime: RuntimeMetrics | None = None) -> None:
        self._accelerator = accelerator
        self._numbers = {
            replica.index: device_number(replica)
            for replica in accelerator.replicas
            if replica.process == accelerator.process
        }
        self._limit_bytes = find_resources(this_machine()).memory_bytes or None
        self._runtime = runtime or RuntimeMetrics(metric_ports())

    def read(self) -> MemorySampled:
        """Read every device once; a TPU's runtime that hangs delays this by half a second."""
        name = self._accelerator.name
        if name == "cpu":
            return MemorySampled(tuple(process_memory(index, self._limit_bytes) for index in self._numbers))
        if parse_accelerator(name).simulated:
            shares = "shares the host process's memory"
            return MemorySampled(
                tuple(ReplicaMemory(index, None, None, None, shares, None, _NO_DUTY) for index in self._numbers)
            )
        memories = self._from_framework()
        return MemorySampled(tuple(self._with_runtime(memories) if name == "tpu" else memories))

    def close(self) -> None:
        """Close the connections."""
        self._runtime.close()

    def _from_framework(self) -> list[ReplicaMemory]:
        if self._accelerator.backend == JAX:
            import jax

            devices = {device.id: device for device in jax.local_devices()}
            return [jax_memory(index, devices.get(number)) for index, number in self._numbers.items()]
        kind = self._accelerator.name.upper()
        return [tensorflow_memory(index, f"{kind}:{number}") for index, number in self._numbers.items()]

    def _with_runtime(self, memories: list[ReplicaMemory]) -> list[ReplicaMemory]:
        """Add the duty cycle, and the memory if the framework does not report it."""
        duty, why_no_duty = self._metric(DUTY_CYCLE)
        if any(memory.used_bytes is None or memory.limit_bytes is None for memory in memories):
            used, why_not = self._metric(HBM_USED)
            total, _ = self._metric(HBM_TOTAL)
            memories = [_filled(memory, self._numbers[memory.index], used, total, why_not) for memory in memories]
        rounded = {number: round(percent, 1) for number, percent in duty.items()}
        return [
            replace(memory, duty_percent=rounded.get(self._numbers[memory.index]), duty_why_not=why_no_duty)
            for memory in memories
        ]

    def _metric(self, name: str) -> tuple[dict[int, float], str]:
        """Return a metric by device number, and why there is none."""
        numbers = list(self._numbers.values())
        reading = self._runtime.read(name, len(numbers))
        by_device = spread(reading.figures, numbers)
        if reading.figures and not by_device:
            return {}, f"the TPU's runtime reports {len(reading.figures)} devices, but this process has {len(numbers)}"
        return by_device, reading.why_not


def device_number(replica: Replica) -> int:
    """Return the framework's number of a replica's device, which ends its name: ``/device:TPU:3``, ``tpu:12``."""
    found = re.search(r"(\d+)$", replica.device)
    return int(found[1]) if found else replica.index


def process_memory(index: int, limit_bytes: int | None) -> ReplicaMemory:
    """Read the memory of this process, which is the only replica of a CPU."""
    used = psutil.Process().memory_info().rss
    found = re.search(r"^VmHWM:\s+(\d+) kB", this_machine().text("proc/self/status"), re.MULTILINE)
    peak = int(found[1]) * 1024 if found else None
    why_not = "the kernel does not report it" if peak is None or limit_bytes is None else ""
    return ReplicaMemory(index, used, peak, limit_bytes, why_not, None, _NO_DUTY)


def tensorflow_memory(index: int, device: str) -> ReplicaMemory:
    """Read the memory of a device, such as ``GPU:0``, from TensorFlow."""
    import tensorflow as tf

    try:
        info = tf.config.experimental.get_memory_info(device)
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        why_not = f"TensorFlow reports an error: {one_line(error, 100)}"
        return ReplicaMemory(index, None, None, None, why_not, None, _NO_DUTY)
    if not info["peak"]:  # a device that it does not follow, or nothing was put there yet
        return ReplicaMemory(index, None, None, None, "TensorFlow has counted no memory there", None, _NO_DUTY)
    why_not = "TensorFlow reports no limit: its share grows as needed"
    return ReplicaMemory(index, int(info["current"]), int(info["peak"]), None, why_not, None, _NO_DUTY)


def jax_memory(index: int, device: Any) -> ReplicaMemory:
    """Read the memory of a `jax.Device` of this process, or of None if JAX has none with that number."""
    try:
        stats = device.memory_stats() if device is not None else None
    except RuntimeError as error:  # the class of XLA's errors
        return ReplicaMemory(index, None, None, None, f"JAX reports an error: {one_line(error, 100)}", None, _NO_DUTY)
    if stats is None:
        what = "this device" if device is None else f"a device of kind {device.device_kind}"
        return ReplicaMemory(index, None, None, None, f"JAX reports no memory for {what}", None, _NO_DUTY)
    used, peak, limit = (stats.get(name) for name in ("bytes_in_use", "peak_bytes_in_use", "bytes_limit"))
    missing = [name for name, figure in (("use", used), ("peak", peak), ("limit", limit)) if figure is None]
    why_not = f"JAX reports no {' and no '.join(missing)} for this device" if missing else ""
    return ReplicaMemory(index, used, peak, limit, why_not, None, _NO_DUTY)


def _filled(
    memory: ReplicaMemory, number: int, used: dict[int, float], total: dict[int, float], why_not: str
) -> ReplicaMemory:
    """Take from the runtime what the framework does not report, and say what neither reports."""
    in_use = memory.used_bytes if memory.used_bytes is not None else _whole(used.get(number))
    limit = memory.limit_bytes if memory.limit_bytes is not None else _whole(total.get(number))
    if in_use is not None and limit is not None:
        reason = memory.why_not if memory.peak_bytes is None else ""
    else:
        reason = "; ".join(filter(None, (memory.why_not, why_not)))
    return replace(memory, used_bytes=in_use, limit_bytes=limit, why_not=reason)


def _whole(figure: float | None) -> int | None:
    return None if figure is None else int(figure)


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
