"""Steps of about a millisecond, where whatever watches them shows."""

from __future__ import annotations

import json
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.bench import HERE, Bench
from tests.bench.report import Row, Section, ratio_row
from tests.bench.throughput import epoch_ends, watch

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    for _ in bench.rounds(5):
        for way in ("nothing", "bridge", "progress-bar", "tensorboard"):
            speeds.setdefault(way, []).append(_speed(_plain(bench, way, epochs)))
        speeds.setdefault("shown-bar", []).append(_speed(_plain(bench, "progress-bar", epochs, is_shown=True)))
        headless = bench.records(bench.console("run", *one, "--json"))
        speeds.setdefault("headless", []).append(_speed(epoch_ends(headless)))
        speeds.setdefault("watched", []).append(_speed(epoch_ends(watch(bench, one))))
        auto = bench.records(bench.console("run", preset, "--json"))
        speeds.setdefault("auto", []).append(_speed(epoch_ends(auto)))
    return _section(speeds, epochs)


def _plain(bench: Bench, way: str, epochs: int, *, is_shown: bool = False) -> list[float]:
    """Train in a plain script, with its output in a pipe or shown in a pseudo-terminal; return each epoch's end."""
    result = bench.folder / "small-steps.json"
    command = bench.python("-m", "tests.bench.plain_small", way, "--epochs", epochs, "--steps", _STEPS)
    command += ["--result", str(result)]
    if is_shown:
        bench.show(command)
    else:
        bench.output(command)
    ends: list[float] = json.loads(result.read_text(encoding="utf-8"))["ended_at"]
    return ends


def _speed(ends: Sequence[float]) -> float:
    """Return steps a second of the epochs after the first."""
    return _STEPS / median(after - before for before, after in pairwise(ends))


def _section(speeds: dict[str, list[float]], epochs: int) -> Section:
    bare = speeds["nothing"]
    bar = ratio_row("Keras's progress bar (`verbose=1`), to a pipe", speeds["progress-bar"], bare)
    shown = ratio_row("Keras's progress bar, in a pseudo-terminal", speeds["shown-bar"], bare)
    board = ratio_row('Keras\'s TensorBoard callback, `update_freq="batch"`', speeds["tensorboard"], bare)
    return Section(
        "Steps of about a millisecond",
        f"A small perceptron on generated data, {epochs} epochs of {_STEPS:,} steps of {BATCH}, the first epoch left "
        "out; speeds over those of a bare `model.fit(verbose=0)` in a plain script. All but the last one run one "
        "step an execution, and none keeps checkpoints. The console is to cost less than the progress bar and than "
        "the TensorBoard callback; watched, it is set against a progress bar that is shown too, in a pseudo-terminal "
        "of 120×40 that is read all the time.",
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
        ),
    )


def _cheaper(what: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    return ratio_row(what, ours, theirs, 1.0)
