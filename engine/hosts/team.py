"""The connection of a run's hosts while they train: figures, life signs, and the stop that all agree on.

Host 0 hears every other one; the others hear host 0. A host that is gone ends the run: every step waits for the
gradients of all, and nobody could go on. What ends then is the process, because training may hang in that wait.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.events import HostLost, HostSampled, MemorySampled
from engine.hosts.link import LinkClosedError
from engine.journal import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.channel import Channel
    from engine.events import Event
    from engine.hosts.agreed_stop import AgreedStop
    from engine.hosts.link import Link
    from engine.hosts.roll_call import Card

BEAT_S = 1.0
SILENT_S = 30.0
"""Seconds without a word after which a host is taken for gone; a process that died is noticed at once."""

_LEAVE_S = 3.0
_SHARED = (HostSampled, MemorySampled)


class Leader:
    """Host 0's side.

    Args:
        channel: The run.
        links: To the others, by their number.
        cards: What they said of themselves.
        stop: This host's step counter.
        on_lost: Called once with a sentence when the run cannot go on.
        on_request: Called with the reason when someone asks another host to stop.
        on_unbegun: Called once with the reason when all stop before the first step; this process may end at once.
    """

    def __init__(
        self,
        channel: Channel,
        links: Mapping[int, Link],
        cards: Mapping[int, Card],
        stop: AgreedStop,
        on_lost: Callable[[str], object],
        on_request: Callable[[str], object],
        on_unbegun: Callable[[str], object],
    ) -> None:
        self._channel = channel
        self._links = links
        self._cards = cards
        self._stop = stop
        self._on_lost = on_lost
        self._on_request = on_request
        self._on_unbegun = on_unbegun
        self._over = threading.Event()
        self._news = threading.Condition()
        self._bound: dict[int, int] = {}  # the steps that the held hosts have begun
        self._gone: set[int] = set()
        self._stopping = False

    @property
    def names(self) -> dict[int, str]:
        """The others' names by their number."""
        return {index: card.host for index, card in self._cards.items()}

    def start(self) -> None:
        """Hear the others, each in a thread of its own, and give signs of life."""
        for index in self._links:
            threading.Thread(target=self._hear, args=(index,), name=f"host {index}", daemon=True).start()
        threading.Thread(target=self._beat, name="beat to hosts", daemon=True).start()

    def request_stop(self, reason: str, then: Callable[[], object]) -> None:
        """Have all hosts end after the same step; returns at once.

        Args:
            reason: Who asked.
            then: Called on this host when that step is done.
        """
        if not self._stopping:
            self._stopping = True
            threading.Thread(target=self._agree, args=(reason, then), name="agree on a stop", daemon=True).start()

    def fail(self, what: str, wait_s: float = 0.0) -> None:
        """Tell the others why this host cannot go on.

        Args:
            what: Why.
            wait_s: Time in which another host may turn out to be the cause; then `on_lost` is called.
        """
        if not self._over.wait(wait_s) and self._claim():
            self._send_off("end", what=f"Host 0 failed: {_sentence(what)}")

    def finish(self) -> None:
        """Take leave: whoever hangs up from now on is not lost."""
        self._over.set()
        self._tell_all("done")

    def close(self) -> None:
        """Hang up."""
        for link in self._links.values():
            link.close()

    def _agree(self, reason: str, then: Callable[[], object]) -> None:
        self._tell_all("hold")
        mine = self._stop.hold()
        with self._news:
            everyone = self._news.wait_for(lambda: len(self._bound) == len(self._links), SILENT_S)
            begun = max(mine, *self._bound.values()) if everyone else 0
        if not everyone:
            return  # a host is gone, which its own thread has noticed
        if not begun:
            # Nothing is trained that could be lost, and loading and compiling may take minutes of a quota.
            if self._claim():
                self._send_off("leave", reason=reason)
                self._on_unbegun(reason)
            return
        last = begun + 1
        self._tell_all("stop", step=last, reason=reason)
        self._stop.stop_after(last, then)

    def _tell_all(self, kind: str, **values: Any) -> None:
        for index, link in self._links.items():
            try:
                link.send(kind, **values)
            except OSError:
                self._lost(index, 0.0)

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            self._tell_all("beat")

    def _hear(self, index: int) -> None:
        heard_at = time.monotonic()
        while True:
            try:
                message = self._links[index].receive(SILENT_S)
            except (TimeoutError, LinkClosedError):
                self._lost(index, time.monotonic() - heard_at)
                return
            heard_at = time.monotonic()
            if message["kind"] == "event" and (event := decode(message["record"])) is not None:
                self._channel.emit(event)
            elif message["kind"] == "held":
                with self._news:
                    self._bound[index] = int(message["step"])
                    self._news.notify_all()
            elif message["kind"] == "please stop":
                self._on_request(f"{message['reason']}, at host {index} ({self._cards[index].host})")
            elif message["kind"] == "failed" and self._claim():
                what = f"Host {index} ({self._cards[index].host}) failed: {_sentence(str(message['what']))}"
                # This thread goes on to hear when the host has gone.
                threading.Thread(target=self._end, args=(what,), name="end of all hosts", daemon=True).start()

    def _lost(self, index: int, silent_s: float) -> None:
        with self._news:
            self._gone.add(index)
            self._news.notify_all()
        if not self._claim():
            return
        host = self._cards[index].host
        self._channel.emit(HostLost(index, host, round(silent_s, 1)))
        how = f"was not heard for {silent_s:.0f} s" if silent_s >= SILENT_S else "is gone"
        self._end(f"Host {index} ({host}) {how}.")

    def _claim(self) -> bool:
        """Tell whether the run ends here and now; only who asks first is told so."""
        with self._news:
            is_first = not self._over.is_set()
            self._over.set()
        return is_first

    def _end(self, what: str) -> None:
        self._send_off("end", what=what)
        self._on_lost(what)

    def _send_off(self, kind: str, **values: str) -> None:
        """Tell the others why all ends, and let them go first: JAX aborts a process that loses host 0."""
        for link in self._links.values():
            with suppress(OSError):
                link.send(kind, **values)
        with self._news:
            self._news.wait_for(lambda: len(self._gone) == len(self._links), _LEAVE_S)


