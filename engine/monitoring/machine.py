"""Reads the load of the machine's processors, memory and disks, within the limits of a container.

In a container with a limit, the figures of the whole machine include its neighbours. There the container's own counters
are read, from the folder of the file that sets the limit.
"""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import psutil

from ..machine.resources import find_resources, used_memory_bytes
from ..machine.sources import this_machine
from ..runs.events import HostSampled

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..machine.sources import Sources

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
        used, limit = self._memory_bytes()
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

    def _memory_bytes(self) -> tuple[int | None, int | None]:
        """Return memory in use, without what the kernel only keeps of files, and memory there is."""
        if limit := self._resources.memory_limit:
            return used_memory_bytes(self._sources, limit), self._resources.memory_bytes
        memory = psutil.virtual_memory()
        return memory.total - memory.available, memory.total

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
