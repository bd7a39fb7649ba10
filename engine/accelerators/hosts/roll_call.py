"""All hosts of a run meet before JAX starts, and host 0 checks that they fit together.

Each host shows a card: its name, how many hosts it expects, its versions and its configuration. Once all cards are
there, host 0 lets all begin, or says what is wrong.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from ...errors import AcceleratorError
from ...runs.stop_token import StoppedError
from .jax_service import Freshness, Meeting, host_meeting, join_meeting, parse

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
    """What a host says about itself; `config` is a digest, and `shown_at` differs each time the card is shown.

    `start` says at which step the run begins or is resumed.
    """

    count: int
    host: str
    versions: dict[str, str]
    config: str
    shown_at: float = 0.0
    start: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What host 0 decided: `what` is ``begin``, ``stopped``, or a sentence that says what is wrong."""

    what: str
    remedy: str = ""


def make_card(
    membership: Membership, config: RunConfig, versions: Mapping[str, str] | None = None, start: str = ""
) -> Card:
    """Describe this host; configurations that differ only in name and host number have the same digest."""
    values = config.model_dump(mode="json", exclude={"name", "hosts"})
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
    return Card(membership.count, socket.gethostname(), dict(versions or _versions()), digest, start=start)


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
    board: Board,
    membership: Membership,
    card: Card,
    should_stop: Callable[[], bool],
    report: Callable[[str], object],
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
        roll.give_up(Verdict(error.what, error.remedy) if isinstance(error, AcceleratorError) else Verdict(_STOPPED))
        raise
    except RuntimeError as error:
        raise AcceleratorError(f"Host 0 left {membership.where}.", remedy="Host 0's own run says why.") from error


@dataclass(slots=True)
class _RollCall:
    board: Board
    membership: Membership
    card: Card
    _freshness: Freshness = field(default_factory=Freshness)
    _is_shown: bool = False

    def refuse_twin(self) -> None:
        """Refuse to take the place of another process; one that was killed does not renew its card."""
        mine = str(self.membership.index)
        if self.membership.index and _BEGIN in self.board.read("verdict").get("0", ""):
            raise AcceleratorError(f"The hosts at {self.membership.where} have begun.", remedy="Choose another port.")
        first = self.board.read("cards").get(mine)
        deadline = time.monotonic() + _GONE_S
        while first is not None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            if (now := self.board.read("cards").get(mine)) not in {None, first}:
                twin = parse(Card, now or "")
                raise AcceleratorError(
                    f"Host {mine} is already here ({twin.host if twin else 'unknown'}).",
                    remedy="Give each host its own --host-index.",
                )

    def wait(self, should_stop: Callable[[], bool], report: Callable[[str], object]) -> dict[int, str]:
        place, hosts = self.membership, range(self.membership.count)
        deadline = time.monotonic() + place.wait_s
        reported = ""
        while True:
            shown = replace(self.card, shown_at=time.monotonic())
            self.board.put(f"cards/{place.index}", json.dumps(asdict(shown)))
            self._is_shown = True
            cards = self._cards()
            if self._decide(cards):
                cards = self._cards(math.inf)  # host 0 may have seen cards that came after this host looked
                return {index: cards[index].host for index in hosts}
            if should_stop():
                raise StoppedError
            missing = [str(index) for index in hosts if index not in cards]
            named = _named(missing)
            if missing and time.monotonic() > deadline:
                raise AcceleratorError(
                    f"{named.capitalize()} of {place.count} did not come within {place.wait_s:.0f} s.",
                    why=f"The others waited at {place.where}.",
                    remedy="Start the same command there with its own --host-index, and check that it can reach that "
                    "address.",
                )
            if missing and named != reported:
                reported = named
                report(f"waiting for {named} at {place.where}")
            time.sleep(_LOOK_S)

    def _cards(self, longest_s: float = _GONE_S) -> dict[int, Card]:
        texts = self.board.read("cards")
        silent = self._freshness.look(texts)
        fresh = {int(key): text for key, text in texts.items() if silent[key] < longest_s and key.isdecimal()}
        return {index: card for index, text in sorted(fresh.items()) if (card := parse(Card, text)) is not None}

    def _decide(self, cards: Mapping[int, Card]) -> bool:
        """Return whether all may begin: host 0 decides, and the others read its verdict."""
        if self.membership.index == 0:
            for index, card in cards.items():
                if (wrong := mismatch(index, card, self.card)) is not None:
                    raise AcceleratorError(wrong.what, remedy=wrong.remedy)
            are_all_here = cards.keys() >= set(range(self.membership.count))
            if are_all_here:
                self.board.put("verdict/0", json.dumps(asdict(Verdict(_BEGIN))))
            return are_all_here
        verdict = parse(Verdict, self.board.read("verdict").get("0", ""))
        if verdict is None or verdict.what == _BEGIN:
            return verdict is not None
        if verdict.what == _STOPPED:
            raise StoppedError("host 0 was asked to stop")
        raise AcceleratorError(verdict.what, remedy=verdict.remedy)

    def give_up(self, verdict: Verdict) -> None:
        """Remove the card; host 0 also says why, and waits until the others have read it."""
        with suppress(RuntimeError):
            if self._is_shown:
                self.board.remove(f"cards/{self.membership.index}")
            if self.membership.index == 0:
                self.board.put("verdict/0", json.dumps(asdict(verdict)))
                deadline = time.monotonic() + _GONE_S
                while self._cards() and time.monotonic() < deadline:
                    time.sleep(_LOOK_S)
                time.sleep(_LOOK_S)  # a host that removed its card disconnects right after


