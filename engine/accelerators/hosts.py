"""Several hosts: which train together, how JAX connects them, and how all stop, or are traced, at the same step.

Every step waits for the gradients of all hosts, so no host can go on alone: if one ends, a step fails on the others or
JAX aborts them.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from ..compat.jax import coordination_client, leave_sigterm_alone
from ..errors import AcceleratorError, ConsoleError, one_line
from ..machine.devices import Tpu, count_slices, find_tpu, read_metadata
from ..machine.sources import Sources, installed_versions
from ..runs.control import Request, StoppedError
from ..runs.events import Event, HostSampled, MemorySampled, Phase, RunFailed, RunSource, Steering
from ..runs.journal import decode, encode
from ..runs.run_directory import discard_cache
from ..storage.keyed_store import key_of

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runs.recorder import Recorder
    from .backend import BackendChoice

_WAIT_S = 300.0  # for the other machines at the start
PORT = 8482  # the coordinator's port if the address has none; JAX uses the same on TPU pods
_ADDRESS = re.compile(r"(\[[^][/ ]+\]|[^][:/ ]+)(?::([0-9]+))?|((?:[^][:/ ]*:){2,}[^][:/ ]*)")
_PACKAGES = ("jax", "jaxlib", "keras", "libtpu", "numpy", "tpu-console")
_CARDS, _FIGURES, _REQUESTS, _SAVED = (f"tpu-console/{name}" for name in ("cards", "figures", "requests", "saved"))
_LOOK_S = 0.2
_AGREE_S = 60.0  # for all hosts to report how far they are; each looks once per second
SAVE_LIMIT_S = 900.0  # for host 0 to save the run after the last step
_LEAVE_S = 60.0  # for JAX to disconnect
_NEVER_S = 7 * 24 * 3600  # JAX aborts the process at its own limit


class Membership(Struct, frozen=True):
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
    Raises `AcceleratorError` if something that is needed is missing or wrong.
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
    """Return host 0's address from a pod's variables, whose ports are libtpu's, or its metadata."""
    if count_slices(sources.environ) > 1:
        address = sources.environ.get("MEGASCALE_COORDINATOR_ADDRESS", "")
        return address if address.count(":") > 1 else address.partition(":")[0]
    names = sources.environ.get("TPU_PROCESS_ADDRESSES") or sources.environ.get("TPU_WORKER_HOSTNAMES")
    if names:
        return names.split(",")[0].strip().partition(":")[0]
    # It lists addresses or ``name:number:address``.
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


class Card(Struct, frozen=True):
    """What a host says about itself; `start` is the step from which it resumes the run."""

    host: str
    versions: dict[str, str]
    config: str  # a digest
    start: str = ""


def join(membership: Membership, config: RunConfig, recorder: Recorder, start: str = "") -> Team:
    """Connect JAX with the other hosts.

    Raises:
        AcceleratorError: They do not come in time, JAX cannot connect them, or they do not fit together.
        StoppedError: This host was asked to stop while it waited.
    """
    recorder.enter(Phase.CONNECTING, f"waiting for {membership.count} hosts at {membership.where}")
    _connect(membership, recorder.should_stop)
    digest = key_of(config.model_dump(mode="json", exclude={"name", "hosts"}))
    card = Card(socket.gethostname(), installed_versions(_PACKAGES), digest, start)
    client = coordination_client()
    client.key_value_set(f"{_CARDS}/{membership.index}", json.dumps(to_builtins(card)))
    client.wait_at_barrier(_CARDS, int(membership.wait_s * 1e3))
    texts = dict(client.key_value_dir_get(_CARDS))
    cards = [Card(**json.loads(texts[f"{_CARDS}/{index}"])) for index in range(membership.count)]
    for index, other in enumerate(cards):
        if (wrong := mismatch(index, other, cards[0])) is not None:
            raise wrong
    return Team(recorder, membership.index, {index: other.host for index, other in enumerate(cards)})


