"""Which machines train together, by the configuration or by a TPU pod's own variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import AcceleratorError
from ...machine.place import read_metadata
from ...machine.tpu import find_tpu
from ...runs.events import RunSource
from ..backend import JAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...config.run_config import RunConfig
    from ...machine.sources import Sources
    from ...machine.tpu import Tpu
    from ..backend import BackendChoice

PORT = 8482
"""Where the coordinator listens when the address does not say; JAX's own habit on TPU pods."""


@dataclass(frozen=True, slots=True)
class Membership:
    """This machine's place among those that train together.

    Args:
        count: How many there are.
        index: This machine's number, from 0.
        address: Where host 0 is reached.
        port: Its port.
        wait_s: Longest time to wait for the others.
        why: Where this is known from.
    """

    count: int
    index: int
    address: str
    port: int
    wait_s: float
    why: str

    @property
    def where(self) -> str:
        """The address and the port of host 0, as they are written."""
        return self.at(self.port)

    def at(self, port: int) -> str:
        """Write host 0's address with a port."""
        return f"[{self.address}]:{port}" if ":" in self.address else f"{self.address}:{port}"


def find_membership(config: RunConfig, sources: Sources) -> Membership | None:
    """Tell which machines train together.

    Args:
        config: The configuration.
        sources: This machine; its variables, and on a TPU VM the metadata server, are asked where the configuration
            leaves it open and a TPU of this machine is used.

    Returns:
        None where this machine trains alone.

    Raises:
        AcceleratorError: Something that is needed is neither configured nor told, or cannot be.
    """
    hosts = config.hosts
    if hosts.count == 1:
        return None
    # Of a pod's hosts none can use its chips alone; a simulation or a CPU has nothing to do with the pod.
    metadata = read_metadata(sources) if config.accelerator in {"auto", "tpu"} else {}
    pod = find_tpu(sources, metadata) if config.accelerator in {"auto", "tpu"} else None
    count = hosts.count if hosts.count != "auto" else pod.hosts if pod is not None and pod.is_here else 1
    if count == 1:
        return None
    index = hosts.index if hosts.index != "auto" else pod.host_index if pod is not None else -1
    if index < 0:
        raise AcceleratorError(
            f"Which of the {count} hosts this is, is not known.", remedy=f"Say it with --host-index, 0 to {count - 1}."
        )
    if index >= count:
        raise AcceleratorError(
            f"This is host {index}, but {count} hosts are 0 to {count - 1}.", remedy="Check --hosts and --host-index."
        )
    address, port = _split(hosts.coordinator) if hosts.coordinator else (_first_worker(sources, metadata), PORT)
    if not address:
        raise AcceleratorError(
            "Where host 0 is reached is not known.", remedy="Say it with --coordinator ADDRESS:PORT, the same on all."
        )
    return Membership(count, index, address, port, float(hosts.wait_s), _why(config, pod, count))


def check_can_join(membership: Membership, backend_choice: BackendChoice, source: str) -> None:
    """Check that a run can train on several hosts.

    Args:
        membership: This machine's place.
        backend_choice: How the run reaches its accelerator.
        source: What trains: ``host`` or ``in-process``.

    Raises:
        AcceleratorError: It cannot.
    """
    if source != RunSource.PROCESS:
        raise AcceleratorError(
            f"One of {membership.count} hosts ({membership.why}) needs a process of its own.",
            why="When another host is lost, its process ends at once, and would take the console along.",
            remedy="Start it without --in-process.",
        )
    if backend_choice.backend != JAX:
        raise AcceleratorError(
            f"The {membership.count} hosts ({membership.why}) train together with JAX only, and this run takes "
            f"{backend_choice.backend} ({backend_choice.why}).",
            remedy="Use --backend jax, or --hosts 1 on a machine with a TPU of its own.",
        )


def _why(config: RunConfig, pod: Tpu | None, count: int) -> str:
    if config.hosts.count != "auto":
        return "asked for"
    return f"{pod.accelerator_type if pod is not None and pod.accelerator_type else 'this TPU slice'} has {count} hosts"


def _first_worker(sources: Sources, metadata: Mapping[str, str]) -> str:
    """Return host 0's address by what a pod tells; ports in it are libtpu's own.

    The metadata server has a list of addresses, or of ``name:number:address``.
    """
    told = sources.environ.get("TPU_PROCESS_ADDRESSES") or sources.environ.get("TPU_WORKER_HOSTNAMES")
    if told:
        return told.split(",")[0].strip().partition(":")[0]
    return metadata.get("worker-network-endpoints", "").split(",")[0].strip().rpartition(":")[2]


def _split(address: str) -> tuple[str, int]:
    """Split ``address:port``; an address of IPv6 with a port has brackets around it."""
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]") or (host.count(":") and not host.endswith("]")):
        host, port = address, str(PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    # JAX's own service listens at the next port.
    if not host or set(host) & set("[]/ ") or not port.isdecimal() or not 0 < int(port) < 65535:
        raise AcceleratorError(
            f"'{address}' is not where a coordinator can be.",
            remedy="Write --coordinator ADDRESS:PORT, an address of IPv6 as [ADDRESS]:PORT.",
        )
    return host, int(port)
