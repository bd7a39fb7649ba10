"""From a key press to the repaint it causes, while training takes every core."""

from __future__ import annotations

import random
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.bench import Bench, end_process, wait_until
from tests.bench.report import Section, limit_row, percentile

if TYPE_CHECKING:
    from tests.bench.terminal import Terminal

_MOST_MS = 50.0
_LOW = 10
# The key and what only its repaint can show: `s` writes the smoothing into the charts' titles.
_PRESSES = (
    (b"s", b"smooth 0.5"),
    (b"s", b"smooth 0.8"),
    (b"s", b"smooth 0.9"),
    (b"s", b"smooth 0.97"),
    (b"?", b"escape: close"),
)
_RESTORING = ((b"\x1b", "the help is closed"), (b"s", "smoothing is off"))


def measure(bench: Bench) -> Section:
    """Press keys at odd moments while `fashion-mnist-cnn` trains, at normal and at low priority."""
    seconds, beside_low = _pressed(bench, 0), _pressed(bench, _LOW)
    return Section(
        "Key press to repaint",
        f"{len(seconds)} key presses on the live screen of `fashion-mnist-cnn` while it trains on all cores: until "
        f"the changed chart or the help arrives at the terminal. Training has normal priority; below, nice {_LOW}.",
        (
            limit_row("median", median(seconds) * 1e3, unit="ms", digits=1),
            limit_row("95th percentile", percentile(seconds, 0.95) * 1e3, _MOST_MS, "ms", 1),
            limit_row("longest", max(seconds) * 1e3, unit="ms", digits=1),
            limit_row("median, training at low priority", median(beside_low) * 1e3, unit="ms", digits=1),
            limit_row("95th percentile, likewise", percentile(beside_low, 0.95) * 1e3, unit="ms", digits=1),
        ),
    )


def _pressed(bench: Bench, niceness: int) -> list[float]:
    # How the user looked at the curves is kept; the terminal was closed right after the key that turns smoothing off.
    (bench.folder / "home" / "views.json").unlink(missing_ok=True)
    run, host = bench.start_detached("fashion-mnist-cnn", "--epochs", 500, niceness=niceness)
    pauses = random.Random(0)
    seconds: list[float] = []
    try:
        with bench.open(bench.console("attach", run.run_id)) as terminal:
            wait_until(lambda: b'"EpochEnded"' in run.journal.read_bytes())
            for _ in bench.rounds(12, quick=3):
                seconds += _round(terminal, pauses)
    finally:
        end_process(host)
    return seconds


def _round(terminal: Terminal, pauses: random.Random) -> list[float]:
    seconds = []
    for key, shown in _PRESSES:
        terminal.settle(pauses.uniform(0.02, 0.3), limit_s=0.5)
        before, pressed_at = terminal.send(key)
        seconds.append(terminal.wait_for(shown, before, limit_s=5.0) - pressed_at)
    for key, _ in _RESTORING:
        terminal.settle(limit_s=0.5)
        terminal.send(key)
    terminal.settle(limit_s=0.5)
    return seconds
