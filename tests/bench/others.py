"""Checkpoints and resuming, preflights, and small things that a person waits for."""

from __future__ import annotations

import time
from functools import partial
from itertools import dropwhile
from statistics import median
from typing import TYPE_CHECKING, Any

from PIL import Image

from tests.bench.bench import Bench, end_process, journal_of, wait_until
from tests.bench.report import Row, Section, limit_row, ratio_row
from tests.bench.watching import make_long_run, open_run
from tpu_console.engine.accelerators.backend import is_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

_PAIRS, _IMAGES, _LOOKS, _PLANS = 95_000, 2000, 100, 50

_DOCTOR = """
import time; began = time.monotonic()
from tpu_console.engine.doctor.doctor import examine
from tpu_console.engine.machine.environment import look_around
examine(look_around())
print(time.monotonic() - began)
"""
_READ = """
import sys, time
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.kinds.table import load_examples
values = {"dataset": "text-pairs", "model": "transformer", "batch_size": 64, "epochs": 1}
config = parse_config(values | {"data": {"options": {"path": sys.argv[1]}}})
began = time.monotonic()
load_examples(config, lambda _: None)
print(time.monotonic() - began)
"""
_CHECK = """
import sys, time
from tpu_console.engine.data.images.check import check_image, check_images
began = time.process_time()
check_images([sys.argv[1]] * int(sys.argv[2]), lambda _: None, check_image)
print(time.process_time() - began)
"""
_SAMPLE = """
import sys, time
from contextlib import nullcontext
from tpu_console.engine.accelerators.accelerator import Accelerator
from tpu_console.engine.runs.events import Replica
from tpu_console.engine.monitoring.devices import DeviceReader
from tpu_console.engine.monitoring.sampler import HostReader
replicas = [Replica(0, "/device:CPU:0", "CPU", "here")]
host, devices = HostReader(), DeviceReader(Accelerator("cpu", "", "", "", replicas, nullcontext, {}))
began = time.thread_time()
for _ in range(int(sys.argv[1])):
    host.read(), devices.read()
print((time.thread_time() - began) / int(sys.argv[1]))
"""


def moments(bench: Bench) -> Section:
    """Measure each of them."""
    pairs, image = _write_pairs(bench.folder), _write_image(bench.folder)
    return Section(
        "Moments",
        "Other waits; elapsed time unless the row says processor time.",
        (
            limit_row("`doctor`: this machine", _number(bench, _DOCTOR), 3.0),
            limit_row("a plan made again", 1e3 * _again(_make_plan(pairs)), 2.0, "ms"),
            limit_row(f"{_IMAGES:,} JPEGs checked, processor time", _number(bench, _CHECK, image, _IMAGES), 2.0),
            limit_row(f"{_PAIRS:,} pairs of sentences read", _number(bench, _READ, pairs), 20.0),
            limit_row("a sample of the machine, processor time", 1e3 * _number(bench, _SAMPLE, _LOOKS), 3.0, "ms"),
        ),
    )


def _number(bench: Bench, code: str, *arguments: object) -> float:
    """Run a script and return the number in the last line that it prints."""
    return float(bench.output(bench.python("-c", code, *arguments)).splitlines()[-1])


def _again(act: Callable[[], object]) -> float:
    """Return the seconds of the quickest of many calls after the first."""
    act()
    times = []
    for _ in range(_PLANS):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return min(times)


def _make_plan(path: Path) -> Callable[[], object]:
    from tpu_console.engine.data.survey.formats import config_for
    from tpu_console.engine.machine.devices import Hardware
    from tpu_console.engine.planning.plan import make_plan

    config = config_for("text-pairs", {"path": str(path)})
    return lambda: make_plan(config, Hardware())


def _write_image(folder: Path) -> Path:
    path = folder / "checked.jpg"
    Image.linear_gradient("L").convert("RGB").save(path)
    return path


def _write_pairs(folder: Path) -> Path:
    path = folder / "spa.txt"
    words = [f"word{number % 997} comes before number {number}" for number in range(_PAIRS)]
    path.write_text("".join(f"{text}.\t{text[::-1]}.\n" for text in words), encoding="utf-8")
    return path


_TEN_HOURS = 10 * 3600 * 10
"""Progress events of ten hours, ten a second."""

_WHAT = ("digits-cnn", "--set", "model=mlp", "--set", "model_options.hidden=[2048,2048]", "--set", "augmentation={}")
_LEAST = 0.98


