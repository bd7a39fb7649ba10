"""Finds out which machines train together, from the configuration or from the variables of a TPU pod."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import AcceleratorError
from ...machine.devices import Tpu, count_slices, find_tpu
from ...machine.place import read_metadata
from ...runs.events import RunSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...config.run_config import RunConfig
    from ...machine.sources import Sources
    from ..backend import BackendChoice

_WAIT_S = 300.0  # for the other machines at the start
PORT = 8482  # the coordinator's port if the address has none; JAX uses the same on TPU pods
_ADDRESS = re.compile(r"(\[[^][/ ]+\]|[^][:/ ]+)(?::([0-9]+))?|((?:[^][:/ ]*:){2,}[^][:/ ]*)")


@dataclass(frozen=True, slots=True)
class Membership:
    """This machine's place among the hosts that train together."""

    count: int
    index: int  # this host's number, from 0
    address: str
    port: int
    wait_s: float
    why: str

    @property
    def where(self) -> str:
        """Host 0's address and port."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def find_membership(config: RunConfig, sources: Sources) -> Membership | None:
    """Return this machine's place among the hosts of a run; None if it trains alone.

    What the configuration leaves open comes from the machine's variables and, on a TPU VM, from the metadata server.

    Raises:
        AcceleratorError: Something that is needed is missing or wrong.
    """
    hosts = config.hosts
    if hosts.count == 1:
        return None
    metadata, pod = dict[str, str](), None
    if config.accelerator in {"auto", "tpu"}:  # a CPU or a simulation has nothing to do with a pod
        metadata = read_metadata(sources)
        pod = find_tpu(sources, metadata)
    slices = count_slices(sources.environ)
    count, index = hosts.count, hosts.index
    if count == "auto":
        count = pod.hosts * slices if pod is not None and pod.is_here else 1
    if count == 1:
        return None
    if index == "auto":
        index = _index(pod, slices, sources.environ) if pod is not None else -1
    if index < 0:
        raise AcceleratorError(
            f"The number of this host among the {count} is unknown.", remedy=f"Set --host-index, 0 to {count - 1}."
        )
    if index >= count:
        raise AcceleratorError(
            f"This is host {index}, but {count} hosts have the numbers 0 to {count - 1}.",
            remedy="Check --hosts and --host-index.",
        )
    address, port = _split(hosts.coordinator) if hosts.coordinator else (_first_worker(sources, metadata), PORT)
    if not address:
        raise AcceleratorError(
            "The address of host 0 is unknown.", remedy="Set --coordinator ADDRESS:PORT, the same on all hosts."
        )
    why = "asked for"
    if hosts.count == "auto" and pod is not None:
        name = pod.accelerator_type or "this TPU slice"
        why = f"{slices} slices of {name} have {count} hosts" if slices > 1 else f"{name} has {count} hosts"
    return Membership(count, index, address, port, _WAIT_S, why)


def check_can_join(membership: Membership, backend_choice: BackendChoice, source: str) -> None:
    """Raise an `AcceleratorError` if a run cannot train on several hosts; `source` is ``host`` or ``in-process``."""
    if source != RunSource.PROCESS:
        raise AcceleratorError(
            f"A run on {membership.count} hosts ({membership.why}) needs its own process.",
            why="If another host is lost, this process ends, and the console would end with it.",
            remedy="Start it without --in-process.",
        )
    if not backend_choice.framework.joins_hosts:
        raise AcceleratorError(
            f"{membership.count} hosts ({membership.why}) can train together with JAX only, and this run uses "
            f"{backend_choice.backend} ({backend_choice.why}).",
            remedy="Use --backend jax, or --hosts 1 on a machine that has its own TPU.",
        )


def _index(pod: Tpu, slices: int, environ: Mapping[str, str]) -> int:
    """Return this host's number among all slices, by the rule of JAX's `cloud_tpu_cluster.py`; -1 if unknown."""
    if slices == 1:
        return pod.host_index
    number = environ.get("MEGASCALE_SLICE_ID", "")
    worker = pod.host_index if pod.host_index >= 0 or pod.hosts > 1 else 0
    return int(number) * pod.hosts + worker if number.isdecimal() and worker >= 0 else -1


def _first_worker(sources: Sources, metadata: Mapping[str, str]) -> str:
    """Return host 0's address from a pod's variables or metadata, which lists addresses or ``name:number:address``.

    Ports in the variables belong to libtpu.
    """
    if count_slices(sources.environ) > 1:
        address = sources.environ.get("MEGASCALE_COORDINATOR_ADDRESS", "")
        return address if address.count(":") > 1 else address.partition(":")[0]
    names = sources.environ.get("TPU_PROCESS_ADDRESSES") or sources.environ.get("TPU_WORKER_HOSTNAMES")
    if names:
        return names.split(",")[0].strip().partition(":")[0]
    return metadata.get("worker-network-endpoints", "").split(",")[0].strip().rpartition(":")[2]


def _split(address: str) -> tuple[str, int]:
    """Split ``address:port``; an IPv6 address with a port is in brackets."""
    found = _ADDRESS.fullmatch(address)
    port = int(found[2] or PORT) if found is not None else 0
    if found is None or not 0 < port <= 65535:
        raise AcceleratorError(
            f"'{address}' is not a coordinator's address.",
            remedy="Write --coordinator ADDRESS:PORT, or [ADDRESS]:PORT for IPv6.",
        )
    return (found[1] or found[3]).strip("[]"), port