def mismatch(index: int, card: Card, own: Card) -> Verdict | None:
    """Return what keeps a host from training with host 0, whose card is `own`; None if nothing does."""
    who = f"Host {index} ({card.host})"
    if card.count != own.count:
        what = f"{who} expects {card.count} hosts, host 0 ({own.host}) expects {own.count}."
        return Verdict(what, "Give all hosts the same --hosts.")
    differing = [
        f"{name} {card.versions.get(name, 'missing')} there, {own.versions.get(name, 'missing')} at host 0"
        for name in sorted(own.versions.keys() | card.versions.keys())
        if card.versions.get(name) != own.versions.get(name)
    ]
    if differing:
        return Verdict(f"{who} has other versions: {'; '.join(differing)}.", "Install the same versions on all hosts.")
    if card.config != own.config:
        return Verdict(f"{who} has another configuration than host 0.", "Start the same command on all hosts.")
    if card.start != own.start:
        what = f"{who} begins {card.start or 'a new run'}, and host 0 {own.start or 'a new run'}."
        return Verdict(
            what, "Resume on all hosts; where it is ahead, first remove its newest checkpoints/state-*.ckpt."
        )
    return None


def _named(numbers: list[str]) -> str:
    *others, last = numbers or [""]
    return f"hosts {', '.join(others)} and {last}" if others else f"host {last}"


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _check_can_listen(membership: Membership) -> None:
    """Check host 0's ports: JAX's service would share a port with another service without an error."""
    family = socket.AF_INET6 if ":" in membership.address else socket.AF_INET
    for port in (membership.port, membership.port + 1):
        try:
            socket.create_server((membership.address, port), family=family).close()
        except OSError as error:
            where = membership.at(port)
            what, remedy = f"Host 0 cannot listen at {where}: {error.strerror or error}.", "Check --coordinator."
            if error.errno == errno.EADDRINUSE:
                what, remedy = f"{where} is already in use.", "Is another host 0 running? If not, choose another port."
            elif error.errno == errno.EADDRNOTAVAIL:
                what = f"{membership.address} is not an address of this machine, {socket.gethostname()}."
                remedy = "Use --host-index 0 only on the machine that --coordinator names."
            raise AcceleratorError(what, remedy=remedy) from error
