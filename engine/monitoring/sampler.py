"""Samples devices and the host once per second during a run, in its own thread.

In a container with a limit, its own counters are read: the figures of the whole machine include its neighbours.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

import psutil
from msgspec.structs import replace

from ..machine.resources import find_resources, used_memory_bytes
from ..machine.sources import this_machine
from ..runs.events import EpochEnded, FitStarted, HostSampled, Phase, PhaseStarted, Progress, RunResumed
from .devices import DeviceReader, differs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..accelerators.framework import Accelerator
    from ..machine.sources import Sources
    from ..runs.events import Event, MemorySampled
    from ..runs.recorder import Recorder


_SECTOR_BYTES = 512  # in /proc/diskstats, regardless of the disk


class HostReader:
    """Reads what this host does between two calls of `read`."""

    def __init__(
        self, process: int = 0, sources: Sources | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._process = process
        self._host = socket.gethostname()
        self._sources = sources or this_machine()
        self._clock = clock
        self._resources = find_resources(self._sources)
        self._cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
        # A volume or a partition would count a disk's bytes twice.
        hardware = (self._sources.root / "sys/block").glob("*/device")
        self._disks = frozenset(device.parent.name for device in hardware)
        self._cpu = self._cpu_seconds()
        self._disk = (clock(), self._disk_read_bytes())

    def read(self) -> HostSampled:
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
        return HostSampled(
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

    def on_event(self, event: Event) -> None:
        """Follow an event of the run; called in the thread that writes it."""
        with self._lock:
            match event:
                case Progress() | EpochEnded():
                    self._validated_s += event.validation_s if isinstance(event, EpochEnded) else 0.0
                    self._newest = event.step, event.elapsed_s - self._validated_s
                    # The first execution, which compiles, ends here: nothing before it is counted.
                    self._last = self._last or self._newest
                case PhaseStarted():
                    self._elapsed_s, self._since = self._elapsed(), self._clock()
                    self._is_paused = event.phase == Phase.PAUSED
                case RunResumed():  # it goes back to a checkpoint
                    self._has_begun, self._elapsed_s = False, event.elapsed_s
                case FitStarted():  # a second `fit` of the run continues its seconds and compiles again
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
        self._last: MemorySampled | None = None
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
            self._devices.close()

    def _sample_devices(self) -> None:
        if self._devices is None:
            return
        sample = self._devices.read()
        if self._last is None or differs(self._last, sample):
            self._last = sample
            self._recorder.emit(sample)
