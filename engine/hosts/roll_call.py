"""All hosts of a run meet before JAX starts, and look whether they belong together.

Host 0 listens at the coordinator's address. Every other one says who it is: its number, how many it thinks there are,
its versions, its configuration. Host 0 answers with a welcome once all have come, or with what is wrong.
"""

from __future__ import annotations

import errno
import hashlib
import json
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from engine.errors import AcceleratorError
from engine.hosts.link import Link
from engine.stopping import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.config import RunConfig
    from engine.hosts.membership import Membership

_LOOK_S = 0.2
_GREETING_S = 5.0


@dataclass(frozen=True, slots=True)
class Card:
    """What a host says of itself.

    Args:
        index: Its number.
        count: How many hosts it thinks there are.
        host: Its name.
        versions: Of the packages that have to be the same, by name.
        config: Digest of its configuration.
    """

    index: int
    count: int
    host: str
    versions: dict[str, str]
    config: str


def make_card(membership: Membership, config: RunConfig, versions: Mapping[str, str]) -> Card:
    """Say what this host is.

    Args:
        membership: Its place.
        config: Its configuration; where it differs only in the host's number, the digest is the same.
        versions: Of the packages that have to be the same.
    """
    values = config.model_dump(mode="json")
    for own in ("name", "hosts"):
        del values[own]
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
    return Card(membership.index, membership.count, socket.gethostname(), dict(versions), digest)


def call_roll(
    membership: Membership, card: Card, should_stop: Callable[[], bool], tell: Callable[[str], None]
) -> tuple[dict[int, Link], dict[int, Card], int]:
    """Wait for all others, as host 0.

    Args:
        membership: This host's place.
        card: What it is.
        should_stop: Asked now and then; when it says so, the roll call ends and the others hear of it.
        tell: Told who is missing, when that has changed.

    Returns:
        The links and the cards of the others by their number, and the port for JAX's own service.

    Raises:
        AcceleratorError: They do not come in time, or do not belong together.
        StoppedError: It was asked to stop.
    """
    roll = _Roll(membership, card, should_stop, tell)
    try:
        with _listen(membership) as server:
            server.settimeout(_LOOK_S)
            roll.wait(server)
            port = _port_for_jax(membership)
            roll.welcome(port)
    except StoppedError:
        roll.dismiss("stopped")
        raise
    except AcceleratorError as error:
        roll.dismiss("refused", what=f"Host 0 gave up: {error.what}", remedy=error.remedy)
        raise
    except BaseException:
        roll.dismiss("refused", what="Host 0 failed.", remedy="Its own run says why.")
        raise
    return roll.links, roll.cards, port


class _Roll:
    """Who has come so far."""

    def __init__(
        self, membership: Membership, own: Card, should_stop: Callable[[], bool], tell: Callable[[str], None]
    ) -> None:
        self.links: dict[int, Link] = {}
        self.cards: dict[int, Card] = {}
        self._membership = membership
        self._own = own
        self._should_stop = should_stop
        self._tell = tell

    def wait(self, server: socket.socket) -> None:
        """Take hosts in until all are here."""
        deadline = time.monotonic() + self._membership.wait_s
        told: list[int] = []
        while missing := self._missing():
            if self._should_stop():
                raise StoppedError
            if time.monotonic() > deadline:
                raise _absent(self._membership, missing)
            if missing != told:
                self._tell(f"waiting for {_named(missing)} at {self._membership.where}")
                told = missing
            with suppress(TimeoutError):
                connection, _ = server.accept()
                self._greet(Link(connection))

    def _missing(self) -> list[int]:
        """Return who is not here; whoever hung up since may come again."""
        for index in [index for index, link in self.links.items() if link.is_closed()]:
            self.links.pop(index).close()
            del self.cards[index]
        return [index for index in range(1, self._membership.count) if index not in self.links]

    def _greet(self, link: Link) -> None:
        """Take a host in, or send it away; what cannot come right any more ends the roll call."""
        try:
            message = link.receive(_GREETING_S)
            card = Card(**{name: message[name] for name in Card.__slots__})
            wrong, remedy, is_final = _mismatch(self._own, card, self.cards)
        except (OSError, KeyError, TypeError, AttributeError):
            link.close()  # a port scanner, or a program of another kind
            return
        if not wrong:
            self.links[card.index], self.cards[card.index] = link, card
            return
        _dismiss(link, "refused", what=wrong, remedy=remedy)
        if is_final:
            raise AcceleratorError(wrong, remedy=remedy)

    def welcome(self, port: int) -> None:
        """Tell all that the run begins."""
        for index, link in self.links.items():
            try:
                link.send("welcome", port=port, host=self._own.host)
            except OSError as error:
                who = f"Host {index} ({self.cards[index].host})"
                raise AcceleratorError(f"{who} left when all had come.", remedy="Its own run says why.") from error

    def dismiss(self, kind: str, **values: str) -> None:
        """Tell all that there is no run, and hang up."""
        for link in self.links.values():
            _dismiss(link, kind, **values)


