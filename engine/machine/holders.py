"""The processes that hold the TPU: those with its device files open, and the owner of libtpu's lock file.

One process at a time may load libtpu. It locks ``/tmp/libtpu_lockfile`` until it ends and then removes it. If another
user left the file behind, libtpu cannot open it and thinks that the TPU is in use. Source: OpenXLA's
`xla/stream_executor/tpu/tpu_initialize_util.cc`. Nothing here opens a device, takes a lock, or ends a process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..sanitize import printable

if TYPE_CHECKING:
    from .sources import Sources

LOCK = "tmp/libtpu_lockfile"
_TPU_DEVICE = re.compile(r"/dev/(?:accel|vfio/)\d+")


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a device of the TPU."""

    pid: int
    command: str
    user: str
    evidence: str  # the open file or lock, such as ``/proc/4242/fd/7 -> /dev/accel0``


@dataclass(frozen=True, slots=True)
class Lock:
    """The lock file."""

    user: str
    is_ours: bool  # whether this user may open it for writing
    is_locked: bool = False
    pid: int = 0  # that process; 0 for none or one outside this container


@dataclass(frozen=True, slots=True)
class Holders:
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
