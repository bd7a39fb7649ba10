"""What a preflight takes: the TPU compiler from a cold process, a remembered answer, advice as a person types."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.report import Row, Section, limit_row
from tpu_console.engine.accelerators.backend import is_installed

if TYPE_CHECKING:
    from tests.bench.bench import Bench

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


def measure(bench: Bench) -> Section:
    """Ask the compiler about a small and a large model, then what it said before."""
    if not is_installed("libtpu"):
        row = Row("TPU compiler", "not installed: pip install 'jax[tpu]'")
        return Section("Preflight", "Left out where there is no TPU compiler.", (row,))
    one = _seconds(bench, *_SMALL, "--on", "v5e-8")
    three = _seconds(bench, *_SMALL, "--on", _THREE, "--no-cache")
    rows = [
        limit_row("`digits-cnn` for v5e-8", one, 30, digits=1),
        Row(
            "the same for three types, in times of one",
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
