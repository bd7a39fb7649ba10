"""What this machine has: accelerators and who holds them, cores, memory and disks, packages, terminal."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..sanitize import printable
from .devices import Kind, ThisMachine, Tpu, detect_hardware, find_place, find_tpu, read_metadata
from .install import Packages, find_packages
from .sources import Sources, Space, this_machine

_ASK = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_FOLDERS = (
    *("usr/local/cuda/lib64", "usr/local/cuda-*/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"),
    *("usr/lib64", "usr/lib64-nvidia"),
)
# TensorFlow and JAX load these two first; other libraries come with them. The packages of CUDA 12 are named in
# TensorFlow's extra and-cuda and required by jax-cuda12-plugin; those of CUDA 13 dropped the suffix.
_LIBRARIES = {
    "libcudart": ("nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"),
    "libcudnn": ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
}


class Gpus(Struct, frozen=True):
    """The GPUs."""

    names: tuple[str, ...]
    memory_mib: tuple[int, ...]  # memory of each, from nvidia-smi; empty if it does not answer
    driver: str  # version of the kernel driver; empty if none is loaded
    libraries: tuple[tuple[str, str], ...]  # the CUDA libraries that were found, each with its place
    evidence: tuple[str, ...]  # the files and programs that were read

    @property
    def missing(self) -> tuple[str, ...]:
        """The CUDA libraries that were not found."""
        there = dict(self.libraries)
        return tuple(name for name in _LIBRARIES if name not in there)

    def __str__(self) -> str:
        memory = f", {self.memory_mib[0] / 1024:.0f} GiB" if self.memory_mib else ""
        memory += " each" if memory and len(self.names) > 1 else ""
        return (f"{len(self.names)} × " if len(self.names) > 1 else "") + self.names[0] + memory


def find_gpus(sources: Sources) -> Gpus | None:
    """Find the NVIDIA GPUs; None if there are none."""
    names = detect_hardware(sources.root, {}).gpus  # also those that a variable hides
    if not names:
        return None
    kernel = re.search(r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)", sources.text("proc/driver/nvidia/version"))
    is_named = (sources.root / "proc/driver/nvidia/gpus").is_dir()
    evidence = ["/proc/driver/nvidia/gpus" if is_named else "/dev/nvidia0"]
    memory: tuple[int, ...] = ()
    if answer := sources.run(_ASK):
        rows = [line.rpartition(",") for line in answer.splitlines() if "," in line]
        memory = tuple(int(mib) for _, _, mib in rows if mib.strip().isdigit())
        names = tuple(name.strip() for name, _, _ in rows) or names
        evidence.append("nvidia-smi")
    if kernel is not None:
        evidence.append("/proc/driver/nvidia/version")
    return Gpus(names, memory, kernel[1] if kernel else "", _libraries(sources), tuple(evidence))


def _libraries(sources: Sources) -> tuple[tuple[str, str], ...]:
    extra = [path.lstrip("/") for path in sources.environ.get("LD_LIBRARY_PATH", "").split(":") if path.startswith("/")]
    found = {}
    for library, packages in _LIBRARIES.items():
        for name in packages:
            if (package := sources.package(name)) is not None:
                found[library] = f"{name} {package.version}"
        if library not in found:
            files = (path for folder in (*extra, *_FOLDERS) for path in sources.root.glob(f"{folder}/{library}.so*"))
            if (path := next(files, None)) is not None:
                found[library] = f"/{path.relative_to(sources.root)}"
    return tuple(found.items())


# The processes that hold the TPU: those with its device files open, and the owner of libtpu's lock file. One process
# at a time may load libtpu. It locks the file until it ends and then removes it. If another user left the file behind,
# libtpu cannot open it and thinks that the TPU is in use. Source: OpenXLA's `tpu_initialize_util.cc`.
LOCK = "tmp/libtpu_lockfile"
_TPU_DEVICE = re.compile(r"/dev/(?:accel|vfio/)\d+")


class Holder(Struct, frozen=True):
    """A process that holds a device of the TPU."""

    pid: int
    command: str
    user: str
    evidence: str  # the open file or lock, such as ``/proc/4242/fd/7 -> /dev/accel0``


class Lock(Struct, frozen=True):
    """The lock file."""

    user: str
    is_ours: bool  # whether this user may open it for writing
    is_locked: bool = False
    pid: int = 0  # that process; 0 for none or one outside this container


class Holders(Struct, frozen=True):
    """The processes that hold the TPU, and the lock file."""

    processes: tuple[Holder, ...] = ()
    lock: Lock | None = None
    unseen: int = 0  # number of processes that this user may not look into


def find_holders(sources: Sources) -> Holders:
    """Check the open files of all processes, and the lock file."""
    found: dict[int, Holder] = {}
    unseen = 0
    for pid in sorted(int(folder.name) for folder in (sources.root / "proc").iterdir() if folder.name.isdigit()):
        try:
            if evidence := _open_device(sources, pid):
                found[pid] = _holder(sources, pid, evidence)
        except PermissionError:
            unseen += 1
        except OSError:
            pass  # the process has ended
    lock = _lock(sources)
    if lock is not None and lock.pid and lock.pid not in found:
        found[lock.pid] = _holder(sources, lock.pid, f"/proc/locks: process {lock.pid} locks /{LOCK}")
    return Holders(tuple(found.values()), lock, unseen)


def _open_device(sources: Sources, pid: int) -> str:
    links = (sources.root / "proc" / str(pid) / "fd").iterdir()
    for link in sorted(links, key=lambda link: (len(link.name), link.name)):
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue
        if _TPU_DEVICE.fullmatch(target):
            return f"/proc/{pid}/fd/{link.name} -> {target}"
    return ""


def _holder(sources: Sources, pid: int, evidence: str) -> Holder:
    command = printable(sources.text(f"proc/{pid}/cmdline").replace("\0", " ")).strip()
    uid = re.search(r"^Uid:\s+(\d+)", sources.text(f"proc/{pid}/status"), re.MULTILINE)
    return Holder(pid, command or "?", _user(sources, int(uid[1])) if uid else "an unknown user", evidence)


def _lock(sources: Sources) -> Lock | None:
    try:
        facts = (sources.root / LOCK).stat()
    except OSError:
        return None
    # Such as "1: POSIX  ADVISORY  WRITE 4242 00:2d:1234 0 EOF"; the third number is the inode.
    locked = re.search(rf"POSIX\s+ADVISORY\s+WRITE\s+(-?\d+)\s+\S+:{facts.st_ino}\s", sources.text("proc/locks"))
    may_write = sources.uid in (0, facts.st_uid) or bool(facts.st_mode & 0o002)
    pid = max(0, int(locked[1])) if locked else 0  # 0 or -1: a process outside this container
    return Lock(_user(sources, facts.st_uid), may_write, locked is not None, pid)


def _user(sources: Sources, uid: int) -> str:
    entries = (line.split(":") for line in sources.text("etc/passwd").splitlines())
    return next((entry[0] for entry in entries if entry[2:3] == [str(uid)]), f"user {uid}")


# Cores, memory and disk space, within the limits of a container: Linux control groups of versions 1 and 2.
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


_TRUE_COLORS, _MANY, _FEW = 1 << 24, 256, 8


class Shell(Struct, frozen=True):
    """The terminal, according to its variables."""

    is_terminal: bool
    locale: str  # the variable that decides the encoding, such as ``LANG=C.UTF-8``; empty if none is set
    is_utf8: bool  # whether the encoding is UTF-8, which Python also uses without a locale
    colors: int
    color_evidence: str  # the variable that decides the colors
    ssh: str  # the variable that shows an SSH connection; empty for none
    multiplexer: str  # ``tmux`` or ``screen`` when running inside one
    installed: tuple[str, ...]  # which of the two are installed


def find_shell(sources: Sources) -> Shell:
    """Read the terminal's variables."""
    environ = sources.environ
    deciding = next((name for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    value = environ.get(deciding, "C.UTF-8").lower()
    term, has_all = environ.get("TERM", ""), environ.get("COLORTERM", "") in ("truecolor", "24bit")
    colors = _TRUE_COLORS if has_all else _MANY if "256" in term or "direct" in term else _FEW
    evidence = f"COLORTERM={environ['COLORTERM']}" if has_all else f"TERM={term}" if term else "TERM is not set"
    if environ.get("NO_COLOR"):
        colors, evidence = 0, f"NO_COLOR={environ['NO_COLOR']}"
    elif term in ("", "dumb"):
        colors = 0
    multiplexer = "tmux" if environ.get("TMUX") else "screen" if environ.get("STY") else ""
    return Shell(
        is_terminal=sources.is_terminal,
        locale=f"{deciding}={environ[deciding]}" if deciding else "",
        is_utf8="utf-8" in value or "utf8" in value,
        colors=colors,
        color_evidence=evidence,
        ssh=next((name for name in ("SSH_CONNECTION", "SSH_TTY") if environ.get(name)), ""),
        multiplexer=multiplexer,
        installed=tuple(name for name in ("tmux", "screen") if sources.which(name)),
    )


DATA_HOST = "storage.googleapis.com"  # Keras downloads datasets and weights from here


class Environment(Struct, frozen=True):
    """The facts about a machine; None if a probe gave no answer."""

    place: ThisMachine
    tpu: Tpu | None  # the TPU, if there is any sign of one
    gpus: Gpus | None
    holders: Holders | None
    resources: Resources | None
    disks: tuple[Disk, ...] | None
    packages: Packages | None
    shell: Shell
    has_internet: bool | None  # whether `DATA_HOST` answers; only checked on Kaggle, where internet can be off
    unanswered: Mapping[str, str]  # the reason of each probe without an answer, by name


def look_around(sources: Sources | None = None, limit_s: float = 2.2) -> Environment:
    """Gather the facts about a machine, this one by default, within a time limit for all probes together."""
    sources = sources or this_machine()
    deadline = time.monotonic() + limit_s
    unanswered: dict[str, str] = {}
    looks: dict[str, Callable[[Sources], Any]] = {
        "metadata": read_metadata,
        "gpus": find_gpus,
        "holders": find_holders,
        "resources": find_resources,
        "disks": find_disks,
        "packages": find_packages,
        "has_internet": _reaches_data,
    }
    answers: dict[str, Any] = {}

    def read(name: str, look: Callable[[Sources], Any]) -> None:
        try:
            answers[name] = look(sources)
        except Exception as error:  # noqa: BLE001  one failing probe must not stop the others
            unanswered[name] = f"{type(error).__name__}: {error}"

    # Each in its own thread, which may hang, for example on a dead network disk.
    threads = [threading.Thread(target=read, args=one, name=f"probe {one[0]}", daemon=True) for one in looks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    answered = dict(answers)  # later ones do not count
    unanswered = {name: unanswered.get(name, "it took too long") for name in looks if name not in answered}
    found = dict.fromkeys(looks) | answered
    attributes = found.pop("metadata") or {}
    place, tpu = find_place(sources, attributes), find_tpu(sources, attributes)
    return Environment(place=place, tpu=tpu, shell=find_shell(sources), unanswered=unanswered, **found)


def _reaches_data(sources: Sources) -> bool | None:
    return sources.reaches(DATA_HOST, 443) if find_place(sources, {}).kind is Kind.KAGGLE else None
