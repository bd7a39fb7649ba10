"""Cores, memory and disk space, within the limits of a container: Linux control groups of versions 1 and 2."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from .sources import Sources, Space, this_machine

_CGROUP = "sys/fs/cgroup"
# Version 1 writes "no limit" as the largest number of pages; nothing real comes near it.
_UNLIMITED = 1 << 60


class Resources(Struct, frozen=True):
    """What this process may use of the machine."""

    cores: float  # cores; a fraction if a container's limit is one
    processors: int  # processors that the process may run on, before that limit
    memory_bytes: int  # memory; 0 if unknown
    machine_memory_bytes: int
    core_limit: str = ""  # the file that limits the cores, as `Sources.text` takes it; empty for none
    memory_limit: str = ""  # the file that limits the memory; empty for none

    @property
    def evidence(self) -> tuple[str, ...]:
        """The files that these figures come from."""
        files = ("proc/meminfo" if self.machine_memory_bytes else "", self.core_limit, self.memory_limit)
        return tuple(f"/{file}" for file in files if file)


class Disk(Struct, frozen=True):
    """Disk space for one purpose."""

    purpose: str  # the purpose, such as ``Keras cache``
    folder: Path  # the folder; it need not exist yet
    space: Space | None  # the space on its file system; None if unknown
    measured_at: Path  # the folder that was measured: itself or the nearest parent that exists


def find_resources(sources: Sources) -> Resources:
    """Read the cores and the memory that this process may use."""
    total_kib = re.search(r"^MemTotal:\s+(\d+) kB", sources.text("proc/meminfo"), re.MULTILINE)
    total = int(total_kib[1]) * 1024 if total_kib else 0
    cores, core_limit = min([(float(sources.cpus), ""), *_core_limits(sources)])
    memory, memory_limit = min([(total or _UNLIMITED, ""), *_memory_limits(sources)])
    return Resources(cores, sources.cpus, memory if memory < _UNLIMITED else 0, total, core_limit, memory_limit)


def usable_cores(sources: Sources | None = None) -> int:
    """Return how many cores this process can keep busy; a container's fraction of one is rounded up."""
    return math.ceil(find_resources(sources or this_machine()).cores)


def free_memory_bytes(sources: Sources | None = None) -> int:
    """Return the memory that this process may still take: the machine's, or what a container leaves of its limit."""
    import psutil

    sources = sources or this_machine()
    free = int(psutil.virtual_memory().available)
    # Every group above may have a limit too.
    for limit_bytes, file in _memory_limits(sources):
        if (used := used_memory_bytes(sources, file)) is not None:
            free = min(free, limit_bytes - used)
    return max(0, free)


def used_memory_bytes(sources: Sources, limit_file: str) -> int | None:
    """Return the memory that the control group of a limit file uses; None if its files do not say.

    Cached files do not count, as in ``MemAvailable``: the kernel drops them when memory is needed.
    """
    folder, _, name = limit_file.rpartition("/")
    usage, prefix = ("memory.current", "") if name == "memory.max" else ("memory.usage_in_bytes", "total_")
    used = sources.text(f"{folder}/{usage}")
    if not used.isdigit():
        return None
    stat = sources.text(f"{folder}/memory.stat")
    cached = re.findall(rf"^{prefix}(?:in)?active_file (\d+)", stat, re.MULTILINE)
    return max(0, int(used) - sum(map(int, cached)))


def find_disks(sources: Sources) -> tuple[Disk, ...]:
    """Read the disk space of the folders that training writes to, and of ``/dev/shm``."""
    disks = []
    shm = Path("/dev/shm")  # noqa: S108  a look at its size
    for purpose, folder in sources.folders.items():
        spaces = ((place, sources.space(place)) for place in (folder, *folder.parents))
        place, space = next((one for one in spaces if one[1] is not None), (folder, None))
        disks.append(Disk(purpose, folder, space, place))
    return (*disks, Disk("shared memory", shm, sources.space(shm), shm))


def _folders(sources: Sources, mount: str, controller: str = "") -> Iterator[str]:
    """Yield the folders of this process's group and of those above it; in a container, only the root may exist.

    The group is that of a controller in version 1, or of version 2.
    """
    lines = (line.split(":", 2) for line in sources.text("proc/self/cgroup").splitlines())
    groups = (group[2] for group in lines if len(group) == 3 and controller in group[1].split(","))
    parts = [part for part in next(groups, "").split("/") if part]
    for count in range(len(parts), -1, -1):
        yield "/".join([mount, *parts[:count]])


def _core_limits(sources: Sources) -> Iterator[tuple[float, str]]:
    for folder in _folders(sources, _CGROUP):
        quota, _, period = sources.text(f"{folder}/cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            yield int(quota) / int(period), f"{folder}/cpu.max"
    for mount in ("cpu", "cpu,cpuacct"):
        for folder in _folders(sources, f"{_CGROUP}/{mount}", "cpu"):
            file = f"{folder}/cpu.cfs_quota_us"
            quota, period = sources.text(file), sources.text(f"{folder}/cpu.cfs_period_us")
            if quota.isdigit() and period.isdigit():
                yield int(quota) / int(period), file


def _memory_limits(sources: Sources) -> Iterator[tuple[int, str]]:
    files = [f"{folder}/memory.max" for folder in _folders(sources, _CGROUP)]
    files += [f"{folder}/memory.limit_in_bytes" for folder in _folders(sources, f"{_CGROUP}/memory", "memory")]
    for file in files:
        if (text := sources.text(file)).isdigit() and int(text) < _UNLIMITED:
            yield int(text), file
