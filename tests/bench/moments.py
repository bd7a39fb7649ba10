"""Small things that a person waits for, each of which should be over in a moment."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PIL import Image

from tests.bench.report import Section, limit_row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.bench.bench import Bench

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
from tpu_console.engine.data.images.check import check_images
began = time.process_time()
check_images([sys.argv[1]] * int(sys.argv[2]), lambda _: None)
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


def measure(bench: Bench) -> Section:
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
