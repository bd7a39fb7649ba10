"""How long starts take: the first frame, the first step, a list of many runs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from statistics import median
from typing import TYPE_CHECKING

import psutil

from tests.bench.bench import HERE, ROOT, Bench, end_process, journal_of, wait_until
from tests.bench.report import Section, limit_row, ratio_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

_MOST_S = 0.6
_TRIVIAL = b"A trivial app"
_FORM = (b"Learning rate", b"tpu-console run digits-cnn")  # a field, and the plan
_MODEL = b"model.keras"  # below the end of a run on its screen
_COMMANDS = {"--help": ("--help",), "runs": ("runs",), "runs show": ("runs", "show")}
_COMPLETION = {"_TPU_CONSOLE_COMPLETE": "bash_complete", "COMP_WORDS": "tpu-console runs show ", "COMP_CWORD": "3"}


def first_frame(bench: Bench) -> Section:
    """Start each program in turn and watch for its first drawn text."""
    bench.output(bench.console("run", "digits-cnn", "--epochs", "3"))
    figures: dict[str, list[float]] = {}
    for _ in bench.rounds(9, quick=3):
        for name, command in {
            "pass": bench.python("-c", "pass"),
            "textual": bench.python("-c", "import textual.app"),
        }.items():
            figures.setdefault(name, []).append(seconds_of(command, bench.environment))
        frames: dict[tuple[str, ...], list[float]] = {
            ("trivial",): _frames(bench, bench.python(HERE / "trivial_app.py"), _TRIVIAL),
            ("form", "plan"): _frames(bench, bench.console(), *_FORM),
            ("attach",): _frames(bench, bench.console("attach"), _MODEL),
        }
        for names, times in frames.items():
            for name, seconds in zip(names, times, strict=True):
                figures.setdefault(name, []).append(seconds)
        for name, arguments in _COMMANDS.items():
            figures.setdefault(name, []).append(seconds_of(bench.console(*arguments), bench.environment))
        figures.setdefault("completion", []).append(seconds_of(bench.console(), bench.environment | _COMPLETION))
    return _section(figures)


def _section(figures: dict[str, list[float]]) -> Section:
    middle = {name: median(values) for name, values in figures.items()}
    trivial = figures["trivial"]
    return Section(
        "First frame",
        "Seconds from the start of the process to the first text on the screen, in a pseudo-terminal of 120×40, and as "
        "a multiple of a Textual app that shows one line. The last rows: to the end of the process.",
        (
            limit_row("`tpu-console`: form that takes keys", middle["form"], _MOST_S),
            limit_row("`tpu-console`: plan", middle["plan"]),
            limit_row("`tpu-console attach`: a finished run", middle["attach"]),
            limit_row("a trivial Textual app", middle["trivial"]),
            limit_row("`python -c pass`", middle["pass"]),
            limit_row("`python -c 'import textual.app'`", middle["textual"]),
            ratio_row("`tpu-console`: form that takes keys ÷ trivial app", figures["form"], trivial, most=3.0),
            ratio_row("`tpu-console attach`: a finished run ÷ trivial app", figures["attach"], trivial),
            *(limit_row(f"`tpu-console {name}`", middle[name], _MOST_S) for name in _COMMANDS),
            limit_row("completing a name", middle["completion"], _MOST_S),
        ),
    )


def _frames(bench: Bench, command: Sequence[str], *texts: bytes) -> list[float]:
    with bench.open(command) as terminal:
        return [terminal.wait_for(text) - terminal.started_at for text in texts]


_FIRST_STEP_MOST_S = 1.5
_LEAST_IMPORT_S = 1.0
_PRESET = "fashion-mnist-cnn"
_START, _DOWN = b"\x12", b"\x1b[B"


def first_step(bench: Bench) -> Section:
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
            limit_row("console − plain", extra, _FIRST_STEP_MOST_S),
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


_RUNS = 500
_TRAINING_S, _LIST_S, _NAME_S = 30.0, 1.0, 0.6


def runs_list(bench: Bench) -> Section:
    """Train one run, copy it, and list the copies."""
    home = bench.folder / "many"
    environment = bench.environment | {"TPU_CONSOLE_HOME": str(home)}
    bench.output(bench.console("run", "digits-cnn"))
    trained = bench.runs[0]
    training_s = [record["elapsed_s"] for record in journal_of(trained) if record["type"] == "EpochEnded"][-1]
    _copy(trained, home / "runs", range(_RUNS))
    listed, completed = [], []
    for _ in bench.rounds(9):
        listed.append(seconds_of(bench.console("runs"), environment))
        completed.append(seconds_of(bench.console(), environment | _COMPLETION))
    return Section(
        f"A list of {_RUNS} runs",
        f"{_RUNS} copies of a finished run of `digits-cnn`, 60 epochs each, from process start to end.",
        (
            limit_row("training of `digits-cnn`", training_s, _TRAINING_S, digits=1),
            limit_row("`tpu-console runs`", median(listed), _LIST_S),
            limit_row("completing the name of a run", median(completed), _NAME_S),
        ),
    )


def seconds_of(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Run a program to its end and return the seconds that it took."""
    began = time.perf_counter()
    subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _copy(run: RunDirectory, folder: Path, numbers: range) -> None:
    """Make runs of links to the files of one run, which take no space."""
    for number in numbers:
        copy = folder / f"20260101-{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}-digits-cnn"
        copy.mkdir(parents=True)
        for file in (run.config, run.journal, run.heartbeat, run.summary):
            os.link(file, copy / file.name)