def reliability(bench: Bench) -> Section:
    """Train in turn with and without checkpoints, kill and resume, and open a long run."""
    what = [*_WHAT, "--set", "checkpoint.monitor=none", "--set", "sinks=[]"]
    speeds: dict[str, list[float]] = {"0": [], "10": []}
    for _ in bench.rounds(5):
        for minutes, found in speeds.items():
            every = ["--epochs", 4 if bench.is_quick else 40, "--set", f"checkpoint.every_minutes={minutes}"]
            records = bench.records(bench.console("run", *what, *every, "--json"))
            found.append(_steps_per_s(records))
    resumed_s, bytes_per_s = [], []
    for _ in bench.rounds(5):
        run, host = bench.start_detached(*what, "--epochs", 1000)
        wait_until(partial(_has_epochs, run, 3))
        bytes_per_s.append(_bytes_per_s(run))
        end_process(host)
        began = time.time()
        _, host = bench.start_resumed(run)
        wait_until(lambda run=run: _first_step(run) is not None)  # type: ignore[misc]  # mypy: no default in a lambda
        resumed_s.append((_first_step(run) or began) - began)
        end_process(host)
    long = make_long_run(bench.folder / "home" / "runs", ("loss", "accuracy"), _TEN_HOURS)
    opened = [open_run(bench, long)[0] for _ in bench.rounds(5)]
    return Section(
        "Checkpoints and resuming",
        "A perceptron of 4.5 million parameters on `digits`, whose checkpoint has 54 MB, after every epoch of about a "
        "second unless that would cost more than 2% of the time. The journal of ten hours has ten events a second.",
        (
            ratio_row("speed with checkpoints ÷ without", speeds["10"], speeds["0"], _LEAST),
            limit_row("`tpu-console resume` to the next step", median(resumed_s), digits=1),
            Row("journal", f"{median(bytes_per_s) * 3600 / 1e6:.1f} MB an hour"),
            limit_row("`tpu-console attach` to a run of ten hours, until all is shown", median(opened), 2.0),
        ),
    )


def _epochs(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if record["type"] == "EpochEnded"]


def _has_epochs(run: RunDirectory, count: int) -> bool:
    return len(_epochs(journal_of(run))) >= count


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


def _first_step(run: RunDirectory) -> float | None:
    """Return when the first step after the run was resumed was reported; None before."""
    since = dropwhile(lambda record: record["type"] != "RunResumed", journal_of(run))
    return next((record["t"] for record in since if record["type"] == "Progress"), None)


_SMALL = ("preflight", "digits-cnn")
_RESNET = (
    "preflight",
    "plant-pathology-efficientnet",
    *("--set", "model_options.name=ResNet50", "--set", "model_options.trainable=all"),
    *("--set", "fine_tuning.after_epochs=0", "--batch-size", "64", "--precision", "mixed_bfloat16"),
)
_THREE = "v5e-8,v3-8,v6e-8"
_ADVICE = """
import time
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning.plan import make_plan
from tpu_console.presets import find_preset
config = find_preset("cifar10-vgg-augmented").config
began = time.perf_counter()
from tpu_console.engine.planning.advice import static_advice
static_advice(config, 8)
make_plan(config, Hardware())
print(time.perf_counter() - began)
"""


def preflight(bench: Bench) -> Section:
    """Ask the compiler about a small and a large model, then what it said before."""
    if not is_installed("libtpu"):
        row = Row("TPU compiler", "not installed: pip install 'jax[tpu]'")
        return Section("Preflight", "Left out where there is no TPU compiler.", (row,))
    one = _seconds(bench, *_SMALL, "--on", "v5e-8")
    three = _seconds(bench, *_SMALL, "--on", _THREE, "--no-cache")
    rows = [
        limit_row("`digits-cnn` for v5e-8", one, 30, digits=1),
        Row(
            "the same for three types, as a multiple of one",
            f"{three / one:.2f} ({three:.1f} s)",
            "< 3",
            three < 3 * one,
        ),
    ]
    if not bench.is_quick:
        rows.append(limit_row("ResNet-50 for v5e-8, 224², bf16, 64 a device", _seconds(bench, *_RESNET), 120, digits=1))
    again = median(_seconds(bench, *_SMALL, "--on", "v5e-8") for _ in bench.rounds(7, quick=3))
    rows.append(limit_row("a remembered answer", again, 0.3))
    advice = median(float(bench.output(bench.python("-c", _ADVICE))) for _ in bench.rounds(7, quick=3))
    rows.append(limit_row("advice without the compiler, the first time in a process", advice, 0.1, digits=3))
    return Section(
        "Preflight",
        "`tpu-console preflight` as a whole process. Only one row uses a remembered answer. The compiler is "
        "libtpu's; there is no TPU.",
        tuple(rows),
    )


def _seconds(bench: Bench, *arguments: str) -> float:
    began = time.perf_counter()
    bench.output(bench.console(*arguments))
    return time.perf_counter() - began
