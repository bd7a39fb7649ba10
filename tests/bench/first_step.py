"""From pressing start to the end of the first training step, against a plain script from its start."""

from __future__ import annotations

import json
import time
from statistics import median
from typing import TYPE_CHECKING

import psutil

from tests.bench.bench import HERE, Bench, end_process, journal_of, wait_until
from tests.bench.report import Section, limit_row

if TYPE_CHECKING:
    from tpu_console.engine.runs.run_directory import RunDirectory

_MOST_S = 1.5
_PRESET = "fashion-mnist-cnn"
_START, _DOWN = b"\x12", b"\x1b[B"


def measure(bench: Bench) -> Section:
    """Start both in turn."""
    plain, console = [], []
    for _ in bench.rounds(5):
        plain.append(_plain(bench))
        console.append(_console(bench))
    extra = median(ours - theirs for ours, theirs in zip(console, plain, strict=True))
    return Section(
        "Start to first step",
        f"`{_PRESET}`, epochs of 60 steps. Plain: from process start to the end of the first step. Console: from "
        "pressing start to the first progress in the journal.",
        (
            limit_row("plain script", median(plain)),
            limit_row("console", median(console)),
            limit_row("console − plain", extra, _MOST_S),
        ),
    )


def _plain(bench: Bench) -> float:
    began = time.time()
    answer = json.loads(bench.output(bench.python(HERE / "plain_fashion.py", "--first-step")))
    return float(answer["first_step_at"]) - began


def _console(bench: Bench) -> float:
    known = {run.run_id for run in bench.runs}
    with bench.open(bench.console()) as terminal:
        terminal.wait_for(b"tpu-console run digits-cnn")
        before, _ = terminal.send(_DOWN)
        terminal.wait_for(f"tpu-console run {_PRESET}".encode(), before)
        terminal.settle()
        pressed_at = time.time()
        terminal.send(_START)
        wait_until(lambda: any(run.run_id not in known for run in bench.runs))
        run = next(run for run in bench.runs if run.run_id not in known)
        try:
            wait_until(lambda: _first_progress(run) is not None)
        finally:
            end_process(psutil.Process(json.loads(run.heartbeat.read_text(encoding="utf-8"))["pid"]))
    return (_first_progress(run) or 0.0) - pressed_at


def _first_progress(run: RunDirectory) -> float | None:
    if not run.journal.exists():
        return None
    return next((float(record["t"]) for record in journal_of(run) if record["type"] == "Progress"), None)
