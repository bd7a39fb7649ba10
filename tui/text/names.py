"""The official names of backends, and the name of a run where there is little room."""

from __future__ import annotations

import re

BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX"}

_DATE = re.compile(r"^\d{8}-(?=\d{6}-.)")


def short_name(run_id: str) -> str:
    """Return a run's name without the date it begins with; names differ at their end, and commands accept a part."""
    return _DATE.sub("", run_id)
