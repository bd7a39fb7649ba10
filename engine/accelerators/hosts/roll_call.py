"""All hosts of a run meet before JAX starts, and host 0 checks that they fit together.

Each host shows a card: its name, how many hosts it expects, its versions and its configuration. Once all cards are
there, host 0 lets all begin, or says what is wrong.
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import AcceleratorError
from ...machine.sources import installed_versions
from ...runs.stop_token import StoppedError
from .jax_service import Meeting, Notes, host_meeting, join_meeting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...config.run_config import RunConfig
    from .jax_service import Board
    from .membership import Membership

_PACKAGES = ("jax", "jaxlib", "keras", "libtpu", "numpy", "tpu-console")
_LOOK_S = 0.2
_GONE_S = 5.0  # a host that waits renews its card at every look
_BEGIN, _STOPPED = "begin", "stopped"


@dataclass(frozen=True, slots=True)
class Card:
    """A host's own description; `config` is a digest, and `start` is the step from which the run is resumed."""

    count: int
    host: str
    versions: dict[str, str]
    config: str
    start: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What host 0 decided: `what` is ``begin``, ``stopped``, or a sentence that says what is wrong."""

    what: str
    remedy: str = ""


def make_card(membership: Membership, config: RunConfig, start: str = "") -> Card:
    """Describe this host; configurations that differ only in name and host number have the same digest."""
    values = config.model_dump(mode="json", exclude={"name", "hosts"})
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
    return Card(membership.count, socket.gethostname(), installed_versions(_PACKAGES), digest, start)


def go_to_meeting(membership: Membership, should_stop: Callable[[], bool]) -> Meeting:
    """Open the meeting at host 0; at other hosts, wait for it and join.

    Raises:
        AcceleratorError: Host 0 cannot listen, or does not answer in time.
        StoppedError: This host was asked to stop.
    """
    if membership.index == 0:
        _check_can_listen(membership)
        return host_meeting(membership)
    deadline = time.monotonic() + membership.wait_s
    while not should_stop():
        try:
            return join_meeting(membership)
        except OSError as error:
            if time.monotonic() > deadline:
                raise AcceleratorError(
                    f"Host 0 did not answer at {membership.where} within {membership.wait_s:.0f} s.",
                    why=f"{error.strerror or error}.",
                    remedy="Start the same command there with --host-index 0, and check that this host can reach it.",
                ) from error
        time.sleep(_LOOK_S)
    raise StoppedError


def answer_roll_call(
    board: Board, membership: Membership, card: Card, should_stop: Callable[[], bool], report: Callable[[str], object]
) -> dict[int, str]:
    """Wait for all hosts; return their names by their number. `report` is called when other hosts are missing.

    Raises:
        AcceleratorError: They do not come in time, or do not fit together.
        StoppedError: This host or host 0 was asked to stop.
    """
    roll = _RollCall(board, membership, card)
    try:
        roll.refuse_twin()
        return roll.wait(should_stop, report)
    except (AcceleratorError, StoppedError) as error:
        roll.give_up(Decision(error.what, error.remedy) if isinstance(error, AcceleratorError) else Decision(_STOPPED))
        raise
    except RuntimeError as error:
        raise AcceleratorError(f"Host 0 left {membership.where}.", remedy="Host 0's own run says why.") from error


class _RollCall:
    def __init__(self, board: Board, membership: Membership, card: Card) -> None:
        self._board, self._place, self._card = board, membership, card
        self._cards, self._decisions = Notes(board, "cards", Card), Notes(board, "decisions", Decision)
        self._is_shown = False

    def refuse_twin(self) -> None:
        """Refuse to take the place of another process; one that was killed does not renew its card."""
        mine = self._place.index
        if mine and self._decisions.read().get(0) == Decision(_BEGIN):
            raise AcceleratorError(
                f"The hosts at {self._place.where} have already started.", remedy="Choose another port."
            )
        first = self._board.read("cards").get(str(mine))
        deadline = time.monotonic() + _GONE_S
        while first is not None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            if self._board.read("cards").get(str(mine)) not in {None, first}:
                twin = self._cards.read().get(mine)
                raise AcceleratorError(
                    f"Host {mine} has already joined ({twin.host if twin else 'unknown'}).",
                    remedy="Give each host its own --host-index.",
                )

    def wait(self, should_stop: Callable[[], bool], report: Callable[[str], object]) -> dict[int, str]:
        place, hosts = self._place, range(self._place.count)
        deadline = time.monotonic() + place.wait_s
        reported = ""
        while not should_stop():
            self._cards.write(place.index, self._card)
            self._is_shown = True
            cards = self._cards.read(_GONE_S)
            if self._decide(cards):
                cards = self._cards.read()  # host 0 may have seen cards that came after this host looked
                return {index: cards[index].host for index in hosts}
            missing = [str(index) for index in hosts if index not in cards]
            named = _named(missing)
            if missing and time.monotonic() > deadline:
                raise AcceleratorError(
                    f"{named.capitalize()} of {place.count} did not join within {place.wait_s:.0f} s.",
                    why=f"The others waited at {place.where}.",
                    remedy="Start the same command there with its own --host-index, and check that it can reach that "
                    "address.",
                )
            if missing and named != reported:
                reported = named
                report(f"waiting for {named} at {place.where}")
            time.sleep(_LOOK_S)
        raise StoppedError

    def _decide(self, cards: Mapping[int, Card]) -> bool:
        """Return whether all may begin: host 0 decides, and the others read its decision."""
        if self._place.index == 0:
            for index, card in cards.items():
                if (wrong := mismatch(index, card, self._card)) is not None:
                    raise wrong
            are_all_here = cards.keys() >= set(range(self._place.count))
            if are_all_here:
                self._decisions.write(0, Decision(_BEGIN))
            return are_all_here
        decision = self._decisions.read().get(0)
        if decision is None or decision.what == _BEGIN:
            return decision is not None
        if decision.what == _STOPPED:
            raise StoppedError("host 0 was asked to stop")
        raise AcceleratorError(decision.what, remedy=decision.remedy)

    def give_up(self, decision: Decision) -> None:
        """Remove the card; host 0 also says why, and waits until the others have read it."""
        with suppress(RuntimeError):
            if self._is_shown:
                self._board.remove(f"cards/{self._place.index}")
            if self._place.index == 0:
                self._decisions.write(0, decision)
                deadline = time.monotonic() + _GONE_S
                while self._cards.read(_GONE_S) and time.monotonic() < deadline:
                    time.sleep(_LOOK_S)
                time.sleep(_LOOK_S)  # a host that removed its card disconnects right after


def mismatch(index: int, card: Card, own: Card) -> AcceleratorError | None:
    """Return what keeps a host from training with host 0, whose card is `own`; None if nothing does."""
    who = f"Host {index} ({card.host})"
    if card.count != own.count:
        what = f"{who} expects {card.count} hosts, host 0 ({own.host}) expects {own.count}."
        return AcceleratorError(what, remedy="Give all hosts the same --hosts.")
    differing = [
        f"{name} {card.versions.get(name, 'missing')} there, {own.versions.get(name, 'missing')} at host 0"
        for name in sorted(own.versions.keys() | card.versions.keys())
        if card.versions.get(name) != own.versions.get(name)
    ]
    if differing:
        what = f"{who} has other versions: {'; '.join(differing)}."
        return AcceleratorError(what, remedy="Install the same versions on all hosts.")
    if card.config != own.config:
        what = f"{who} has another configuration than host 0."
        return AcceleratorError(what, remedy="Start the same command on all hosts.")
    if card.start != own.start:
        what = f"{who} starts {card.start or 'a new run'}, but host 0 starts {own.start or 'a new run'}."
        return AcceleratorError(
            what,
            remedy="Resume on all hosts; on the one that is ahead, first remove its newest checkpoints/state-*.ckpt.",
        )
    return None


def _named(numbers: list[str]) -> str:
    *others, last = numbers or [""]
    return f"hosts {', '.join(others)} and {last}" if others else f"host {last}"


def _check_can_listen(membership: Membership) -> None:
    """Check host 0's ports: JAX's service would share a port with another service without an error."""
    family = socket.AF_INET6 if ":" in membership.address else socket.AF_INET
    for port in (membership.port, membership.port + 1):
        try:
            socket.create_server((membership.address, port), family=family).close()
        except OSError as error:
            raise AcceleratorError(
                f"Host 0 cannot listen at {membership.at(port)}: {error.strerror or error}.",
                remedy=f"--coordinator must name a free port of this machine, {socket.gethostname()}.",
            ) from error
