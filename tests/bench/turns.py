"""Programs that take turns: each trains for a second while the others are suspended.

On a machine that others use too, the same program may be a tenth faster a minute later. With turns of a second, all
programs get nearly the same share of the fast and the slow minutes. What is due by the clock, such as a heartbeat or a
sample, comes at the beginning of a turn and counts.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from tests.bench.bench import end_process, wait_until
from tests.bench.small_parts import read_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    Start = Callable[[ExitStack], "Program"]

TURN_S = 1.0  # a run does most of what it does by the clock once a second
_LONGEST_START_S = 300.0


@dataclass(frozen=True, slots=True)
class Program:
    """A program that counts its steps, with all its processes; a context manager that ends them."""

    processes: Sequence[psutil.Process]
    counter: Path  # the file in which it counts

    def wait_for_step(self, step: int) -> None:
        """Wait until it has done so many steps, then suspend it."""
        wait_until(lambda: read_count(self.counter) >= step, _LONGEST_START_S)
        self._send(psutil.Process.suspend)

    def take_turn(self) -> tuple[int, float]:
        """Let it train for `TURN_S`; return how many steps it did, and in how many seconds."""
        before, began = read_count(self.counter), time.perf_counter()
        self._send(psutil.Process.resume)
        time.sleep(TURN_S)
        done, took_s = read_count(self.counter) - before, time.perf_counter() - began
        self._send(psutil.Process.suspend)
        return done, took_s

    def _send(self, signal: Callable[[psutil.Process], None]) -> None:
        for process in self.processes:
            signal(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            end_process(process)


def take_turns(starts: Mapping[str, Start], first_step: int, turns: int) -> dict[str, float]:
    """Start programs one after the other and let them take turns; return their steps a second.

    Args:
        starts: What starts each of them; its argument closes what else it opens.
        first_step: The first step that counts.
        turns: How many turns each has.
    """
    done, took_s = dict.fromkeys(starts, 0), dict.fromkeys(starts, 0.0)
    with ExitStack() as stack:
        programs = {}
        for name, start in starts.items():
            programs[name] = stack.enter_context(start(stack))
            programs[name].wait_for_step(first_step)
        for turn in range(turns):
            for name in reversed(programs) if turn % 2 else programs:
                steps, seconds = programs[name].take_turn()
                done[name] += steps
                took_s[name] += seconds
    return {name: done[name] / took_s[name] for name in programs}
