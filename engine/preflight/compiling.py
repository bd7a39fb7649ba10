"""What compiling needs of this machine: memory, time, and the variables of its process."""

from __future__ import annotations

import ctypes.util
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..config.run_config import RunConfig

_ANY_STEP, _A_LINE = 0.3e9, 110e3
"""Bytes that compiling needs for any step, and for each line of the lowered step.

A little more than was measured with libtpu 0.0.51: ResNet-50 took 1.2 GB for 13,600 lines, DenseNet-121 2.8 GB for
27,900, a transformer 0.5 GB for 2,500.
"""

USUAL = 2.5e9  # bytes that compiling a typical model needs; it decides how many are compiled in parallel


def shortage(lines: int, free: int) -> str:
    """Say that the free memory is too little to compile a step of this many lines; empty if it is enough."""
    needed = _ANY_STEP + _A_LINE * lines  # the libraries, 0.9 GB, are loaded already
    if needed <= free:
        return ""
    return (
        f"Compiling this model needs about {needed / 1e9:.1f} GB of this machine's memory, and {free / 1e9:.1f} GB are "
        "free."
    )


_SECONDS_PER_LINE = 60 / 13_600
"""What ResNet-50 took on two cores with libtpu 0.0.51."""

_SECONDS_PER_GROUPED = 12.0
"""The most that each grouped convolution of ConvNeXtTiny took, with 64 large images per device and other work on two
cores; on quiet ones it was 6 to 10 s, and with 8 small images nothing."""


class CompileTimes:
    """How long compiling will probably take here, corrected by how long it took."""

    def __init__(self) -> None:
        self._took_s: dict[str, float] = {}  # by step, how long compiling it took last
        self._slowness = 1.0  # how many times as long as on two quiet cores that was

    def expected_s(self, step: str, lowered: Any) -> float:
        """Return the seconds for a lowered step: those of last time, or by its size on two cores."""
        if step in self._took_s:
            return self._took_s[step]
        lines: int = lowered.as_text().count("\n")
        grouped: int = lowered.as_text(dialect="hlo").count("_group_count=")  # such as depthwise convolutions
        return max(1.0, self._slowness * (lines * _SECONDS_PER_LINE + grouped * _SECONDS_PER_GROUPED))

    def note(self, step: str, seconds: float, expected_s: float) -> None:
        """Note how long compiling a step took."""
        self._took_s[step] = seconds
        self._slowness *= seconds / expected_s


PREFLIGHT = {
    "KERAS_BACKEND": "jax",
    # Only the compiler is needed: another process may be using the devices, if there are any.
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    # Off Google Cloud libtpu would wait for a metadata server that does not exist.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    # Otherwise only one process at a time may load libtpu, to protect a TPU that is not used here.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
"""The variables for a step on JAX, by name."""


def compiler_environment_of(config: RunConfig) -> dict[str, str]:
    """Return the variables for a configuration, by name."""
    return PREFLIGHT | {"KERAS_BACKEND": config.tpu_backend}


@cache
def quick_allocator() -> dict[str, str]:
    """Return the variable that makes a process allocate memory with jemalloc; empty if it is not installed.

    With the C library's own allocator, libtpu spends up to half of its time on allocation. tcmalloc is not used: its
    libunwind can end a process that raises a C++ exception (taichi-dev/taichi#235).
    """
    if sys.platform != "linux" or "LD_PRELOAD" in os.environ:  # the user has chosen
        return {}
    found = ctypes.util.find_library("jemalloc")
    return {"LD_PRELOAD": found} if found else {}
