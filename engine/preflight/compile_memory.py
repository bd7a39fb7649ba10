"""Whether this machine has enough memory to compile."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

_LIBRARIES = 0.9e9
"""Bytes that the compiler, JAX and Keras need before anything is compiled."""

_ANY_STEP, _A_LINE = 0.3e9, 110e3
"""Bytes that compiling needs for any step, and for each line of the lowered step.

A little more than was measured with libtpu 0.0.51: ResNet-50 took 1.2 GB for 13,600 lines, DenseNet-121 2.8 GB for
27,900, a transformer 0.5 GB for 2,500.
"""

USUAL = 2.5e9
"""Bytes that compiling a typical model needs; it decides how many are compiled in parallel."""


def free_bytes(root: Path = Path("/")) -> int:
    """Return the free memory of the machine, or of the container if that has less.

    Args:
        root: Where ``/sys`` is found.
    """
    free = int(psutil.virtual_memory().available)
    group = root / "sys/fs/cgroup"
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            # The page cache counts as used there, but is freed when memory is needed.
            free = min(
                free,
                int((group / limit).read_text()) - _used_without_page_cache(group, int((group / used).read_text())),
            )
    return max(0, free)


def _used_without_page_cache(group: Path, used: int) -> int:
    for stat in (group / "memory.stat", group / "memory/memory.stat"):
        with suppress(OSError, ValueError):
            values = dict(line.split() for line in stat.read_text().splitlines())
            return used - int(values.get("inactive_file", 0)) - int(values.get("active_file", 0))
    return used


def needed_bytes(lines: int) -> float:
    """Return about how much memory compiling a step needs.

    Args:
        lines: Lines of the lowered step.
    """
    return _LIBRARIES + _ANY_STEP + _A_LINE * lines


def shortage(lines: int, free: int) -> str:
    """Say that there is not enough memory to compile a step; empty if there is.

    Args:
        lines: Lines of the lowered step.
        free: Free bytes, besides what this process uses already.
    """
    needed = needed_bytes(lines) - _LIBRARIES  # loaded already
    if needed <= free:
        return ""
    return (
        f"Compiling this model needs about {needed / 1e9:.1f} GB of this machine's memory, and {free / 1e9:.1f} GB are "
        "free."
    )