class Follower:
    """Another host's side.

    Args:
        channel: This host's own record.
        link: To host 0.
        leader: Host 0's name.
        index: This host's number.
        stop: This host's step counter.
        on_lost: Called once with a sentence when the run cannot go on.
        on_stop: Called with the reason when the step is done after which all agreed to stop.
        on_unbegun: Called once with the reason when all stop before the first step; this process may end at once.
    """

    def __init__(
        self,
        channel: Channel,
        link: Link,
        leader: str,
        stop: AgreedStop,
        on_lost: Callable[[str], object],
        on_stop: Callable[[str], object],
        on_unbegun: Callable[[str], object],
    ) -> None:
        self._channel = channel
        self._link = link
        self._leader = leader
        self._stop = stop
        self._on_lost = on_lost
        self._on_stop = on_stop
        self._on_unbegun = on_unbegun
        self._over = threading.Event()

    @property
    def names(self) -> dict[int, str]:
        """Host 0's name."""
        return {0: self._leader}

    def start(self) -> None:
        """Hear host 0, give signs of life, and pass this host's figures on."""
        self._channel.listen(self._pass_on)
        threading.Thread(target=self._hear, name="host 0", daemon=True).start()
        threading.Thread(target=self._beat, name="beat to host 0", daemon=True).start()

    def request_stop(self, reason: str) -> None:
        """Ask host 0 to have all hosts stop."""
        self._send("please stop", reason=reason)

    def fail(self, what: str, wait_s: float = 0.0) -> None:
        """Tell host 0 why this one cannot go on.

        Args:
            what: Why.
            wait_s: Time in which another host may turn out to be the cause; then `on_lost` is called.
        """
        if not self._over.wait(wait_s):
            self._over.set()
            self._send("failed", what=what)

    def finish(self) -> None:
        """Wait until host 0 has saved the run, too, and takes leave."""
        self._over.wait()

    def close(self) -> None:
        """Hang up."""
        self._link.close()

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, _SHARED):
            self._send("event", record=_plain(event))

    def _send(self, kind: str, **values: Any) -> None:
        try:
            self._link.send(kind, **values)
        except OSError:
            return  # the thread that hears has noticed, too

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            self._send("beat")

    def _hear(self) -> None:
        while True:
            try:
                message = self._link.receive(SILENT_S)
            except (TimeoutError, LinkClosedError):
                self._end(f"Host 0 ({self._leader}) is gone.")
                return
            match message["kind"]:
                case "hold":
                    self._send("held", step=self._stop.hold())
                case "stop":
                    self._stop.stop_after(int(message["step"]), partial(self._on_stop, str(message["reason"])))
                case "done":
                    self._over.set()
                case "leave":
                    self._over.set()
                    self._on_unbegun(str(message["reason"]))
                    return
                case "end":
                    self._end(str(message["what"]))
                    return

    def _end(self, what: str) -> None:
        if not self._over.is_set():
            self._over.set()
            self._on_lost(what)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _plain(event: Event) -> dict[str, Any]:
    import orjson

    record: dict[str, Any] = orjson.loads(encode(event, time.time()))
    return record
