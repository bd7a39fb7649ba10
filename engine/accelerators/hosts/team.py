"""Joins the hosts of a run and watches them while they train.

Twice a second, each host writes its status and reads those of the others. No host can continue alone, because every
step waits for the gradients of all: a host that is lost or fails ends the run, and all hosts stop together.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import ConsoleError
from ...runs.events import (
    HostLost,
    HostSampled,
    MemorySampled,
    Phase,
    RunFailed,
    RunFinished,
    RunOutcome,
    StopRequested,
)
from ...runs.journal import decode, encode
from ...runs.leftovers import discard_cache
from ...runs.stop_token import StopToken
from .agreed_stop import AgreedStop
from .jax_service import Notes, connect_jax
from .roll_call import answer_roll_call, go_to_meeting, make_card
from .watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...config.run_config import RunConfig
    from ...runs.events import Event
    from ...runs.recorder import Recorder
    from .jax_service import Board
    from .membership import Membership

_LOOK_S = 0.5
_LOOK_HELD_S = 0.05
_LEAVE_S = 3.0


@dataclass(slots=True)
class Word:
    """A host's status."""

    asked: str = ""  # why it was asked to stop; does not change once `held` is set
    held: int | None = None  # steps begun, once it holds training until all agree on a last step
    end: str = ""  # why it ended the run
    lost: int | None = None
    is_done: bool = False
    has_left: bool = False  # whether it has stopped reading
    figures: dict[str, str] = field(default_factory=dict)  # its newest measurements: encoded events by their name


def join(membership: Membership, config: RunConfig, recorder: Recorder, start: str = "") -> Team:
    """Meet the other hosts and connect JAX with them; raises the errors of `answer_roll_call`."""
    watcher = Watcher(recorder.run.path)
    watcher.say(f"Host 0 at {membership.where} is gone, or another program listens there.")
    if membership.index:
        recorder.enter(Phase.CONNECTING, f"looking for host 0 at {membership.where}")
    with go_to_meeting(membership, recorder.should_stop) as meeting:
        card = make_card(membership, config, start)
        names = answer_roll_call(
            meeting.board, membership, card, recorder.should_stop, partial(recorder.enter, Phase.CONNECTING)
        )
        watcher.say(f"JAX did not connect the {membership.count} hosts.")
        meeting.free_next_port()
        if membership.index:
            meeting.close()  # before host 0, which waits for all in the next line
        board = connect_jax(membership)
    watcher.say(_without(f"Host 0 ({names[0]}) is gone." if membership.index else "JAX lost the other hosts."))
    team = Team(recorder, membership.index, names, board, partial(_leave, recorder))
    team.watcher = watcher
    team.start()
    return team


