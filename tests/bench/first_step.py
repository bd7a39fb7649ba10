"""From pressing start to the end of the first training step, against a plain script from its start."""

from __future__ import annotations

import json
import os
import time
from statistics import median
from typing import TYPE_CHECKING

import psutil

from tests.bench.bench import HERE, Bench, end_process, journal_of, wait_until
from tests.bench.report import Section, limit_row, ratio_row

if TYPE_CHECKING:
    from tpu_console.engine.runs.run_directory import RunDirectory

_MOST_S = 1.5
_LEAST_IMPORT_S = 1.0
_PRESET = "fashion-mnist-cnn"
_START, _DOWN = b"\x12", b"\x1b[B"


def measure(bench: Bench) -> Section:
    """Start both in turn."""
    plain, console, warm, headless = [], [], [], []
    for _ in bench.rounds(9):
        plain.append(_plain(bench))
        console.append(_console(bench))
        warm.append(_console(bench, is_warm=True))
        headless.append(_headless(bench))
    extra = median(ours - theirs for ours, theirs in zip(console, plain, strict=True))
    return Section(
        "Start to first step",
        f"`{_PRESET}`, epochs of 60 steps. Plain: from process start to the end of the first step. Console: from "
        "pressing start to the first progress in the journal; either at once, or when the framework has been imported. "
        "`run`: from process start.",
        (
            limit_row("plain script", median(plain)),
            limit_row("console", median(console)),
            limit_row("console − plain", extra, _MOST_S),
            limit_row("console, framework imported", median(warm)),
            ratio_row("console, framework imported ÷ plain", warm, plain, most=0.7),
            ratio_row("`tpu-console run` ÷ plain", headless, plain),
        ),
    )


def _plain(bench: Bench) -> float:
    began = time.time()
    answer = json.loads(bench.output(bench.python(HERE / "plain_fashion.py", "--first-step")))
    return float(answer["first_step_at"]) - began


def _headless(bench: Bench) -> float:
    began = time.time()
    run, host = bench.start_detached(_PRESET)
    try:
        wait_until(lambda: _first_progress(run) is not None)
    finally:
        end_process(host)
    return (_first_progress(run) or 0.0) - began


def _console(bench: Bench, *, is_warm: bool = False) -> float:
    known = {run.run_id for run in bench.runs}
    os.environ["TPU_CONSOLE_PREWARM"] = str(is_warm).lower()
    with bench.open(bench.console()) as terminal:
        terminal.wait_for(b"tpu-console run digits-cnn")
        before, _ = terminal.send(_DOWN)
        terminal.wait_for(f"tpu-console run {_PRESET}".encode(), before)
        terminal.settle()
        if is_warm:
            _wait_for_import(psutil.Process(terminal.process.pid))
        pressed_at = time.time()
        terminal.send(_START)
        wait_until(lambda: any(run.run_id not in known for run in bench.runs))
        run = next(run for run in bench.runs if run.run_id not in known)
        try:
            wait_until(lambda: _first_progress(run) is not None)
        finally:
            end_process(psutil.Process(json.loads(run.heartbeat.read_text(encoding="utf-8"))["pid"]))
    return (_first_progress(run) or 0.0) - pressed_at


def _wait_for_import(console: psutil.Process) -> None:
    """Wait until the process that imports has nothing left to do."""
    wait_until(lambda: bool(console.children()))
    host, used = console.children()[0], -1.0
    while (now := sum(host.cpu_times()[:2])) > used or now < _LEAST_IMPORT_S:
        used = now
        time.sleep(1.0)


def _first_progress(run: RunDirectory) -> float | None:
    if not run.journal.exists():
        return None
    return next((float(record["t"]) for record in journal_of(run) if record["type"] == "Progress"), None)
