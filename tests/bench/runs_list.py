"""What `tpu-console runs` costs with 500 runs, before and after it knows them, and with 10,000."""

from __future__ import annotations

import os
import shutil
import subprocess
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.bench import ROOT, Bench, journal_of
from tests.bench.report import Section, limit_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

_RUNS, _MANY_RUNS = 500, 10_000
_TRAINING_S, _FIRST_S, _NEXT_S = 30.0, 1.5, 0.5


def measure(bench: Bench) -> Section:
    """Train one run, copy it, and list the copies with and without the index."""
    home = bench.folder / "many"
    environment = bench.environment | {"TPU_CONSOLE_HOME": str(home)}
    bench.output(bench.console("run", "digits-cnn"))
    trained = bench.runs[0]
    training_s = [record["elapsed_s"] for record in journal_of(trained) if record["type"] == "EpochEnded"][-1]
    _copy(trained, home / "runs", range(_RUNS))
    words = "tpu-console runs show "
    completing = {"_TPU_CONSOLE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}
    figures: dict[str, list[float]] = {}
    for _ in bench.rounds(5):
        shutil.rmtree(home / "cache", ignore_errors=True)
        plain = cpu_seconds(bench.python("-c", "pass"), environment)
        for name, more in (("first", {}), ("next", {}), ("completion", completing)):
            command = bench.console(*([] if more else ["runs"]))
            figures.setdefault(name, []).append(cpu_seconds(command, environment | more) - plain)
    many = []
    if not bench.is_quick:
        _copy(trained, home / "runs", range(_RUNS, _MANY_RUNS))
        listing = bench.console("runs")
        cpu_seconds(listing, environment)
        for _ in bench.rounds(5):
            plain = cpu_seconds(bench.python("-c", "pass"), environment)
            many.append(cpu_seconds(listing, environment) - plain)
    return Section(
        f"A list of {_RUNS} runs",
        f"{_RUNS} copies of a finished run of `digits-cnn`, 60 epochs each. Processor time beyond that of `python "
        "-c pass`. The first list reads every journal, the next one reads the index.",
        (
            limit_row("training of `digits-cnn`", training_s, _TRAINING_S, digits=1),
            limit_row("`tpu-console runs`, the first time", median(figures["first"]), _FIRST_S),
            limit_row("`tpu-console runs`, the next time", median(figures["next"]), _NEXT_S),
            *([limit_row(f"with {_MANY_RUNS:,} runs, the next time", median(many), _NEXT_S)] if many else []),
            limit_row("completing the name of a run", median(figures["completion"]), _NEXT_S),
        ),
    )


def cpu_seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Run a program to its end and return the processor time that it took.

    Raises:
        RuntimeError: It failed.
    """
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def _copy(run: RunDirectory, folder: Path, numbers: range) -> None:
    """Make runs of links to the files of one run, which take no space."""
    for number in numbers:
        copy = folder / f"20260101-{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}-digits-cnn"
        copy.mkdir(parents=True)
        for file in (run.config, run.journal, run.heartbeat):
            os.link(file, copy / file.name)
