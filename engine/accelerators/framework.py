"""The interface of the frameworks that Keras trains on, and the devices that one of them has connected."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ConsoleError

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runs.events import AcceleratorReady, Replica, ReplicaMemory

NO_DUTY = "only a TPU reports it"


class NotPossibleError(ConsoleError):
    """The step cannot be built or compiled with the installed versions, or in this machine's memory."""


class Share(Struct, frozen=True):
    """A host's share of every batch."""

    index: int = 0  # the host's number, from 0
    count: int = 1  # hosts that train together
    is_even: bool = False  # whether every batch must divide among the replicas, the last one of validation too


class Accelerator(Struct, frozen=True):
    """Connected devices."""

    name: str  # ``cpu``, ``gpu``, ``tpu`` or ``sim:N``
    reason: str  # why this one, in one sentence
    framework: Framework  # which connected them
    strategy: str  # name of the distribution strategy; empty for one device
    replicas: tuple[Replica, ...]  # all replicas, of all hosts
    # Gives the context in which model, optimizer and metrics are made and trained.
    scope: Callable[[], AbstractContextManager[Any]]
    versions: dict[str, str]  # framework versions by package name
    topology: str = ""  # the TPU's mesh, tasks and devices in a few words; empty if there is none
    share: Share = Share()  # this host's share of every batch

    def with_hosts(self, names: Mapping[int, str]) -> Accelerator:
        """Return a copy with the names of the hosts, which only they know."""
        named = (replace(replica, host=names.get(replica.process, replica.host)) for replica in self.replicas)
        return replace(self, replicas=tuple(named))

    @property
    def in_scope(self) -> bool:
        """Whether a strategy of TensorFlow trains the replicas."""
        return self.framework.uses_scope(self.name, len(self.replicas))

    def event(self, backend_reason: str = "") -> AcceleratorReady:
        """Say what was connected."""
        from ..runs.events import AcceleratorReady

        return AcceleratorReady(
            accelerator=self.name,
            reason=self.reason,
            strategy=self.strategy or "one device",
            replicas=self.replicas,
            versions=self.versions,
            backend=self.framework.name,
            backend_reason=backend_reason,
            topology=self.topology,
        )


class Framework(ABC):
    """A framework. Its module imports it only in functions: the form and the plan read it too."""

    name: str  # Keras's name of the backend
    title: str
    joins_hosts = False  # whether several hosts can train together
    reaches_other_machines = False  # whether it can use a TPU at an address
    takes_tpu_when_imported = False
    splits_evenly = False  # whether every batch must divide among the replicas, the last one of validation too
    runs_tensorflow = False  # whether a model may call TensorFlow
    has_float64 = False  # on a TPU
    builds_from_shapes = False  # whether a step can be traced with variables that have no values
    host_step_s = 0.0  # seconds of the host's time that starting a step takes
    step_note = ""  # what the step of `lower` leaves out of a run's step, in a sentence; empty if nothing

    def environment(self, config: RunConfig) -> dict[str, str]:
        """Return the variables that Keras and the framework read when they are imported."""
        return {"KERAS_BACKEND": self.name}

    def prepare(self, config: RunConfig) -> None:
        """Set the variables of `environment`."""
        os.environ.update(self.environment(config))

    @abstractmethod
    def connect(self, config: RunConfig, name: str) -> Accelerator:
        """Connect the devices of ``auto``, ``cpu``, ``gpu``, ``tpu``, ``tpu:ADDRESS`` or ``sim:N``.

        Raises `AcceleratorError` if they are missing, or this process has set the framework up for others already.
        """

    def why_no_gpu(self, environ: Mapping[str, str]) -> str:
        """Say which variable keeps it from using a GPU; empty if none does."""
        return ""

    def uses_scope(self, accelerator: str, replicas: int) -> bool:
        """Return whether models must be made and compiled in the scope of a strategy."""
        return False

    def fits_in_trace(self, *, in_scope: bool) -> bool:
        """Return whether `fit` builds models in its traced step."""
        return False

    def allows_xla(self, *, in_scope: bool) -> bool:
        """Return whether Keras may compile a model with XLA."""
        return True

    @abstractmethod
    def one_step_reason(self, replicas: int) -> str:
        """Say why an execution is a single step whatever is asked for; empty if it may be several."""

    def limit_dispatch(self, model: Any) -> Any:
        """Make `fit` send no more than half a second of steps ahead; return what can `wait()` for them, or None."""
        return None

    @abstractmethod
    def compiled(self, model: Any, after: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a function of a model's inputs, as a dictionary, and more arguments, which returns a NumPy array.

        `after` gets the model's outputs and the other arguments.
        """

    def memory(self, kind: str, numbers: Mapping[int, int]) -> list[ReplicaMemory]:
        """Read the memory of devices of a kind, such as ``gpu``; `numbers` are those of this process by replica."""
        from ..runs.events import ReplicaMemory

        return [ReplicaMemory(index, *self._memory(kind, one), None, NO_DUTY) for index, one in numbers.items()]

    @abstractmethod
    def _memory(self, kind: str, number: int) -> tuple[int | None, int | None, int | None, str]:
        """Return the bytes in use on a device, their peak, their limit, and why one of them is missing."""

    def traces_steps(self, model: Any) -> bool:
        """Return whether `fit` calls the step of a compiled model only to trace it, not for every batch."""
        return not model.run_eagerly

    def showing_shapes(self, model: Any, step: Callable[..., Any], show: Callable[[Any], None]) -> Any:
        """Return a step of a model that shows each batch before it is compiled for its shapes; None if tracing does.

        `show` gets the batch with specifications of its tensors. The step is compiled then, and `fit` must not do it.
        """
        return None

    def cached_programs(self) -> int | None:
        """Return how many programs came from a cache on the disk since the first call; None without such a cache."""
        return None

    @abstractmethod
    def start_trace(self, folder: Path) -> None:
        """Begin to write a trace of everything that is executed to ``plugins/profile/TIME/HOST.xplane.pb``.

        Raises an exception if another profiler is running.
        """

    @abstractmethod
    def stop_trace(self) -> None:
        """End the trace and write it."""

    @abstractmethod
    def code(self, accelerator: str, replicas: int) -> tuple[dict[str, str], list[str]]:
        """Return the variables that a script sets first, and its lines for the devices, such as for ``strategy``."""

    @abstractmethod
    def lower(
        self, model: Any, data: Callable[[int, Any], Any], devices: Sequence[Any], *, is_training: bool = True
    ) -> Any:
        """Trace a training or validation step, and lower it for TPU devices as JAX does.

        `data` returns the shapes of a batch for a number of devices, with a sharding. Raises `NotPossibleError` if the
        installed versions do not allow it, and anything that custom layers raise.
        """
