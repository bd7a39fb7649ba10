"""How long starts take: the first frame, the first step, a list of many runs."""

import json
import os
import time
from collections.abc import Sequence
from functools import partial
from statistics import median

import psutil

from tests.bench.bench import HERE, Bench, end_process, journal_of
from tests.bench.report import Section, limit_row, ratio_row
from tests.helpers import wait_until
from tpu_console.engine.runs.run_directory import RunDirectory

_MOST_S = 0.6
_COMPLETION = {"_TPU_CONSOLE_COMPLETE": "bash_complete", "COMP_WORDS": "tpu-console runs show ", "COMP_CWORD": "3"}


def first_frame(bench: Bench) -> Section:
    """Start each program in turn, and watch for its first drawn text or for its end."""
    bench.output(bench.console("run", "digits-cnn", "--epochs", "3"))
    imports = {"`python -c pass`": "pass", "`python -c 'import textual.app'`": "import textual.app"}
    imported = {name: bench.python("-c", code) for name, code in imports.items()}
    commands = {f"`tpu-console {line}`": bench.console(*line.split()) for line in ("--help", "runs", "runs show")}

    def frames(command: Sequence[str], *texts: bytes) -> list[float]:
        with bench.open(command) as terminal:
            return [terminal.wait_for(text) - terminal.started_at for text in texts]

    def ended(command: Sequence[str], **variables: str) -> list[float]:
        return [bench.seconds(command, **variables)]

    figures = bench.in_turn(
        bench.rounds(9, quick=3),
        {
            "trivial": partial(frames, bench.python(HERE / "trivial_app.py"), b"A trivial app"),
            "form": partial(frames, bench.console(), b"Learning rate", b"tpu-console run digits-cnn"),  # field, plan
            "attach": partial(frames, bench.console("attach"), b"model.keras"),  # below the end of a run on its screen
            "completion": partial(ended, bench.console(), **_COMPLETION),
            **{name: partial(ended, command) for name, command in (imported | commands).items()},
        },
    )
    first = {name: [times[0] for times in rounds] for name, rounds in figures.items()}
    middle = {name: median(times) for name, times in first.items()}
    return Section(
        "First frame",
        "Seconds from the start of the process to the first text on the screen, in a pseudo-terminal of 120×40, and as "
        "a multiple of a Textual app that shows one line. The last rows: to the end of the process.",
        (
            limit_row("`tpu-console`: form that takes keys", middle["form"], _MOST_S),
            limit_row("`tpu-console`: plan", median(plan for _, plan in figures["form"])),
            limit_row("`tpu-console attach`: a finished run", middle["attach"]),
            limit_row("a trivial Textual app", middle["trivial"]),
            *(limit_row(name, middle[name]) for name in imported),
            ratio_row("`tpu-console`: form that takes keys ÷ trivial app", first["form"], first["trivial"], most=3.0),
            ratio_row("`tpu-console attach`: a finished run ÷ trivial app", first["attach"], first["trivial"]),
            *(limit_row(name, middle[name], _MOST_S) for name in commands),
            limit_row("completing a name", middle["completion"], _MOST_S),
        ),
    )


_FIRST_STEP_MOST_S = 1.5
_LEAST_IMPORT_S = 1.0
_PRESET = "fashion-mnist-cnn"
_START, _DOWN = b"\x12", b"\x1b[B"


def first_step(bench: Bench) -> Section:
    ways = {
        "plain": lambda: _plain(bench),
        "console": lambda: _console(bench),
        "warm": lambda: _console(bench, is_warm=True),
        "headless": lambda: _headless(bench),
    }
    figures = bench.in_turn(bench.rounds(9), ways)
    plain, console, warm, headless = figures.values()
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
    run, host = bench.start_detached("run", _PRESET)
    return _first_progress(run, host) - began


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
        wait_until(run.heartbeat.exists)
        host = psutil.Process(json.loads(run.heartbeat.read_text(encoding="utf-8"))["pid"])
        return _first_progress(run, host) - pressed_at


def _wait_for_import(console: psutil.Process) -> None:
    """Wait until the process that imports has nothing left to do."""
    wait_until(lambda: bool(console.children()))
    host, used = console.children()[0], -1.0
    while (now := sum(host.cpu_times()[:2])) > used or now < _LEAST_IMPORT_S:
        used = now
        time.sleep(1.0)


def _first_progress(run: RunDirectory, host: psutil.Process) -> float:
    """Return when a run reported its first progress, and end its process then."""

    def reported() -> list[float]:
        return [record["t"] for record in journal_of(run) if record["type"] == "Progress"]

    try:
        wait_until(reported)
        return reported()[0]
    finally:
        end_process(host)


_RUNS = 500
_TRAINING_S, _LIST_S, _NAME_S = 30.0, 1.0, 0.6


def runs_list(bench: Bench) -> Section:
    home = bench.folder / "many"
    bench.output(bench.console("run", "digits-cnn"))
    trained = bench.runs[0]
    training_s = [record["elapsed_s"] for record in journal_of(trained) if record["type"] == "EpochEnded"][-1]
    for number in range(_RUNS):  # of links to the files of one run, which take no space
        copy = home / "runs" / f"20260101-00{number // 60:02d}{number % 60:02d}-digits-cnn"
        copy.mkdir(parents=True)
        for file in (trained.config, trained.journal, trained.heartbeat, trained.summary):
            os.link(file, copy / file.name)
    ways = {
        "list": lambda: bench.seconds(bench.console("runs"), TPU_CONSOLE_HOME=str(home)),
        "name": lambda: bench.seconds(bench.console(), TPU_CONSOLE_HOME=str(home), **_COMPLETION),
    }
    figures = bench.in_turn(bench.rounds(9), ways)
    return Section(
        f"A list of {_RUNS} runs",
        f"{_RUNS} copies of a finished run of `digits-cnn`, 60 epochs each, from process start to end.",
        (
            limit_row("training of `digits-cnn`", training_s, _TRAINING_S, digits=1),
            limit_row("`tpu-console runs`", median(figures["list"]), _LIST_S),
            limit_row("completing the name of a run", median(figures["name"]), _NAME_S),
        ),
    )
