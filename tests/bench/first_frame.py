"""From the start of the process to the first frame, beside what Python alone takes."""

from __future__ import annotations

import subprocess
import time
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.report import Row, Section, limit_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.bench import Bench

_MOST_S = 0.5


def measure(bench: Bench) -> Section:
    """Start the console and watch for its first drawn text."""
    bench.output(bench.console("run", "digits-cnn", "--epochs", "3"))
    run_id = bench.runs[0].run_id.encode()
    figures: dict[str, list[float]] = {}
    for _ in bench.rounds(9, quick=3):
        for name, command in {
            "pass": bench.python("-c", "pass"),
            "textual": bench.python("-c", "import textual.app"),
        }.items():
            figures.setdefault(name, []).append(_seconds(bench, command))
        setup = _frames(bench, bench.console(), b"tpu-console", b"tpu-console run digits-cnn")
        attach = _frames(bench, bench.console("attach"), run_id, b"Finished")
        for name, value in zip(("setup", "plan", "attach", "curves"), (*setup, *attach), strict=True):
            figures.setdefault(name, []).append(value)
    middle = {name: median(values) for name, values in figures.items()}
    return Section(
        "First frame",
        "Seconds from the start of the process to the first text on the screen, in a pseudo-terminal of 120×40.",
        (
            limit_row("`tpu-console`: first frame", middle["setup"], _MOST_S),
            limit_row("`tpu-console`: form and plan", middle["plan"]),
            limit_row("`tpu-console attach`: first frame", middle["attach"], _MOST_S),
            limit_row("`tpu-console attach`: how a finished run ended", middle["curves"]),
            limit_row("`python -c pass`", middle["pass"]),
            _beside("`python -c 'import textual.app'`", middle["textual"]),
        ),
    )


def _beside(what: str, seconds: float) -> Row:
    return limit_row(what, seconds)


def _seconds(bench: Bench, command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=bench.environment, check=True)
    return time.perf_counter() - began


def _frames(bench: Bench, command: Sequence[str], first: bytes, last: bytes) -> tuple[float, float]:
    with bench.open(command) as terminal:
        began = terminal.started_at
        return terminal.wait_for(first) - began, terminal.wait_for(last) - began
