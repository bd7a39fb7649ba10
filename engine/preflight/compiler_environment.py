"""Environment variables of a process that compiles for a TPU, set before Keras, JAX and libtpu are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config.run_config import RunConfig

PREFLIGHT = {
    "KERAS_BACKEND": "jax",
    # The compiler is asked for, no device: not even where there are some, which another process may be using.
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    # Off Google Cloud libtpu would wait for a metadata server that is not there.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    # Else libtpu lets one process at a time load it, for the sake of a TPU that is not touched here.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
"""By name, for a step that Keras makes with JAX."""


def compiler_environment_of(config: RunConfig) -> dict[str, str]:
    """Return the variables for a configuration, by name."""
    return PREFLIGHT | {"KERAS_BACKEND": "tensorflow"} if config.takes_tensorflow else PREFLIGHT
