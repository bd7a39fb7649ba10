"""Environment variables of a process that compiles for a TPU, set before Keras, JAX and libtpu are loaded."""

from __future__ import annotations

import ctypes.util
import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config.run_config import RunConfig

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
"""The variables for a step on the JAX backend, by name."""


def compiler_environment_of(config: RunConfig) -> dict[str, str]:
    """Return the variables for a configuration, by name."""
    return PREFLIGHT | {"KERAS_BACKEND": "tensorflow"} if config.takes_tensorflow else PREFLIGHT


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
