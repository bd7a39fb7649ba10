"""Checkpoints and resuming, and preflights."""

import time
from collections.abc import Sequence
from functools import partial
from itertools import dropwhile
from statistics import median
from typing import Any

from tests.bench.bench import Bench, end_process, journal_of
from tests.bench.report import Row, Section, limit_row, ratio_row
from tests.bench.watching import make_long_run, open_run
from tests.helpers import wait_until
from tpu_console.engine.accelerators.backend import is_installed
from tpu_console.engine.runs.run_directory import RunDirectory

_TEN_HOURS = 10 * 3600 * 10
"""Progress events of ten hours, ten a second."""

_WHAT = ("digits-cnn", "--set", "model=mlp", "--set", "model_options.hidden=[2048,2048]", "--set", "augmentation={}")
_LEAST = 0.98


def reliability(bench: Bench) -> Section:
    """Train in turn with and without checkpoints, kill and resume, and open a long run."""
    what = [*_WHAT, "--set", "checkpoint.monitor=none", "--set", "sinks=[]"]

    def speed(minutes: int) -> float:
        every = ["--epochs", 4 if bench.is_quick else 40, "--set", f"checkpoint.every_minutes={minutes}"]
        return _steps_per_s(bench.records(bench.console("run", *what, *every, "--json")))

    speeds = bench.in_turn(bench.rounds(5), {"without": lambda: speed(0), "with": lambda: speed(10)})
    resumed_s, bytes_per_s = [], []
    for _ in bench.rounds(5):
        run, host = bench.start_detached("run", *what, "--epochs", 1000)
        wait_until(lambda run=run: len(_epochs(journal_of(run))) >= 3)  # type: ignore[misc]  # no default in a lambda
        bytes_per_s.append(_bytes_per_s(run))
        end_process(host)
        began = time.time()
        _, host = bench.start_detached("resume", run.run_id)
        wait_until(partial(_steps_since, run))
        resumed_s.append(_steps_since(run)[0] - began)
        end_process(host)
    long = make_long_run(bench.folder / "home" / "runs", ("loss", "accuracy"), _TEN_HOURS)
    opened = [open_run(bench, long)[0] for _ in bench.rounds(5)]
    return Section(
        "Checkpoints and resuming",
        "A perceptron of 4.5 million parameters on `digits`, whose checkpoint has 54 MB, after every epoch of about a "
        "second unless that would cost more than 2% of the time. The journal of ten hours has ten events a second.",
        (
            ratio_row("speed with checkpoints ÷ without", speeds["with"], speeds["without"], _LEAST),
            limit_row("`tpu-console resume` to the next step", median(resumed_s), digits=1),
            Row("journal", f"{median(bytes_per_s) * 3600 / 1e6:.1f} MB an hour"),
            limit_row("`tpu-console attach` to a run of ten hours, until all is shown", median(opened), 2.0),
        ),
    )


def _epochs(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if record["type"] == "EpochEnded"]


def _steps_per_s(records: Sequence[dict[str, Any]]) -> float:
    """Return the speed after the first epoch, checkpoints between epochs included."""
    first, *_, last = _epochs(records)
    return float((last["step"] - first["step"]) / (last["elapsed_s"] - first["elapsed_s"]))


def _bytes_per_s(run: RunDirectory) -> float:
    """Return how fast the journal grew since the first epoch ended."""
    lines = run.journal.read_bytes().splitlines(keepends=True)
    records = journal_of(run)
    begin, end = (records.index(_epochs(records)[number]) for number in (0, -1))
    return float(sum(map(len, lines[begin + 1 : end + 1])) / (records[end]["t"] - records[begin]["t"]))


def _steps_since(run: RunDirectory) -> list[float]:
    """Return when steps after the run was resumed were reported."""
    since = dropwhile(lambda record: record["type"] != "RunResumed", journal_of(run))
    return [record["t"] for record in since if record["type"] == "Progress"]


_SMALL = ("preflight", "digits-cnn")
_RESNET = (
    "preflight",
    "plant-pathology-efficientnet",
    *("--set", "model_options.name=ResNet50", "--set", "model_options.trainable=all"),
    *("--set", "fine_tuning.after_epochs=0", "--batch-size", "64", "--precision", "mixed_bfloat16"),
)
_THREE = "v5e-8,v3-8,v6e-8"


def preflight(bench: Bench) -> Section:
    if not is_installed("libtpu"):
        row = Row("TPU compiler", "not installed: pip install 'jax[tpu]'")
        return Section("Preflight", "Left out where there is no TPU compiler.", (row,))
    one, three = (bench.seconds(bench.console(*_SMALL, "--on", *on)) for on in (["v5e-8"], [_THREE, "--no-cache"]))
    more = f"{three / one:.2f} ({three:.1f} s)"
    rows = [
        limit_row("`digits-cnn` for v5e-8", one, 30, digits=1),
        Row("the same for three types, as a multiple of one", more, "< 3", three < 3 * one),
    ]
    if not bench.is_quick:
        large = bench.seconds(bench.console(*_RESNET))
        rows.append(limit_row("ResNet-50 for v5e-8, 224², bf16, 64 a device", large, 120, digits=1))
    again = median(bench.seconds(bench.console(*_SMALL, "--on", "v5e-8")) for _ in bench.rounds(7, quick=3))
    rows.append(limit_row("a remembered answer", again, 0.3))
    return Section(
        "Preflight",
        "`tpu-console preflight` as a whole process. Only one row uses a remembered answer. The compiler is "
        "libtpu's; there is no TPU.",
        tuple(rows),
    )