def _dismiss(link: Link, kind: str, **values: str) -> None:
    with suppress(OSError):
        link.send(kind, **values)
    link.close()


def answer_roll_call(membership: Membership, card: Card, should_stop: Callable[[], bool]) -> tuple[Link, str, int]:
    """Come to host 0, as another host, and wait for its welcome.

    Returns:
        The link, host 0's name, and the port of JAX's own service.

    Raises:
        AcceleratorError: Host 0 does not come in time, or refuses.
        StoppedError: This host or host 0 was asked to stop.
    """
    deadline = time.monotonic() + membership.wait_s
    link = _reach(membership, should_stop, deadline)
    try:
        link.send("card", **asdict(card))
        while True:
            if should_stop():
                raise StoppedError
            try:
                answer = link.receive(_LOOK_S)
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise AcceleratorError(
                        f"Host 0 at {membership.where} still waited for other hosts after {membership.wait_s:.0f} s.",
                        remedy="Start the same command on all of them.",
                    ) from None
                continue
            if answer["kind"] == "welcome":
                return link, str(answer["host"]), int(answer["port"])
            if answer["kind"] == "stopped":
                raise StoppedError("host 0 was asked to stop")
            raise AcceleratorError(str(answer.get("what", "Host 0 refused.")), remedy=str(answer.get("remedy", "")))
    except OSError as error:
        link.close()
        what = f"Host 0 at {membership.where} hung up: {error}."
        remedy = "Its own run says why; if none is there, another program listens at that port."
        raise AcceleratorError(what, remedy=remedy) from error
    except BaseException:
        link.close()
        raise


def _reach(membership: Membership, should_stop: Callable[[], bool], deadline: float) -> Link:
    """Call host 0 again and again; it may be started later than this one."""
    while True:
        if should_stop():
            raise StoppedError
        try:
            return Link(socket.create_connection((membership.address, membership.port), _GREETING_S))
        except OSError as error:
            if time.monotonic() > deadline:
                raise AcceleratorError(
                    f"Host 0 did not answer at {membership.where} within {membership.wait_s:.0f} s.",
                    why=f"{error.strerror or error}.",
                    remedy="Start the same command there with --host-index 0, and look whether this host reaches it.",
                ) from error
        time.sleep(_LOOK_S)


def _listen(membership: Membership) -> socket.socket:
    family = socket.AF_INET6 if ":" in membership.address else socket.AF_INET
    try:
        return socket.create_server((membership.address, membership.port), family=family)
    except OSError as error:
        where = membership.where
        if error.errno == errno.EADDRINUSE:
            what, remedy = f"{where} is taken already.", "Is a host 0 running here? Else choose another port."
        elif error.errno == errno.EADDRNOTAVAIL:
            what = f"{membership.address} is not an address of this machine, {socket.gethostname()}."
            remedy = "--host-index 0 belongs to the machine of the coordinator's address."
        else:
            what, remedy = f"Host 0 cannot listen at {where}: {error.strerror or error}.", "Check --coordinator."
        raise AcceleratorError(what, remedy=remedy) from error


def _mismatch(own: Card, card: Card, cards: Mapping[int, Card]) -> tuple[str, str, bool]:
    """Say what keeps a host from joining, what to do, and whether the run cannot start any more."""
    who = f"Host {card.index} ({card.host})"
    if card.count != own.count:
        what = f"{who} was told of {card.count} hosts, host 0 ({own.host}) of {own.count}."
        return what, "Give all the same --hosts.", True
    if not 0 < card.index < own.count or card.index in cards:
        other = cards[card.index].host if card.index in cards else own.host
        return f"Host {card.index} is here already ({other}).", "Give each host its own --host-index.", False
    differing = [
        f"{name} {card.versions.get(name, 'missing')} there, {own.versions.get(name, 'missing')} at host 0"
        for name in sorted(own.versions.keys() | card.versions.keys())
        if card.versions.get(name) != own.versions.get(name)
    ]
    if differing:
        return f"{who} has other versions: {'; '.join(differing)}.", "Install the same versions on all hosts.", True
    if card.config != own.config:
        return f"{who} has another configuration than host 0.", "Start the same command on all hosts.", True
    return "", "", False


def _port_for_jax(membership: Membership) -> int:
    """Return the next port, which a firewall most likely lets through too; any free one where it is taken."""
    family = socket.AF_INET6 if ":" in membership.address else socket.AF_INET
    for port in (membership.port + 1, 0):
        try:
            with socket.create_server((membership.address, port), family=family) as probe:
                return int(probe.getsockname()[1])
        except OSError:
            continue
    raise AcceleratorError(f"No port is free at {membership.address}.")


def _named(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"host {numbers[0]}"
    return f"hosts {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _absent(membership: Membership, missing: list[int]) -> AcceleratorError:
    named = _named(missing)
    return AcceleratorError(
        f"{named[0].upper()}{named[1:]} of {membership.count} did not come within {membership.wait_s:.0f} s.",
        why=f"Host 0 waited at {membership.where}.",
        remedy="Start the same command there with its own --host-index, and look whether it reaches that address.",
    )
