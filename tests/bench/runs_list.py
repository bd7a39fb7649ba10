"""What `tpu-console runs` costs with 500 runs."""

from __future__ import annotations

import os
import subprocess
import time
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.bench import ROOT, Bench, journal_of
from tests.bench.report import Section, limit_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

_RUNS = 500
_TRAINING_S, _LIST_S, _NAME_S = 30.0, 1.0, 0.6


def measure(bench: Bench) -> Section:
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
