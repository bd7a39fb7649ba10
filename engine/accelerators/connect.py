"""Connects an accelerator: chooses devices, makes the distribution, and says which and why.

A framework fixes its devices for the life of a process, so `connect` is called once in a process, before anything is
built. `engine.accelerators.backend` has chosen the backend before that; each backend has a module here that imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import AcceleratorError
from .backend import JAX

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .accelerator import Accelerator
    from .backend import BackendChoice


def connect(config: RunConfig, backend_choice: BackendChoice) -> Accelerator:
    """Connect the accelerator of a configuration, with the backend that was chosen.

    Raises:
        AcceleratorError: It is missing, or this process has already connected another one.
    """
    if backend_choice.missing:
        raise AcceleratorError(
            f"The accelerator '{config.accelerator}' cannot be used with {backend_choice.backend}.",
            why=backend_choice.missing,
            remedy=backend_choice.remedy,
        )
    if backend_choice.backend == JAX:
        from .jax import connect_jax

        return connect_jax(config, backend_choice.accelerator)
    from .tensorflow import connect_tensorflow

    return connect_tensorflow(backend_choice.accelerator)
