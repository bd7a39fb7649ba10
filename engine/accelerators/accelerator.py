"""Connected devices, whichever framework connected them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..runs.events import AcceleratorReady, Replica
from .table import framework_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from .framework import Framework


@dataclass(frozen=True, slots=True)
class Share:
    """A host's share of every batch."""

    index: int = 0  # the host's number, from 0
    count: int = 1  # hosts that train together
    is_even: bool = False  # whether every batch must divide among the replicas, the last one of validation too


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Connected devices."""

    name: str  # ``cpu``, ``gpu``, ``tpu`` or ``sim:N``
    reason: str  # why this one, in one sentence
    backend: str  # ``tensorflow`` or ``jax``
    strategy: str  # name of the distribution strategy; empty for one device
    replicas: tuple[Replica, ...]  # all replicas, of all hosts
    # Gives the context in which model, optimizer and metrics are made and trained.
    scope: Callable[[], AbstractContextManager[Any]]
    versions: dict[str, str]  # framework versions by package name
    topology: str = ""  # the TPU's mesh, tasks and devices in a few words; empty if there is none
    process: int = 0  # this host's number, from 0
    processes: int = 1  # hosts that train together

    def with_hosts(self, names: Mapping[int, str]) -> Accelerator:
        """Return a copy with the names of the hosts, which only they know."""
        named = (replace(replica, host=names.get(replica.process, replica.host)) for replica in self.replicas)
        return replace(self, replicas=tuple(named))

    @property
    def framework(self) -> Framework:
        """The framework that connected the devices."""
        return framework_of(self.backend)

    @property
    def in_scope(self) -> bool:
        """Whether a strategy of TensorFlow trains the replicas."""
        return self.framework.uses_scope(self.name, len(self.replicas))

    @property
    def share(self) -> Share:
        """This host's share of every batch."""
        return Share(self.process, self.processes, self.framework.splits_evenly and len(self.replicas) > 1)

    def event(self, backend_reason: str = "") -> AcceleratorReady:
        """Say what was connected."""
        return AcceleratorReady(
            accelerator=self.name,
            reason=self.reason,
            strategy=self.strategy or "one device",
            replicas=self.replicas,
            versions=self.versions,
            backend=self.backend,
            backend_reason=backend_reason,
            topology=self.topology,
        )