class Team:
    """A run's hosts, seen from the one with a number; `leave` writes the run's last event and ends this process.

    A host is lost after `silent_s` seconds without a new word, which busy Python code may delay. After a step failed
    here it is `suspect_s` seconds, because a lost host is the most likely cause.
    """

    def __init__(
        self,
        recorder: Recorder,
        index: int,
        names: Mapping[int, str],
        board: Board,
        leave: Callable[[RunFailed | RunFinished], object],
        silent_s: float = 30.0,
        suspect_s: float = 3.0,
    ) -> None:
        self.watcher: Watcher | None = None  # writes the last event if JAX aborts this process
        self.is_agreed = False  # on a last step
        self.names = names
        self.is_leader = index == 0
        self._recorder = recorder
        self._index = index
        self._leave = leave
        self._silent_s = silent_s
        self._suspect_s = suspect_s
        self._stop = AgreedStop()
        self._word = Word()
        self._words = Notes(board, "words", Word)
        self._asked = ""
        self._failure: tuple[float, RunFailed] | None = None
        self._passed_on: dict[tuple[int, str], str] = {}
        self._changed = threading.Event()
        self._host_0_is_done = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tpu-console-hosts", daemon=True)

    def start(self) -> None:
        """Watch the other hosts; from now on this one stops only when they do."""
        asked = self._recorder.stop_token
        self._recorder.stop_token = StopToken(asked.inbox)
        self._recorder.listen(self._keep_figures)
        self._thread.start()
        asked.listen(self.request_stop)

    def attach(self, model: Any) -> None:
        """Count the steps of a compiled model, before `fit` is called."""
        self._stop.attach(model)

    def request_stop(self, reason: str) -> None:
        """Ask all hosts to stop after the same step; return immediately."""
        self._asked = reason if self.is_leader else f"{reason}, at host {self._index} ({self.names[self._index]})"
        self._changed.set()

    def finish(self) -> None:
        """Wait until host 0 has saved the run, and disconnect."""
        import jax

        self._word.is_done = True
        self._changed.set()
        if not self.is_leader:
            self._host_0_is_done.wait()
        self.stop_watching()
        with suppress(RuntimeError):  # another host may have ended early; what this one made is saved
            self._say()
            jax.distributed.shutdown()  # waits for all

    def stop_watching(self) -> None:
        """Stop reading and writing."""
        self._over.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()

    def fail(self, error: BaseException, failed: RunFailed) -> None:
        """Report to the others why this host failed, and end this process with that as its last event.

        If another host is lost, a step fails here a moment later; then the last event names that host.
        """
        wait_s = 0.0 if isinstance(error, ConsoleError) else 2 * self._suspect_s
        self._failure = (time.monotonic() + wait_s, failed)
        self._changed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._say()
                self._hear()
            except RuntimeError:  # JAX will abort this process for the same reason
                self._lose(0)
            is_waiting = self._word.held is not None and not self.is_agreed
            self._changed.wait(_LOOK_HELD_S if is_waiting else _LOOK_S)
            self._changed.clear()

    def _say(self) -> None:
        if self._word.held is None:
            self._word.asked = self._asked
        self._words.write(self._index, self._word)

    def _hear(self) -> None:
        found = self._words.read()
        words = {index: found.get(index, Word()) for index in self.names if index != self._index}
        for word in words.values():
            if word.end:
                return self._end(word.end, lost=word.lost)
        limit_s = self._silent_s if self._failure is None else self._suspect_s
        for index in words:
            if self._words.silent_s(index) > limit_s:
                return self._lose(index)
        if self._failure is not None and time.monotonic() > self._failure[0]:
            what = self._failure[1].what
            end = what if what.endswith((".", "?", "!")) else f"{what}."
            return self._end(f"{self._who(self._index)} failed: {end}", self._failure[1])
        if not self.is_leader and words[0].is_done:
            self._host_0_is_done.set()
        for index, word in words.items() if self.is_leader else ():
            self._pass_figures_on(index, word.figures)
        return self._agree(words | {self._index: self._word})

    def _agree(self, words: dict[int, Word]) -> None:
        """Once a host was asked to stop, hold training until all know how many steps each has begun, and add one.

        No host has begun that step, and each will. If no host has begun any step, all end without one.
        """
        asked = [words[index].asked for index in sorted(words) if words[index].asked]
        if self.is_agreed or not asked:
            return
        if self._word.held is None:
            self._word.held = self._stop.hold()
        held = [word.held for word in words.values() if word.held is not None]
        if len(held) < len(words):
            return
        self.is_agreed, reason = True, asked[0]
        self._say()
        if max(held):
            self._stop.stop_after(max(held) + 1, partial(self._recorder.stop_token.request, reason))
        else:
            self._recorder.emit(StopRequested(reason))
            self._go(RunFinished(RunOutcome.STOPPED, f"{reason}, before training began", {}))

    def _lose(self, index: int) -> None:
        self._end(f"{self._who(index)} is gone.", lost=index)

    def _end(self, what: str, last: RunFailed | None = None, lost: int | None = None) -> None:
        """End the run for all hosts; training may hang in a step that never ends."""
        self._word.end, self._word.lost = what, lost
        if lost is not None and lost in self.names:
            self._recorder.emit(HostLost(lost, self.names[lost], round(self._words.silent_s(lost), 1)))
        remedy = "Host 0 has the checkpoints, once an epoch has ended."
        if self.is_leader and (self._recorder.run.checkpoints / "last.keras").exists():
            remedy = "checkpoints/last.keras has the model after the newest epoch."
        elif self.is_leader:
            remedy = "No epoch had ended, so there is no checkpoint."
        self._go(last or RunFailed(_without(what), "", remedy, self._recorder.run.log.name))

    def _go(self, last: RunFailed | RunFinished) -> None:
        """Leave; host 0 leaves last, because JAX aborts a process that loses it."""
        self._word.has_left = True
        with suppress(RuntimeError):
            self._say()
            deadline = time.monotonic() + _LEAVE_S
            while self.is_leader and time.monotonic() < deadline:
                left = sum(word.has_left for word in self._words.read().values())
                if left + (self._word.lost is not None) >= len(self.names):
                    break
                time.sleep(_LOOK_HELD_S)
        self._over.set()
        self._leave(last)

    def _who(self, index: int) -> str:
        return f"Host {index} ({self.names[index]})"

    def _keep_figures(self, event: Event) -> None:
        if isinstance(event, HostSampled | MemorySampled) and not self.is_leader:
            # A new dictionary, because another thread reads this one.
            self._word.figures = self._word.figures | {type(event).__name__: encode(event, time.time()).decode()}

    def _pass_figures_on(self, index: int, figures: Mapping[str, str]) -> None:
        for name, text in figures.items():
            if self._passed_on.get((index, name)) == text:
                continue
            self._passed_on[index, name] = text
            with suppress(ValueError, TypeError, AttributeError):  # no host wrote it
                event = decode(json.loads(text))
                if isinstance(event, HostSampled | MemorySampled):
                    self._recorder.emit(event)


def _without(what: str) -> str:
    return f"{what} The run cannot go on without it."


def _leave(recorder: Recorder, last: RunFailed | RunFinished) -> None:
    """Write the run's last event and end this process; JAX's own exit would wait for the other hosts."""
    discard_cache(recorder.run)
    recorder.emit(last)
    recorder.journal.flush()
    os._exit(1 if isinstance(last, RunFailed) else 0)
