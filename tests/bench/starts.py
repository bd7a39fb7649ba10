"""How long starts take: the first frame, the first step, a second start, more replicas and processes, many runs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import psutil

from tests.bench.bench import HERE, ROOT, Bench, end_process, journal_of, wait_until
from tests.bench.report import Row, Section, limit_row, ratio_row
from tests.bench.throughput import epoch_ends

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory

_MOST_S = 0.6
_TRIVIAL = b"A trivial app"
_FORM = (b"Learning rate", b"tpu-console run digits-cnn")  # a field, and the plan
_MODEL = b"model.keras"  # below the end of a run on its screen
# Programs with a first screen of their own, where they are installed: `.venv-peers/NAME` is an environment for each.
_PEERS = {"toolong": ("tl", str(ROOT / "README.md")), "harlequin": ("harlequin",)}
_PEER_TEXT = {"toolong": b"tpu-console", "harlequin": b"Data Catalog"}
_COMMANDS = {"--help": ("--help",), "runs": ("runs",), "runs show": ("runs", "show")}
_COMPLETION = {"_TPU_CONSOLE_COMPLETE": "bash_complete", "COMP_WORDS": "tpu-console runs show ", "COMP_CWORD": "3"}


def first_frame(bench: Bench) -> Section:
    """Start each program in turn and watch for its first drawn text."""
    bench.output(bench.console("run", "digits-cnn", "--epochs", "3"))
    peers = {name: command for name in _PEERS if (command := _peer(name)) is not None}
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
            **{(name,): _frames(bench, command, _PEER_TEXT[name]) for name, command in peers.items()},
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
            *(_peer_row(name, figures.get(name), trivial) for name in _PEERS),
            *(limit_row(f"`tpu-console {name}`", middle[name], _MOST_S) for name in _COMMANDS),
            limit_row("completing a name", middle["completion"], _MOST_S),
        ),
    )


def _peer(name: str) -> list[str] | None:
    program, *arguments = _PEERS[name]
    path = ROOT / ".venv-peers" / name / "bin" / program
    return [str(path), *arguments] if Path(path).is_file() else None


def _peer_row(name: str, ours: Sequence[float] | None, trivial: Sequence[float]) -> Row:
    if ours is None:
        return Row(f"{name} ÷ trivial app", f"not in `.venv-peers/{name}`")
    return ratio_row(f"{name} ÷ trivial app", ours, trivial)


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


_COMMAND = ("run", "digits-cnn", "--backend", "jax", "--accelerator", "cpu", "--epochs", 1, "--json")


def second_start(bench: Bench) -> Section:
    """Start with an empty cache and with the one that is left, in turn."""
    first, again = [], []
    for _ in bench.rounds(9, quick=2):
        shutil.rmtree(bench.folder / "home" / "cache" / "compiled", ignore_errors=True)
        first.append(_seconds_to_first_step(bench))
        again.append(_seconds_to_first_step(bench))
    return Section(
        "The second start on JAX",
        "`digits-cnn` on JAX on the CPU, from the first event to the first progress, without importing.",
        (
            Row("the first time", f"{median(first):.2f} s"),
            Row("again", f"{median(again):.2f} s"),
            ratio_row("again ÷ the first time", again, first, most=1.0),
        ),
    )


def _seconds_to_first_step(bench: Bench) -> float:
    records = bench.records(bench.console(*_COMMAND))
    connecting = next(r["t"] for r in records if r["type"] == "PhaseStarted" and r["phase"] == "connecting")
    return float(next(r["t"] for r in records if r["type"] == "Progress") - connecting)


_BATCH, _STEPS, _SIMULATED = 1000, 15, 8
_MOST_TIME = 1.05


def scaling(bench: Bench) -> Section:
    """Train in turn, with the same global batch on both sides."""
    one, simulated, replicas, processes = [], [], [], []
    for _ in bench.rounds(9, quick=2):
        one.append(_epoch_s(bench, "cpu", 1))
        simulated.append(_epoch_s(bench, f"sim:{_SIMULATED}", _SIMULATED))
        replicas.append(_epoch_s(bench, "sim:2", 2, "--backend", "jax"))
        processes.append(_two_processes(bench))
    return Section(
        "Replicas and processes",
        f"`fashion-mnist-cnn`, epochs of {_STEPS} steps of {_BATCH} images in total, without the first one. Two "
        "processes are two hosts on this machine, which share its cores, and train on JAX.",
        (
            Row("one device", f"{median(one):.2f} s an epoch"),
            ratio_row(f"time with `sim:{_SIMULATED}` ÷ one device", simulated, one, most=_MOST_TIME),
            Row("`sim:2` on JAX", f"{median(replicas):.2f} s an epoch"),
            ratio_row("efficiency: speed of two processes ÷ of one with `sim:2`", replicas, processes),
        ),
    )


def _arguments(accelerator: str, replicas: int, *more: object) -> list[object]:
    epochs = ["--epochs", 4, "--set", f"steps_per_epoch={_STEPS}", "--set", "validation_freq=4"]
    size = ["--batch-size", _BATCH // replicas, "--accelerator", accelerator]
    return ["run", "fashion-mnist-cnn", *epochs, *size, *more]


def _epoch_s(bench: Bench, accelerator: str, replicas: int, *more: object) -> float:
    records = bench.records(bench.console(*_arguments(accelerator, replicas, *more), "--json"))
    return _middle(epoch_ends(records))


def _two_processes(bench: Bench) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    known = {run.run_id for run in bench.runs}
    hosts = []
    for index in range(2):
        several = ["--backend", "jax", "--hosts", 2, "--host-index", index, "--coordinator", address]
        command = bench.console(*_arguments("sim:2", 2, *several), "--json")
        output = subprocess.DEVNULL
        hosts.append(subprocess.Popen(command, env=bench.environment, cwd=ROOT, stdout=output, stderr=output))
    if any(host.wait() for host in hosts):
        raise RuntimeError("one of the two processes failed")
    begun = [run for run in bench.runs if run.run_id not in known]
    return max(_middle(ends) for run in begun if len(ends := epoch_ends(journal_of(run))) > 1)


def _middle(ends: Sequence[float]) -> float:
    """Return the seconds of an epoch after the first; the last one also validates."""
    return median(after - before for before, after in pairwise(ends[:-1]))


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
    words = "tpu-console runs show "
    completing = {"_TPU_CONSOLE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}
    listed, completed = [], []
    for _ in bench.rounds(9):
        listed.append(seconds_of(bench.console("runs"), environment))
        completed.append(seconds_of(bench.console(), environment | completing))
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
