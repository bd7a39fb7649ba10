"""The facts about this machine: place, accelerators, limits, packages, terminal.

Probes read them in parallel through `engine.machine.sources`, within a time limit. No framework is imported.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from .gpu import Gpus, find_gpus
from .holders import Holders, find_holders
from .packages import Packages, find_packages
from .place import Kind, Place, find_place, read_metadata
from .resources import Disk, Resources, find_disks, find_resources
from .shell import Shell, find_shell
from .sources import this_machine
from .tpu import Tpu, find_tpu

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .sources import Sources

LIMIT_S = 2.2  # time limit for all probes together

# Keras downloads datasets and weights from here.
_DATA_HOST = "storage.googleapis.com"


@dataclass(frozen=True)
class Environment:
    """The facts about a machine; None if a probe gave no answer."""

    place: Place
    tpu: Tpu | None  # the TPU, if there is any sign of one
    gpus: Gpus | None
    holders: Holders | None
    resources: Resources | None
    disks: tuple[Disk, ...] | None
    packages: Packages | None
    shell: Shell
    has_internet: bool | None  # whether `data_host` answers; only checked on Kaggle, where internet can be off
    huge_pages: str  # the setting of transparent huge pages, such as ``[always] madvise never``; empty if unknown
    unanswered: Mapping[str, str]  # the reason of each probe without an answer, by name

    data_host = _DATA_HOST


def look_around(sources: Sources | None = None, limit_s: float = LIMIT_S) -> Environment:
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
    probes = {name: _Probe(name, partial(look, sources)) for name, look in looks.items()}
    found = {name: probe.answer(deadline, unanswered) for name, probe in probes.items()}
    attributes = found.pop("metadata") or {}
    return Environment(
        place=find_place(sources, attributes),
        tpu=find_tpu(sources, attributes),
        shell=find_shell(sources),
        huge_pages=sources.text("sys/kernel/mm/transparent_hugepage/enabled"),
        unanswered=unanswered,
        **found,
    )


def _reaches_data(sources: Sources) -> bool | None:
    if find_place(sources, {}).kind is not Kind.KAGGLE:
        return None
    return sources.reaches(_DATA_HOST, 443)


class _Probe:
    """Reads one fact in its own thread, which may hang, for example on a dead network disk."""

    def __init__(self, name: str, look: Callable[[], Any]) -> None:
        self._name = name
        self._look = look
        self._found: list[Any] = []
        self._why = ""
        self._thread = threading.Thread(target=self._run, name=f"probe {name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self._look())
        except Exception as error:  # noqa: BLE001  one failing probe must not stop the others
            self._why = f"{type(error).__name__}: {error}"

    def answer(self, deadline: float, unanswered: dict[str, str]) -> Any:
        """Wait for the fact until the deadline; if there is none, put the reason into `unanswered`."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._found:
            return self._found[0]
        unanswered[self._name] = self._why or "it took too long"
        return None