def _connect(membership: Membership, should_stop: Callable[[], bool]) -> None:
    if membership.index == 0:  # JAX's service would share the port with another program without an error
        family = socket.AF_INET6 if ":" in membership.address else socket.AF_INET
        try:
            socket.create_server((membership.address, membership.port), family=family).close()
        except OSError as error:
            raise AcceleratorError(
                f"Host 0 cannot listen at {membership.where}: {error.strerror or error}.",
                remedy=f"--coordinator must name a free port of this machine, {socket.gethostname()}.",
            ) from error
    errors: list[Exception] = []

    def initialize() -> None:
        import jax

        leave_sigterm_alone()
        try:
            jax.distributed.initialize(
                coordinator_address=membership.where,
                coordinator_bind_address=membership.where,
                num_processes=membership.count,
                process_id=membership.index,
                initialization_timeout=_NEVER_S,
            )
        except Exception as error:  # noqa: BLE001  passed on to the thread that waits
            errors.append(error)

    thread = threading.Thread(target=initialize, name="tpu-console-hosts", daemon=True)
    thread.start()
    deadline = time.monotonic() + membership.wait_s
    while thread.is_alive():
        if should_stop():
            raise StoppedError
        if time.monotonic() > deadline:
            raise AcceleratorError(
                f"Not all {membership.count} hosts joined at {membership.where} within {membership.wait_s:.0f} s.",
                remedy="Start the same command on each with its own --host-index and the same --hosts, and check that "
                "each can reach that address.",
            )
        thread.join(_LOOK_S)
    if errors:
        raise AcceleratorError(
            f"JAX cannot connect the {membership.count} hosts at {membership.where}.",
            why=one_line(errors[0], 300),
            remedy="Check that every host can reach that port.",
        ) from errors[0]


def mismatch(index: int, card: Card, first: Card) -> AcceleratorError | None:
    """Return what keeps a host from training with host 0, whose card is `first`; None if nothing does."""
    who = f"Host {index} ({card.host})"
    versions = "; ".join(
        f"{name} {card.versions.get(name, 'missing')} there, {first.versions.get(name, 'missing')} at host 0"
        for name in sorted(first.versions.keys() | card.versions.keys())
        if card.versions.get(name) != first.versions.get(name)
    )
    if versions:
        what, remedy = f"{who} has other versions: {versions}.", "Install the same versions on all hosts."
    elif card.config != first.config:
        what, remedy = f"{who} has another configuration than host 0.", "Start the same command on all hosts."
    elif card.start != first.start:
        what = f"{who} starts {card.start or 'a new run'}, but host 0 starts {first.start or 'a new run'}."
        remedy = "Resume on all hosts; on the one that is ahead, first remove its newest checkpoints/state-*.ckpt."
    else:
        return None
    return AcceleratorError(what, remedy=remedy)


