"""Which process a heartbeat names, and whether that process is running.

A process ID is reused, it means another process in another container, and on Linux the creation time from `psutil`
changes with the clock. So a heartbeat also has the boot ID, the PID namespace and the start time in clock ticks since
boot. Systems without ``/proc`` use host name, process ID and creation time.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_CREATED_WITHIN_S = 2.0  # largest difference between two readings of the same creation time, as both are rounded


class Sight(StrEnum):
    """The result of looking for a process."""

    RUNNING = "running"
    GONE = "gone"
    UNSEEN = "unseen"  # cannot be seen from here: another machine, another container, a reader without the right


def identify(pid: int) -> dict[str, Any]:
    """Return the part of a heartbeat that names a process of this PID namespace: this one or a child of it."""
    identity: dict[str, Any] = {"pid": pid, "host": os.uname().nodename} | _place()
    if (stat := _stat_of(pid)) is not None:
        identity["start_ticks"] = stat[1]
    if (created := _created(pid)) is not None:
        identity["created"] = created
    return identity


def session_began() -> float | None:
    """Return when this machine or container started, in Unix time; None if unknown."""
    return _created(1)


def look_for(identity: Mapping[str, Any]) -> Sight:
    """Look for the process of a heartbeat."""
    pid, host = identity.get("pid"), identity.get("host")
    if not isinstance(pid, int) or pid <= 0 or host != os.uname().nodename:
        return Sight.UNSEEN
    place = _place()
    if place != {key: identity[key] for key in ("boot_id", "pid_namespace") if key in identity}:
        return Sight.UNSEEN  # another boot or container
    if "start_ticks" not in identity:
        created, meant = _created(pid), identity.get("created")
        is_near = isinstance(meant, int | float) and created is not None and abs(created - meant) < _CREATED_WITHIN_S
        return Sight.RUNNING if is_near else Sight.GONE
    if not _sees_processes():
        return Sight.UNSEEN
    if (stat := _stat_of(pid)) is not None:
        state, started = stat
        return Sight.RUNNING if started == identity["start_ticks"] and state not in "ZX" else Sight.GONE
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return Sight.GONE
    except PermissionError:
        pass
    return Sight.UNSEEN  # it exists, but /proc hides the processes of other users (mount option hidepid)


def _created(pid: int) -> float | None:
    """Return when a process was created, in Unix time; None if it is gone or only a zombie is left."""
    if (_PROC / "self").exists() and not _sees_processes():
        return None
    import psutil  # here, as the list of runs rarely needs it

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (psutil.Error, ValueError, OverflowError):
        return None


def _place() -> dict[str, Any]:
    """Return the boot ID and the PID namespace; empty if unknown."""
    place: dict[str, Any] = {}
    with suppress(OSError):
        place["boot_id"] = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        place["pid_namespace"] = (_PROC / "self/ns/pid").stat().st_ino
    return place


def _sees_processes() -> bool:
    """Return whether ``/proc`` belongs to this PID namespace; in a new one it may still be the parent's."""
    try:
        return str((_PROC / "self").readlink()) == str(os.getpid())
    except OSError:
        return False


def _stat_of(pid: int) -> tuple[str, int] | None:
    """Return a process's state and its start in clock ticks since boot (see proc_pid_stat(5)), or None."""
    folder = "self" if pid == os.getpid() else str(pid)
    if folder != "self" and not _sees_processes():
        return None
    try:
        # The name in parentheses may itself hold spaces and parentheses.
        fields = (_PROC / folder / "stat").read_bytes().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
