"""Hides optional packages while a framework is imported: they would cost up to two seconds at every start.

If these are installed, Keras imports scikit-learn for its wrappers, Matplotlib for `keras.visualization` and IPython to
show a saved file, and TensorFlow imports JAX for the converter of TFLite. Training works without them.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def without(*packages: str) -> Iterator[None]:
    """Hide packages inside of the block as if they were not installed; one that is already imported stays."""
    hidden = [package for package in packages if package not in sys.modules]
    # A None there makes an import raise ModuleNotFoundError: docs.python.org/3/reference/import.html#the-module-cache
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # the stubs know modules only
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]


def hidden_beside(backend: str) -> contextlib.AbstractContextManager[None]:
    """Hide what a run on a backend does not need while Keras is imported."""
    return without("IPython", "matplotlib", "sklearn", *(["jax"] if backend == "tensorflow" else []))
