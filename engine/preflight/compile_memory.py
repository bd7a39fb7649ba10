"""Whether this machine has enough memory to compile."""

from __future__ import annotations

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