class Team:
    """A run's hosts, which have joined, seen from the one with a number."""

    def __init__(self, recorder: Recorder, index: int, names: Mapping[int, str]) -> None:
        self.names = names
        self.is_leader = index == 0
        self._recorder = recorder
        self._index = index
        self._lock = threading.Lock()
        self.executions = 0  # since `fit` began
        self._asked = ""  # why this host has to stop
        self._requests = 0  # that the hosts have agreed on
        self._stop = 0, ""  # the execution after which all stop, and why; 0 for none
        self._trace: tuple[int, Request] | None = None  # the execution after which all trace, or 0, and who asked
        self._passed_on: dict[str, str] = {}
        recorder.listen(self._share)
        recorder.control.agree_by(self._request_stop)

    def attach(self, model: Any) -> None:
        """Stop a compiled model after the execution that all hosts have agreed on; call it before `fit`."""
        model.make_train_function()
        inner = model.train_function

        def counting(state: Any, iterator: Any) -> Any:
            done = inner(state, iterator)
            with self._lock:
                self.executions += 1
            if self._stop[0] == self.executions:
                self._recorder.control.agreed(self._stop[1])
                model.stop_training = True
            return done

        model.train_function = counting

    def _request_stop(self, reason: str) -> None:
        """Ask all hosts to stop after the same step; return immediately."""
        self._asked = reason if self.is_leader else f"{reason}, at host {self._index} ({self.names[self._index]})"

    def ask_for_trace(self, request: Request) -> None:
        """Ask all hosts to trace the same steps; raise if they are about to do so, or host 0 is lost."""
        place, client = f"{_REQUESTS}/{self._requests}", coordination_client()
        if self._trace is not None or client.key_value_dir_get(place):
            raise RuntimeError("the hosts are about to trace steps already")
        client.key_value_set(f"{place}/asked", json.dumps(to_builtins(request)))

    def trace_now(self) -> tuple[Request | None, str]:
        """Return the request to trace the steps from here on, if any, and why the hosts have not agreed on it."""
        if self._trace is None or self._trace[0] not in {0, self.executions}:
            return None, ""
        (at, request), self._trace = self._trace, None
        return request, "" if at else f"a host did not answer within {_AGREE_S:.0f} s"

    def _agree(self, place: str) -> None:
        """Settle after which execution all hosts do what was asked at a place: the next that none of them has reached.

        Until then, none executes more. If a host does not report in time, nobody does what was asked.
        """
        client, deadline = coordination_client(), time.monotonic() + _AGREE_S
        with self._lock:
            client.key_value_set(f"{place}/{self._index}", str(self.executions), allow_overwrite=True)
            while f"{place}/at" not in (found := dict(client.key_value_dir_get(place))):
                reached = [int(found[key]) for index in self.names if (key := f"{place}/{index}") in found]
                is_late = time.monotonic() > deadline
                if is_late or len(reached) == len(self.names):
                    with suppress(RuntimeError):  # the first answer counts
                        client.key_value_set(f"{place}/at", "0" if is_late else str(max(reached) + 1))
                else:
                    time.sleep(_LOOK_S)
            self._requests += 1
            at, request = int(found[f"{place}/at"]), Request(**json.loads(found[f"{place}/asked"]))
            if request.action == Steering.STOP:
                self._stop = at, request.by
            else:
                self._trace = at, request

    def finish(self) -> None:
        """Wait until host 0 has saved the run, and disconnect; both have a limit."""

        def leave() -> None:
            import jax

            with suppress(RuntimeError, ValueError):
                jax.distributed.shutdown()

        with suppress(RuntimeError, ValueError):  # another host may have ended early; what this one made is saved
            coordination_client().wait_at_barrier(_SAVED, int(SAVE_LIMIT_S * 1e3))
            thread = threading.Thread(target=leave, name="tpu-console-hosts", daemon=True)
            thread.start()
            thread.join(_LEAVE_S)

    def fail(self, error: BaseException, failed: RunFailed) -> None:
        """End this process at once, with that as its last event: JAX's own exit would wait for the other hosts."""
        run = self._recorder.run
        if not isinstance(error, ConsoleError):
            last = run.checkpoints / "last.keras"
            kept = " checkpoints/last.keras has the model after the newest epoch." if last.exists() else ""
            failed = replace(
                failed, remedy=f"{failed.remedy} If another host ended first, see the log of its run.{kept}"
            )
        discard_cache(run)
        self._recorder.emit(failed)
        self._recorder.journal.flush()
        os._exit(1)

    def _share(self, event: Event) -> None:
        """Pass the figures of the other hosts to host 0, which writes them; look for requests once per second."""
        if not isinstance(event, HostSampled | MemorySampled):
            return
        # JAX may have lost host 0, and any program in the network can write there.
        with suppress(RuntimeError, ValueError, TypeError, AttributeError, KeyError):
            is_own = isinstance(event, HostSampled) and event.process == self._index
            place, client = f"{_REQUESTS}/{self._requests}", coordination_client()
            if is_own:
                is_asked = bool(client.key_value_dir_get(place))
                if self._asked and not self._stop[0] and not is_asked:
                    client.key_value_set(f"{place}/asked", json.dumps({"action": Steering.STOP, "by": self._asked}))
                    is_asked = True
                if is_asked:
                    self._agree(place)
            if not self.is_leader:
                key, text = f"{_FIGURES}/{self._index}/{type(event).__name__}", encode(event, time.time()).decode()
                client.key_value_set(key, text, allow_overwrite=True)
            elif is_own:
                for key, text in client.key_value_dir_get(_FIGURES):
                    if self._passed_on.get(key) != text:
                        self._passed_on[key] = text
                        record = decode(text.encode())
                        if record is not None and isinstance(record.event, HostSampled | MemorySampled):
                            self._recorder.emit(record.event)
