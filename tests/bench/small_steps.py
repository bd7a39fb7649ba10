"""Steps of about a millisecond, where whatever watches them shows."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil

from tests.bench.bench import HERE, Bench, end_process, journal_of, wait_until
from tests.bench.report import Row, Section, limit_row, ratio_row
from tests.bench.throughput import epoch_ends, watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory

BATCH = 64
_STEPS = 1200
_PRESET = f"""
dataset = "{HERE / "small_parts.py"}:data"
model = "{HERE / "small_parts.py"}:build"
batch_size = {BATCH}
epochs = %d
steps_per_epoch = {_STEPS}

[checkpoint]
enabled = false

[tensorboard]
enabled = false

[preset]
title = "Steps of about a millisecond"
"""


def measure(bench: Bench) -> Section:
    """Train in turn with each way of watching."""
    epochs = 3 if bench.is_quick else 5
    preset = bench.folder / "small-steps.toml"
    preset.write_text(_PRESET % epochs, encoding="utf-8")
    one = [preset, "--set", "steps_per_execution=1"]
    speeds: dict[str, list[float]] = {}
    for _ in bench.rounds(9):
        for way in ("nothing", "bridge", "progress-bar", "tensorboard"):
            speeds.setdefault(way, []).append(_speed(_plain(bench, way, epochs)))
        speeds.setdefault("shown-bar", []).append(_speed(_plain(bench, "progress-bar", epochs, is_shown=True)))
        headless = bench.records(bench.console("run", *one, "--json"))
        speeds.setdefault("headless", []).append(_speed(epoch_ends(headless)))
        speeds.setdefault("watched", []).append(_speed(epoch_ends(watch(bench, one))))
        auto = bench.records(bench.console("run", preset, "--json"))
        speeds.setdefault("auto", []).append(_speed(epoch_ends(auto)))
    held: dict[str, list[float]] = {}
    for _ in bench.rounds(3):
        for way in ("nothing", "bridge", "progress-bar", "tensorboard"):
            held.setdefault(way, []).append(_train(bench, way, 3, is_shown=True, handling=True)["handling_s"])
        held.setdefault("console", []).append(_console_seconds(bench, one, epochs))
    return _section(speeds, epochs, {way: 1e6 * median(seconds) for way, seconds in held.items()})


def _plain(bench: Bench, way: str, epochs: int, *, is_shown: bool = False) -> list[float]:
    """Train in a plain script, with its output in a pipe or shown in a pseudo-terminal; return each epoch's end."""
    ends: list[float] = _train(bench, way, epochs, is_shown=is_shown)["ended_at"]
    return ends


def _train(bench: Bench, way: str, epochs: int, *, is_shown: bool = False, handling: bool = False) -> dict[str, Any]:
    result = bench.folder / "small-steps.json"
    command = bench.python("-m", "tests.bench.plain_small", way, "--epochs", epochs, "--steps", _STEPS)
    command += ["--result", str(result), *(["--handling"] if handling else [])]
    if is_shown:
        bench.show(command)
    else:
        bench.output(command)
    figures: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return figures


def _console_seconds(bench: Bench, preset: Sequence[object], epochs: int) -> float:
    """Return the processor time a step that the console takes in its own process, to show a run that trains."""
    run, host = bench.start_detached(*preset)
    try:
        with bench.open(bench.console("attach", run.run_id)) as terminal:
            console = psutil.Process(terminal.process.pid)
            used = []
            for epoch in (1, epochs):
                wait_until(partial(_has_ended, run, epoch))
                times = console.cpu_times()
                used.append(times.user + times.system)
    finally:
        end_process(host)
    return (used[1] - used[0]) / (_STEPS * (epochs - 1))


def _has_ended(run: RunDirectory, epoch: int) -> bool:
    return len(epoch_ends(journal_of(run))) >= epoch


def _speed(ends: Sequence[float]) -> float:
    """Return steps a second of the epochs after the first."""
    return _STEPS / median(after - before for before, after in pairwise(ends))


def _section(speeds: dict[str, list[float]], epochs: int, held_us: dict[str, float]) -> Section:
    bare = speeds["nothing"]
    bar = ratio_row("Keras's progress bar (`verbose=1`), to a pipe", speeds["progress-bar"], bare)
    shown = ratio_row("Keras's progress bar, in a pseudo-terminal", speeds["shown-bar"], bare)
    board = ratio_row('Keras\'s TensorBoard callback, `update_freq="batch"`', speeds["tensorboard"], bare)
    return Section(
        "Steps of about a millisecond",
        f"A small perceptron on generated data, {epochs} epochs of {_STEPS:,} steps of {BATCH}, without the first "
        "epoch. Ratios are speeds relative to `model.fit(verbose=0)` in a plain script, with one step per "
        "execution unless stated. The last five rows are processor time per step: of Keras's calls at its end, "
        "and of the console.",
        (
            Row("bare `fit`", f"{1e3 / median(bare):.2f} ms a step"),
            ratio_row("`BridgeCallback` in the plain script", speeds["bridge"], bare, 0.99),
            ratio_row("console, headless", speeds["headless"], bare, 0.99),
            ratio_row("console, watched", speeds["watched"], bare, 0.97),
            bar,
            shown,
            board,
            _cheaper("console, headless ÷ progress bar to a pipe", speeds["headless"], speeds["progress-bar"]),
            _cheaper("console, watched ÷ progress bar in a pseudo-terminal", speeds["watched"], speeds["shown-bar"]),
            _cheaper("console, watched ÷ TensorBoard callback", speeds["watched"], speeds["tensorboard"]),
            ratio_row("console, `steps_per_execution=auto`", speeds["auto"], bare, 1.5),
            Row("processor time at a step's end: nothing watches", f"{held_us['nothing']:.1f} µs"),
            Row("Keras's progress bar, in a pseudo-terminal", f"{held_us['progress-bar']:.1f} µs"),
            Row("Keras's TensorBoard callback", f"{held_us['tensorboard']:.1f} µs"),
            limit_row("`BridgeCallback`", held_us["bridge"], round(held_us["progress-bar"], 1), "µs", 1),
            Row("the watching console, in a process of its own", f"{held_us['console']:.1f} µs a step"),
        ),
    )


def _cheaper(what: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    return ratio_row(what, ours, theirs, 1.0)
