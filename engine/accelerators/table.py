"""The one table of the frameworks."""

from .framework import Framework
from .jax import Jax
from .tensorflow import TensorFlow

FRAMEWORKS: dict[str, Framework] = {one.name: one for one in (TensorFlow(), Jax())}
"""The frameworks by Keras's names of them."""


def framework_of(backend: str) -> Framework:
    """Return the framework of a backend; a notebook may train on another one, which is treated as TensorFlow."""
    return FRAMEWORKS.get(backend, FRAMEWORKS["tensorflow"])


def loaded_framework() -> Framework:
    """Return the framework that Keras has loaded in this process."""
    import keras

    return framework_of(keras.config.backend())
