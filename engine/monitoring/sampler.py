"""Samples devices and the host once per second during a run, in its own thread.

In a container with a limit, the figures of the whole machine include its neighbours. There the container's own counters
are read, from the folder of the file that sets the limit.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Self

import psutil

from ..machine.resources import find_resources, used_memory_bytes
from ..machine.sources import this_machine
from ..runs.events import EpochEnded, FitStarted, HostSampled, Phase, PhaseStarted, Progress, RunResumed
from .devices import DeviceReader, differs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..accelerators.accelerator import Accelerator
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
        self._disks = self._physical_disks()
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
        return HostSampled(
            process=self._process,
            host=self._host,
            elapsed_s=None,
            cpu_percent=self._cpu_percent(why_not),
            ram_bytes=used,
            ram_limit_bytes=limit,
            disk_read_bytes_per_s=self._disk_rate(why_not),
            why_not=why_not,
        )

    def _cpu_percent(self, why_not: dict[str, str]) -> float | None:
        before, self._cpu = self._cpu, self._cpu_seconds()
        if before is None or self._cpu is None:
            why_not["cpu_percent"] = f"the container has {self._resources.cores:g} cores and does not report its use"
            return None
        busy, whole = (now - then for now, then in zip(self._cpu, before, strict=True))
        if whole <= 0:
            why_not["cpu_percent"] = "no time has passed"
            return None
        return round(min(100.0, max(0.0, 100 * busy / whole)), 1)

    def _cpu_seconds(self) -> tuple[float, float] | None:
        """Return seconds in which a core was busy, and those in which one could have been."""
        if self._resources.core_limit:
            used_s = self._group_cpu_seconds(PurePosixPath(self._resources.core_limit))
            return None if used_s is None else (used_s, self._clock() * self._resources.cores)
        # The kernel keeps a sum over all cores; reading hundreds of them one by one would cost a hundred times as much.
        mine = [psutil.cpu_times()]
        if len(self._cores) < (os.cpu_count() or 1):
            mine = [times for number, times in enumerate(psutil.cpu_times(percpu=True)) if number in self._cores]
        idle = sum(times.idle + getattr(times, "iowait", 0.0) for times in mine)
        # A guest's time is in that of its host already.
        whole = sum(sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0) for times in mine)
        return whole - idle, whole

    def _group_cpu_seconds(self, limit: PurePosixPath) -> float | None:
        if limit.name == "cpu.max":
            found = re.search(r"^usage_usec (\d+)", self._sources.text(str(limit.with_name("cpu.stat"))), re.MULTILINE)
            return int(found[1]) / 1e6 if found else None
        accounts = str(limit.with_name("cpuacct.usage"))
        for file in (accounts, accounts.replace("/cpu/", "/cpuacct/", 1)):
            if (text := self._sources.text(file)).isdigit():
                return int(text) / 1e9
        return None

    def _disk_rate(self, why_not: dict[str, str]) -> float | None:
        (then, before), (now, after) = self._disk, (self._clock(), self._disk_read_bytes())
        self._disk = (now, after)
        if before is None or after is None or now <= then:
            why_not["disk_read_bytes_per_s"] = "no disk's counters can be read here"
            return None
        return float(round(max(0, after - before) / (now - then)))

    def _physical_disks(self) -> frozenset[str]:
        """Find the disks that are hardware: a volume or a partition would count a disk's bytes twice."""
        blocks = self._sources.root / "sys" / "block"
        try:
            return frozenset(block.name for block in blocks.iterdir() if (block / "device").exists())
        except OSError:
            return frozenset()

    def _disk_read_bytes(self) -> int | None:
        lines = (line.split() for line in self._sources.text("proc/diskstats").splitlines())
        read = [int(line[5]) * _SECTOR_BYTES for line in lines if len(line) > 5 and line[2] in self._disks]
        return sum(read) if read else None


_SHORTEST_S = 0.1  # below it a rate would be noise


