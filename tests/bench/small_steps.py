"""Steps of about a millisecond, where whatever watches them shows."""

import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Self

import psutil

from tests.bench.bench import HERE, ROOT, Bench, end_process
from tests.bench.report import Row, Section, ratio_row
from tests.bench.small_parts import COUNTER, read_count
from tests.helpers import replace, wait_until

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
        wait_until(lambda: read_count(self.counter) >= step, limit_s=_LONGEST_START_S)
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
    """Start programs one after the other and let them take turns from a step on; return their steps per second.

    What starts each of them is given a stack that closes what else it opens.
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


BATCH = 64
_STEPS = 1200
_TURNS = 6
_EPOCHS = 1000  # more than anyone waits for
_PRESET = f"""
dataset = "{HERE / "small_parts.py"}:data"
model = "{HERE / "small_parts.py"}:build"
batch_size = {BATCH}
epochs = {_EPOCHS}
steps_per_epoch = {_STEPS}
sinks = []

[checkpoint]
enabled = false

[preset]
title = "Steps of about a millisecond"
"""


def measure(bench: Bench) -> Section:
    preset = bench.folder / "small-steps.toml"
    preset.write_text(_PRESET, encoding="utf-8")
    one = [preset, "--set", "steps_per_execution=1"]
    ways: dict[str, Callable[[Bench, ExitStack], Program]] = {
        "bare": partial(_start_plain, way="bare"),
        "bridge": partial(_start_plain, way="bridge"),
        "headless": partial(_start_headless, preset=one),
        "watched": partial(_start_watched, preset=one),
        "auto": partial(_start_headless, preset=[preset]),
    }
    counting = {
        way: partial(start, replace(bench, variables={COUNTER: str(bench.folder / f"{way}.count")}))
        for way, start in ways.items()
    }
    speeds: dict[str, list[float]] = {}
    order = deque(counting)
    for _ in bench.rounds(7):
        for way, speed in take_turns({way: counting[way] for way in order}, _STEPS, _TURNS).items():
            speeds.setdefault(way, []).append(speed)
        order.rotate()  # what starts first is suspended longest, and the system may reclaim its memory
    bare = speeds["bare"]
    return Section(
        "Steps of about a millisecond",
        f"A small perceptron on generated data, in epochs of {_STEPS:,} steps of {BATCH}. In each round all these "
        f"programs are started; after the first epoch each trains in {_TURNS} turns of {TURN_S:g} s, and is "
        "suspended while the others do. Ratios are speeds relative to `model.fit(verbose=0)` in a plain script, "
        "with one step per execution unless stated.",
        (
            Row("bare `fit`", f"{1e3 / median(bare):.2f} ms a step"),
            ratio_row("`BridgeCallback` in the plain script", speeds["bridge"], bare, 0.99),
            ratio_row("console, headless", speeds["headless"], bare, 0.99),
            ratio_row("console, watched", speeds["watched"], bare, 0.97),
            ratio_row("console, `steps_per_execution=auto`", speeds["auto"], bare, 1.5),
        ),
    )


def _start_plain(bench: Bench, stack: ExitStack, way: str) -> Program:
    counter = _new_counter(bench)
    command = bench.python("-m", "tests.bench.plain_small", way, "--epochs", _EPOCHS, "--steps", _STEPS)
    return Program([psutil.Process(_start(bench, stack, command).pid)], counter)


def _start_headless(bench: Bench, stack: ExitStack, preset: Sequence[object]) -> Program:
    counter = _new_counter(bench)
    console = psutil.Process(_start(bench, stack, bench.console("run", *preset, "--json")).pid)
    wait_until(lambda: read_count(counter) > 0)  # then the process that trains is there
    return Program([console, *console.children(recursive=True)], counter)


def _start_watched(bench: Bench, stack: ExitStack, preset: Sequence[object]) -> Program:
    counter = _new_counter(bench)
    run, host = bench.start_detached("run", *preset)
    stack.callback(end_process, host)
    terminal = stack.enter_context(bench.open(bench.console("attach", run.run_id)))
    return Program([host, psutil.Process(terminal.process.pid)], counter)


def _new_counter(bench: Bench) -> Path:
    """Return the file in which the next program counts its steps, without those of the round before."""
    counter = Path(bench.variables[COUNTER])
    counter.unlink(missing_ok=True)
    return counter


def _start(bench: Bench, stack: ExitStack, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a program in the background, with its output in a file."""
    output = stack.enter_context(Path(bench.variables[COUNTER]).with_suffix(".out").open("wb"))
    return subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, env=bench.environment, cwd=ROOT)
