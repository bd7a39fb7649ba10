"""Verdicts as the compiler's job returns them, and a process that speaks as that job does."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.helpers import ROOT, replace
from tpu_console.engine.errors import Finding, Severity
from tpu_console.engine.preflight.result import Bound, Memory, Outcome, Verdict, Waste

Start = Callable[[str, Mapping[str, Any], Path], subprocess.Popen[bytes]]

GIB = 2**30

FITS = Verdict(
    tpu="v5e-8",
    devices=8,
    hosts=1,
    replica_batch=128,
    precision="float32",
    outcome=Outcome.FITS,
    reason="The train step and the validation step compile and fit.",
    memory=Memory(8_600_000, 17_200_000, 1_573_000, 290_000_000, int(0.31 * GIB), int(15.75 * GIB)),
    bound=Bound(61.4e9, 1.9e9, 8.6e6, 0.31e-3, 2.32e-3, 0.05e-3, "memory", 2.32e-3, 441_379.0, 0.111, 22.3),
    wastes=(
        Waste("conv2d", "features", 3, 8, 0.625, 4.1e9, 8),
        Waste("dense_1", "features", 10, 128, 0.92, 1.2e7, 128),
    ),
    findings=(
        Finding(Severity.INFO, "The compiler inserted 3 copies that change the layout of data, 0.1 GB a step."),
        Finding(
            Severity.WARNING,
            "Random rotation inside the model moves 555 GB a step where its layers need 0.5 GB.",
            layer="random_rotation",
            remedy="Set augmentation.placement=pipeline.",
            key="augmentation.placement",
        ),
    ),
    compile_s=13.2,
    versions={"jax": "0.10.2", "libtpu": "0.0.42"},
)
TOO_LARGE = replace(
    FITS,
    replica_batch=16384,
    outcome=Outcome.DOES_NOT_FIT,
    reason="A step needs 36.52 GiB of a device's 15.75 GiB.",
    memory=replace(FITS.memory, peak=int(36.52 * GIB)),  # it has one
    bound=None,
    wastes=(),
    findings=(),
    largest_batch=6931,
    compiler_says="RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 36.52G of 15.75G hbm.",
)
REFUSED = replace(
    FITS,
    tpu="v3-8",
    precision="mixed_bfloat16",
    outcome=Outcome.DOES_NOT_COMPILE,
    reason="random_width changes the width of its images, and a program for a TPU is compiled for one size.",
    memory=None,
    bound=None,
    wastes=(),
    findings=(),
)
UNKNOWN = replace(
    REFUSED,
    outcome=Outcome.UNKNOWN,
    reason="There is no TPU compiler here: pip install 'jax[tpu]'.",
    memory=replace(FITS.memory, is_lower_bound=True),  # it has one
    versions={},
)


def result_of(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {"verdicts": [verdict.as_dict() for verdict in verdicts], "versions": {"jax": "0.10.2"}}


def telling(verdicts: Sequence[Verdict], first: str = "") -> Start:
    """What starts a process that says a result, after something it does first."""
    return speaking(f"{first}\nreporter.result(json.loads({json.dumps(json.dumps(result_of(verdicts)))}))")


def speaking(code: str) -> Start:
    """What starts a process that speaks as a job does, and keeps its options in its log."""

    def start(_name: str, options: Mapping[str, Any], log: Path) -> subprocess.Popen[bytes]:
        log.parent.mkdir(parents=True, exist_ok=True)
        preamble = "import json, os, signal, sys, time\n"
        preamble += "from tpu_console.engine.errors import ConsoleError\n"
        preamble += "from tpu_console.engine.messages import Reporter\nreporter = Reporter(sys.stdout)\n"
        log.write_text(json.dumps(dict(options)) + "\n")
        with log.open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-c", preamble + code],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    return start
