"""Cores, memory and room on disks, with the limits that a container sets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .sources import Sources, Space

_CGROUP = "sys/fs/cgroup"
# Version 1 writes "no limit" as the largest number of pages; nothing real comes near it.
_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Resources:
    """What may be used of the machine.

    Args:
        cores: Cores that may be kept busy; a fraction where a container's limit is one.
        processors: Processors that were seen before that limit.
        memory_bytes: Memory that may be used; 0 where it is not known.
        machine_memory_bytes: Memory of the whole machine.
        evidence: The files that were read.
    """

    cores: float
    processors: int
    memory_bytes: int
    machine_memory_bytes: int
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Disk:
    """Room for one purpose.

    Args:
        purpose: What it is for, such as ``Keras cache``.
        folder: The folder; it need not exist yet.
        space: Room on its file system; None where that could not be read.
        measured_at: The folder that was asked: itself, or the nearest one above it that exists.
    """

    purpose: str
    folder: Path
    space: Space | None
    measured_at: Path


def find_resources(sources: Sources) -> Resources:
    """Read cores and memory, and the limits of control groups of versions 1 and 2."""
    told = re.search(r"^MemTotal:\s+(\d+) kB", sources.text("proc/meminfo"), re.MULTILINE)
    total = int(told[1]) * 1024 if told else 0
    evidence = ["/proc/meminfo"] if told else []
    cores, memory = float(sources.cpus), total
    for file, limit in _core_limits(sources):
        if limit < cores:
            cores = limit
            evidence.append(f"/{file}")
    for file, limit_bytes in _memory_limits(sources):
        if limit_bytes < memory or (not memory and limit_bytes < _UNLIMITED):
            memory = limit_bytes
            evidence.append(f"/{file}")
    return Resources(cores, sources.cpus, memory, total, tuple(evidence))


def find_disks(sources: Sources) -> tuple[Disk, ...]:
    """Read the room of the folders that training writes to, and of ``/dev/shm``."""
    disks = [_disk(sources, purpose, folder) for purpose, folder in sources.folders.items()]
    shm = Path("/dev/shm")  # noqa: S108  a look at its size
    return (*disks, Disk("shared memory", shm, sources.space(shm), shm))


def _disk(sources: Sources, purpose: str, folder: Path) -> Disk:
    for place in (folder, *folder.parents):
        if (space := sources.space(place)) is not None:
            return Disk(purpose, folder, space, place)
    return Disk(purpose, folder, None, folder)


def _group(sources: Sources, controller: str) -> str:
    """Return the path of this process's group; empty where the process belongs to none."""
    for line in sources.text("proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controller in controllers.split(",") if controller else not controllers:
            return path.strip("/")
    return ""


def _upwards(path: str) -> Iterator[str]:
    """Yield a group and those above it, as each may set a limit; the last is the root as seen from here."""
    parts = path.split("/") if path else []
    for count in range(len(parts), -1, -1):
        yield "/".join([*parts[:count], ""])


def _core_limits(sources: Sources) -> Iterator[tuple[str, float]]:
    for group in _upwards(_group(sources, "")):
        file = f"{_CGROUP}/{group}cpu.max"
        quota, _, period = sources.text(file).partition(" ")
        if quota.isdigit() and period.isdigit():
            yield file, int(quota) / int(period)
    for folder in ("cpu", "cpu,cpuacct"):
        for group in _upwards(_group(sources, "cpu")):
            file = f"{_CGROUP}/{folder}/{group}cpu.cfs_quota_us"
            quota, period = sources.text(file), sources.text(file.replace("quota", "period"))
            if quota.isdigit() and period.isdigit():
                yield file, int(quota) / int(period)


def _memory_limits(sources: Sources) -> Iterator[tuple[str, int]]:
    files = [f"{_CGROUP}/{group}memory.max" for group in _upwards(_group(sources, ""))]
    files += [f"{_CGROUP}/memory/{group}memory.limit_in_bytes" for group in _upwards(_group(sources, "memory"))]
    for file in files:
        if (text := sources.text(file)).isdigit():
            yield file, int(text)
