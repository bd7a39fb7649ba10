"""Numbers as a person reads them in plain text: durations, sizes, metrics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.data.input_speed import Speed
    from tpu_console.engine.planning.plan import Plan

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """Write a duration with about three digits, such as ``0.41 s``, ``12.3 s``, ``1m 12s`` or ``2h 05m``."""
    if not math.isfinite(seconds):
        return "–"
    seconds = max(0.0, seconds)
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR:02d}h"


def metric(value: float) -> str:
    """Write a metric with four decimals, or as a power of ten where four decimals would say nothing."""
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.4f}"
    return f"{value:.3e}"


def size(count: int) -> str:
    """Write a number of bytes, such as ``136 kB`` or ``1.2 GB`` (powers of 1000)."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    digits = 0 if units[0] == "B" or value >= 99.95 else 1
    return f"{value:.{digits}f} {units[0]}"


def plural(count: int, noun: str, several: str = "") -> str:
    """Write a count with its noun, such as ``1 step`` or ``1,408 steps``.

    Args:
        count: How many.
        noun: The noun for one.
        several: The noun for several, where it does not just end in an s.
    """
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def shape(sides: tuple[int | None, ...]) -> str:
    """Write a shape, such as ``28×28×1``; an open side is ``?``."""
    return "×".join("?" if side is None else str(side) for side in sides)


def input_speed(speed: Speed) -> str:
    """Say how fast the input pipeline is."""
    later = "" if speed.later is None else f", {speed.later:,.0f} later"
    return f"{speed.first:,.0f} examples/s in the first epoch{later}, as measured here"


def time_ahead(plan: Plan, config: RunConfig) -> str:
    """Say how long a run will take, and how that is known; empty where it is not."""
    if plan.seconds is None or plan.took is None:
        return ""
    about = f"{max(1, round(plan.seconds))} s" if plan.seconds < 59.5 else duration(plan.seconds)
    most = "at most " if config.early_stopping.patience else ""
    if plan.took.batch == config.batch_size:
        return f"{most}about {about}, as a run like it took here on {plan.took.day}"
    return (
        f"{most}very roughly {about}: as many {plan.unit}s a second as with batch {plan.took.batch} on {plan.took.day}"
    )


def waiting_text(waiting: int) -> str:
    """Say that a run's disk is full.

    Args:
        waiting: Events that wait in memory until there is room.
    """
    return f"disk full: {plural(waiting, 'event')} waiting; they are written as soon as there is room"