class HostPace:
    """Computes examples per second between two calls of `look`, from the run's events.

    Compilation, validation and pauses do not count as time. `share` is this host's share of the replicas; `earlier_s`
    are the seconds of training before the run was resumed.
    """

    def __init__(self, share: float = 1.0, earlier_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._earlier_s = earlier_s
        self._clock = clock
        self._lock = threading.Lock()
        self._began: float | None = None
        self._paused_at: float | None = None
        self._batch: int | None = None
        self._validated_s = 0.0
        self._last: tuple[int, float] | None = None  # steps, and seconds of training, at the last look
        self._newest: tuple[int, float] | None = None

    def on_event(self, event: Event) -> None:
        """Follow an event of the run; called in the thread that writes it."""
        if isinstance(event, Progress):
            self._note(event.step, event.elapsed_s)
        elif isinstance(event, EpochEnded):
            self._validated_s += event.validation_s
            self._note(event.step, event.elapsed_s)
        elif isinstance(event, PhaseStarted):
            self._turn(is_paused=event.phase == Phase.PAUSED)
        elif isinstance(event, RunResumed):  # it goes back to a checkpoint
            with self._lock:
                self._began, self._earlier_s = None, event.elapsed_s
        elif isinstance(event, FitStarted):
            with self._lock:
                # A second `fit` of the run continues its seconds and compiles again.
                self._began = self._clock() - self._earlier_s if self._began is None else self._began
                self._batch = event.global_batch
                self._last = self._newest = None

    def elapsed_s(self) -> float | None:
        """Return seconds since the run's first `fit` began, as the event `Progress` counts them; None before."""
        with self._lock:
            if self._began is None:
                return None
            now = self._clock() if self._paused_at is None else self._paused_at
            return round(now - self._began, 3)

    def look(self) -> tuple[float | None, str]:
        """Return examples a second since the last look, and why there is no figure."""
        with self._lock:
            if self._began is None:
                return None, "training has not begun"
            if not self._batch:
                return None, "the batch size is unknown"
            if self._last is None or self._newest is None:
                self._last = self._newest
                return None, "no step of training has ended"
            steps, seconds = (now - then for now, then in zip(self._newest, self._last, strict=True))
            if seconds < _SHORTEST_S or steps <= 0:
                return None, "no step of training has ended since"
            self._last = self._newest
            return round(steps * self._batch * self._share / seconds, 1), ""

    def _turn(self, *, is_paused: bool) -> None:
        """Stop the time at the beginning of a pause, and let it go on at the end."""
        with self._lock:
            now = self._clock()
            if is_paused:
                self._paused_at = now
            elif self._paused_at is not None and self._began is not None:
                self._began, self._paused_at = self._began + now - self._paused_at, None

    def _note(self, step: int, elapsed_s: float) -> None:
        with self._lock:
            self._newest = (step, elapsed_s - self._validated_s)
            if self._last is None:
                # The first execution, which compiles, ends here: nothing before it is counted.
                self._last = self._newest


_EVERY_S = 1.0


class Sampler:
    """Writes the figures of this host, and those of its devices when they change, while a block runs.

    `accelerator` is None in a notebook, which chooses its own; `earlier_s` are the seconds of training before the run
    was resumed.
    """

    def __init__(self, recorder: Recorder, accelerator: Accelerator | None = None, earlier_s: float = 0.0) -> None:
        share = 1.0  # of the replicas
        if accelerator is not None:
            mine = sum(replica.process == accelerator.process for replica in accelerator.replicas)
            share = mine / len(accelerator.replicas)
        self._recorder = recorder
        self._devices = DeviceReader(accelerator) if accelerator is not None else None
        self._host = HostReader(accelerator.process if accelerator is not None else 0)
        self._pace = HostPace(share, earlier_s)
        self._last: MemorySampled | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tpu-console-sampler", daemon=True)

    def start(self) -> None:
        """Start sampling."""
        self._recorder.listen(self._pace.on_event)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling; wait for a sample that is under way."""
        self._over.set()
        self._thread.join(2.0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

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
