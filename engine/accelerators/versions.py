"""Versions of the frameworks that a run uses."""

from __future__ import annotations

import keras
import tensorflow as tf


def versions() -> dict[str, str]:
    """Return the versions of TensorFlow and Keras."""
    return {"tensorflow": tf.__version__, "keras": keras.__version__}
