"""Everything that is read from the machine goes through here, so that tests can use a recorded machine instead."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from msgspec import Struct

from ..storage.paths import keras_home, runs_folder

_METADATA_S = 0.5
_COMMAND_S = 1.5
_CONNECT_S = 1.0
# An address, because a name server that does not answer would take too long.
_METADATA = "http://169.254.169.254/computeMetadata/v1/instance/attributes/"


class Package(Struct, frozen=True):
    """The metadata of an installed package."""

    name: str
    version: str
    requires: tuple[str, ...] = ()  # requirements in the form of PEP 508


class Space(Struct, frozen=True):
    """Total and free space of a file system."""

    total_bytes: int
    free_bytes: int


class Sources(Struct, frozen=True):
    """Where the facts about a machine are read."""

    environ: Mapping[str, str]
    root: Path  # where ``/dev``, ``/etc``, ``/proc``, ``/sys``, ``/tmp`` and ``/usr`` are found
    uid: int
    cpus: int  # processors this process may run on
    python: str
    folders: Mapping[str, Path]  # folders that training writes to, by purpose
    package: Callable[[str], Package | None]  # an installed package by name
    space: Callable[[Path], Space | None]  # the disk space of a folder; None if the folder does not exist
    metadata: Callable[[str], str | None]  # an attribute of Google's metadata server, within a second
    run: Callable[[Sequence[str]], str | None]  # the output of a program; None if it is missing, fails or takes long
    which: Callable[[str], str | None]  # the path of a program
    reaches: Callable[[str, int], bool]  # whether a host answers at a port, within a second after resolving its name
    is_terminal: bool

    def text(self, path: str) -> str:
        """Read a small file, such as ``proc/meminfo``; empty if it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip("\0\n ")
        except OSError:
            return ""


def this_machine() -> Sources:
    """Return the sources of this machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    return Sources(
        environ=dict(os.environ),
        root=Path("/"),
        uid=os.getuid(),
        cpus=len(affinity(0)) if affinity is not None else os.cpu_count() or 1,
        python=".".join(str(part) for part in sys.version_info[:3]),
        folders={"Keras cache": keras_home(), "runs": runs_folder()},
        package=_package,
        space=_space,
        metadata=_metadata,
        run=_run,
        which=shutil.which,
        reaches=_reaches,
        is_terminal=sys.stdout.isatty(),
    )


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages of these names that are installed."""
    return {name: found.version for name in names if (found := _package(name)) is not None}


def _package(name: str) -> Package | None:
    with suppress(PackageNotFoundError):
        found = distribution(name)
        return Package(name, found.version, tuple(found.requires or ()))
    return None


def _space(folder: Path) -> Space | None:
    usage = shutil.disk_usage(folder) if folder.exists() else None
    return Space(usage.total, usage.free) if usage is not None else None


def _metadata(key: str) -> str | None:
    import http.client
    import urllib.request

    request = urllib.request.Request(_METADATA + key, headers={"Metadata-Flavor": "Google"})  # noqa: S310  fixed http
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    # It may be refused, silent, without such an attribute, or not that server.
    with suppress(OSError, http.client.HTTPException), directly.open(request, timeout=_METADATA_S) as answer:
        text: str = answer.read(65536).decode("utf-8", "replace")
        return text
    return None


def _run(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _reaches(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=_CONNECT_S):
        return True
    return False
