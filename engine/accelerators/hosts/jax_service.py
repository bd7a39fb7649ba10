"""JAX's coordination service: where hosts meet before training, and the short texts that they exchange.

`jax.distributed.initialize` alone does not say who is missing. So the hosts first meet at a service that lets each one
in immediately: JAX does so for a host that joins again, and host 0 joins once for every possible host. The private
calls of JAX are in `engine.compat.jax`.
"""

from __future__ import annotations

import json
import math
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter

from ...compat.jax import coordination_client, make_coordination_client, start_coordination_service
from ...errors import AcceleratorError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import DataclassInstance

    from .membership import Membership

T = TypeVar("T", bound="DataclassInstance")

_SEATS = 64  # places at the meeting, taken by the hosts' numbers; two hosts in one place do no harm
_SECONDS = 60
_ANSWER_S = 5.0
_FOLDER = "tpu-console/"
_PREEMPTION = "jax_enable_preemption_service"


class Board:
    """Short texts that all hosts of a run can read and write; a call raises `RuntimeError` if host 0 is gone."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, key: str, text: str) -> None:
        """Write a text, or replace it."""
        self._client.key_value_set(_FOLDER + key, text, allow_overwrite=True)

    def remove(self, key: str) -> None:
        """Delete a text."""
        self._client.key_value_delete(_FOLDER + key)

    def read(self, folder: str) -> dict[str, str]:
        """Return the texts of a folder by the last part of their key."""
        found = self._client.key_value_dir_get(f"{_FOLDER}{folder}/")
        return {key.rpartition("/")[2]: text for key, text in found}


class Notes(Generic[T]):
    """A note of each host in a folder of the board, written again and again as a sign of life.

    A note is a dataclass of one kind; other texts are passed over, because anyone in the network may have written them.
    """

    def __init__(self, board: Board, folder: str, kind: type[T], clock: Callable[[], float] = time.monotonic) -> None:
        self._board, self._folder, self._adapter, self._clock = board, folder, TypeAdapter(kind), clock
        self._seen: dict[int, tuple[str, float]] = {}  # each host's newest text, and since when

    def write(self, index: int, note: T) -> None:
        """Write the note of a host; the text differs from all before, even if the note is the same."""
        self._board.put(f"{self._folder}/{index}", f"{time.monotonic_ns()} {json.dumps(asdict(note))}")

    def read(self, longest_s: float = math.inf) -> dict[int, T]:
        """Return the notes by the host's number, without those that have not changed for too long."""
        found = {}
        for key, text in self._board.read(self._folder).items():
            if not key.isdecimal():
                continue
            index = int(key)
            if index not in self._seen or self._seen[index][0] != text:
                self._seen[index] = (text, self._clock())
            with suppress(ValueError):
                if self.silent_s(index) < longest_s:
                    found[index] = self._adapter.validate_json(text.partition(" ")[2])
        return dict(sorted(found.items()))

    def silent_s(self, index: int) -> float:
        """Return the seconds since a host's note was seen to change, or since the first call if it has none."""
        now = self._clock()
        return now - self._seen.setdefault(index, ("", now))[1]


class Meeting(ExitStack):
    """A coordination service where hosts meet before JAX starts; any host can join at any time.

    Host 0 has the service, and a beacon: a second service that nobody joins. If it answers, the first one is ready.
    When host 0 closes the meeting, JAX aborts every process that has not left it.
    """

    def __init__(self, client: Any, service: Any = None, beacon: Any = None) -> None:
        super().__init__()
        self.board = Board(client)
        self._beacon = beacon
        if service is not None:
            self.callback(service.shutdown)
        self.callback(client.shutdown)
        self.callback(self.free_next_port)

    def free_next_port(self) -> None:
        """Stop the beacon, whose port JAX takes next."""
        if self._beacon is not None:
            self._beacon.shutdown()
            self._beacon = None


def host_meeting(membership: Membership) -> Meeting:
    """Open the meeting as host 0, at the address of the configuration only."""
    try:
        service = start_coordination_service(membership.where, _SEATS)
        clients = [make_coordination_client(membership.where, seat, _SECONDS) for seat in range(_SEATS)]
        with ThreadPoolExecutor(_SEATS) as pool:  # each waits for all the others
            list(pool.map(lambda client: client.connect(), clients))
        for client in clients[1:]:
            client.shutdown()
        return Meeting(clients[0], service, start_coordination_service(membership.at(membership.port + 1), 1))
    except TypeError as error:
        raise AcceleratorError(
            "This version of JAX cannot train on several hosts here.", remedy="Install a newer JAX on all hosts."
        ) from error
    except RuntimeError as error:
        what = f"Host 0 cannot listen at {membership.where}."
        raise AcceleratorError(what, why=one_line(error, 300), remedy="Check --coordinator.") from error


def join_meeting(membership: Membership) -> Meeting:
    """Join the meeting as another host; raise `OSError` if host 0 has not opened it."""
    for port in (membership.port + 1, membership.port):  # JAX would abort this process if nobody listened
        socket.create_connection((membership.address, port), _ANSWER_S).close()
    client = make_coordination_client(membership.where, 1 + (membership.index - 1) % (_SEATS - 1), _SECONDS)
    client.connect()
    return Meeting(client)


def connect_jax(membership: Membership) -> Board:
    """Connect JAX with the other hosts, which all do the same at this moment."""
    import jax

    # The service would take SIGTERM for itself, which here asks a run to stop and save. It also cannot stop hosts that
    # have not begun to train, carries no reason, and costs 12 µs a step.
    if hasattr(jax.config, _PREEMPTION):
        jax.config.update(_PREEMPTION, False)
    where = membership.at(membership.port + 1)
    try:
        jax.distributed.initialize(
            coordinator_address=where,
            coordinator_bind_address=where,
            num_processes=membership.count,
            process_id=membership.index,
            initialization_timeout=_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        raise AcceleratorError(
            f"JAX cannot connect the {membership.count} hosts at {where}.",
            why=one_line(error, 300),
            remedy="Check that every host can reach that port.",
        ) from error
    return Board(coordination_client())
