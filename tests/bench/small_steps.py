"""Steps of about a millisecond, where whatever watches them shows."""

from __future__ import annotations

import json
import subprocess
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Self

import psutil

from tests.bench.bench import HERE, ROOT, Bench, end_process, journal_of, wait_until
from tests.bench.report import Row, Section, ratio_row
from tests.bench.small_parts import COUNTER, read_count
from tests.bench.throughput import epoch_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Start = Callable[[ExitStack], "Program"]
    from collections.abc import Callable

    from tpu_console.engine.runs.run_directory import RunDirectory

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


BATCH = 64
_STEPS = 1200
_TURNS = 6
_EPOCHS = 1000  # more than anyone waits for
_WATCHED = (4, 14)  # between the ends of which epochs the console's processor time is taken
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
    """Let programs with each way of watching take turns."""
    preset = bench.folder / "small-steps.toml"
    preset.write_text(_PRESET, encoding="utf-8")
    one = [preset, "--set", "steps_per_execution=1"]
    ways: dict[str, Callable[[Bench, ExitStack], Program]] = {
        "nothing": partial(_start_plain, way="nothing"),
        "bridge": partial(_start_plain, way="bridge"),
        "progress-bar": partial(_start_plain, way="progress-bar"),
        "tensorboard": partial(_start_plain, way="tensorboard"),
        "shown-bar": partial(_start_plain, way="progress-bar", is_shown=True),
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
    for _ in bench.rounds(9):
        for way, speed in take_turns({way: counting[way] for way in order}, _STEPS, _TURNS).items():
            speeds.setdefault(way, []).append(speed)
        order.rotate()  # what starts first is suspended longest, and the system may reclaim its memory
    console_s = [_console_seconds(bench, one) for _ in bench.rounds(3)]
    return _section(speeds, _seconds_at_step_ends(bench), median(console_s))


def _start_plain(bench: Bench, stack: ExitStack, way: str, *, is_shown: bool = False) -> Program:
    """Train in a plain script, with its output in a file or shown in a pseudo-terminal."""
    counter, command = _new_counter(bench), _plain(bench, way)
    process = stack.enter_context(bench.open(command)).process if is_shown else _start(bench, stack, command)
    return Program([psutil.Process(process.pid)], counter)


def _start_headless(bench: Bench, stack: ExitStack, preset: Sequence[object]) -> Program:
    counter = _new_counter(bench)
    console = psutil.Process(_start(bench, stack, bench.console("run", *preset, "--json")).pid)
    wait_until(lambda: read_count(counter) > 0)  # then the process that trains is there
    return Program([console, *console.children(recursive=True)], counter)


def _start_watched(bench: Bench, stack: ExitStack, preset: Sequence[object]) -> Program:
    counter = _new_counter(bench)
    run, host = bench.start_detached(*preset)
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


def _plain(bench: Bench, way: str) -> list[str]:
    """Return the command that trains in a plain script."""
    return bench.python("-m", "tests.bench.plain_small", way, "--epochs", _EPOCHS, "--steps", _STEPS)


def _seconds_at_step_ends(bench: Bench) -> dict[str, list[float]]:
    """Return the processor time of a step's end in a plain script, in a pseudo-terminal, for each way of watching."""
    result = bench.folder / "step-ends.json"
    turns = len(bench.rounds(25, 3))
    bench.show(bench.python("-m", "tests.bench.plain_small", "--turns", turns, "--result", result))
    seconds: dict[str, list[float]] = json.loads(result.read_text(encoding="utf-8"))
    return seconds


def _console_seconds(bench: Bench, preset: Sequence[object]) -> float:
    """Return the processor time a step that the console takes in its own process, to show a run that trains."""
    run, host = bench.start_detached(*preset)
    try:
        with bench.open(bench.console("attach", run.run_id)) as terminal:
            console = psutil.Process(terminal.process.pid)
            used = []
            for epoch in _WATCHED:
                wait_until(partial(_has_ended, run, epoch))
                times = console.cpu_times()
                used.append(times.user + times.system)
    finally:
        end_process(host)
    return (used[1] - used[0]) / (_STEPS * (_WATCHED[1] - _WATCHED[0]))


def _has_ended(run: RunDirectory, epoch: int) -> bool:
    return len(epoch_ends(journal_of(run))) >= epoch


def _section(speeds: dict[str, list[float]], step_ends_s: dict[str, list[float]], console_s: float) -> Section:
    bare = speeds["nothing"]
    bar = ratio_row("Keras's progress bar (`verbose=1`), to a file", speeds["progress-bar"], bare)
    shown = ratio_row("Keras's progress bar, in a pseudo-terminal", speeds["shown-bar"], bare)
    board = ratio_row('Keras\'s TensorBoard callback, `update_freq="batch"`', speeds["tensorboard"], bare)
    return Section(
        "Steps of about a millisecond",
        f"A small perceptron on generated data, in epochs of {_STEPS:,} steps of {BATCH}. In each round all these "
        f"programs are started; after the first epoch each trains in {_TURNS} turns of {TURN_S:g} s, and is "
        "suspended while the others do. Ratios are speeds relative to `model.fit(verbose=0)` in a plain script, "
        "with one step per execution unless stated. The last six rows are about processor time per step: of Keras's "
        "calls at its end, where all ways take turns in one process, and of the console.",
        (
            Row("bare `fit`", f"{1e3 / median(bare):.2f} ms a step"),
            ratio_row("`BridgeCallback` in the plain script", speeds["bridge"], bare, 0.99),
            ratio_row("console, headless", speeds["headless"], bare, 0.99),
            ratio_row("console, watched", speeds["watched"], bare, 0.97),
            bar,
            shown,
            board,
            _cheaper("console, headless ÷ progress bar to a file", speeds["headless"], speeds["progress-bar"]),
            _cheaper("console, watched ÷ progress bar in a pseudo-terminal", speeds["watched"], speeds["shown-bar"]),
            _cheaper("console, watched ÷ TensorBoard callback", speeds["watched"], speeds["tensorboard"]),
            ratio_row("console, `steps_per_execution=auto`", speeds["auto"], bare, 1.5),
            _spent("processor time at a step's end: nothing watches", step_ends_s["nothing"]),
            _spent("Keras's progress bar, in a pseudo-terminal", step_ends_s["progress-bar"]),
            _spent("Keras's TensorBoard callback", step_ends_s["tensorboard"]),
            _spent("`BridgeCallback`", step_ends_s["bridge"]),
            ratio_row("`BridgeCallback` ÷ progress bar", step_ends_s["bridge"], step_ends_s["progress-bar"], most=1.0),
            Row("the watching console, in a process of its own", f"{1e6 * console_s:.1f} µs a step"),
        ),
    )


def _cheaper(what: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    return ratio_row(what, ours, theirs, 1.0)


def _spent(what: str, seconds: Sequence[float]) -> Row:
    return Row(what, f"{1e6 * median(seconds):.1f} µs")
