"""Formats numbers, sizes, durations and lists as text, for screens and plain lines."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from tpu_console.engine.storage import files

NONE = "–"  # shown in place of a missing figure

size, gib = files.size_text, files.gib


def duration(seconds: float | None) -> str:
    """Write a duration with about three digits: ``41 µs``, ``41 ms``, ``0.41 s``, ``12.3 s``, ``1m 12s``."""
    if seconds is None or not math.isfinite(seconds):
        return NONE
    seconds = max(0.0, seconds)
    if 5e-10 <= seconds < 5e-4:
        return f"{seconds * 1e6:.3g} µs"
    if 5e-4 <= seconds < 0.0995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, secs = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02d}h" if days else f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {secs:02d}s"


def local_time(at: float) -> datetime:
    """Return a Unix time as local time."""
    return datetime.fromtimestamp(at, UTC).astimezone()


def whole_duration(seconds: float) -> str:
    """Write a duration without parts of a second, such as ``42 s`` or ``1m 12s``."""
    return f"{seconds:.0f} s" if seconds < 59.5 else duration(seconds)


def clock(seconds: float) -> str:
    """Write a duration as a clock does: ``0:42``, ``1:02:03``, ``2d 03:04``."""
    minutes, secs = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"


def metric(value: float | None) -> str:
    """Write a metric in about six characters, so that a column of them lines up; empty for None."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    size = abs(value)
    if size and size < 5e-4:
        return f"{value:.1e}".replace("e-0", "e-")
    for limit, decimals in ((10, 4), (100, 3), (1000, 2), (1e4, 1), (1e6, 0)):
        if size < limit:
            return f"{value:.{decimals}f}"
    return f"{value:.1e}".replace("e+0", "e")


def plural(count: int, noun: str, several: str = "") -> str:
    """Write a count with its noun, such as ``1 step`` or ``1,408 steps``."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """Write a list, such as ``a, b and 3 more``."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def shape(sides: tuple[int | None, ...]) -> str:
    """Write a shape, such as ``28×28×1``; an open side is ``?``."""
    return "×".join("?" if side is None else str(side) for side in sides)


def waiting_text(waiting: int) -> str:
    """Say that a run's disk is full, and how many events wait in memory."""
    return f"disk full: {plural(waiting, 'event')} waiting for space"


def learning_rate(value: float | None) -> str:
    """Write a learning rate, such as ``0.001`` or ``2.5e-4``; empty for None."""
    if value is None:
        return ""
    return f"{value:.3g}" if value >= 1e-3 or not value else f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")


def percent(value: float | None) -> str:
    """Write a percentage, such as ``38%``; empty for None."""
    return "" if value is None else f"{value:.0f}%"


def count(value: float | None) -> str:
    """Write a whole number with a comma between thousands; empty for None."""
    return "" if value is None else f"{value:,.0f}"


def milliseconds(value: float | None) -> str:
    """Write milliseconds with three digits; empty for None."""
    if value is None:
        return ""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def memory(used: int | None, limit: int | None) -> str:
    """Write the memory in use and, if it is known, the limit: ``3.1/15.7 GiB``."""
    largest = max(used or 0, limit or 0)
    power, unit = (2, "MiB") if largest < 1 << 30 else (3, "GiB")
    parts = [f"{value / 1024**power:.1f}" for value in (used, limit) if value is not None]
    return f"{'/'.join(parts)} {unit}" if parts else ""


def bar_cells(fraction: float, width: int) -> int:
    """Return how many cells of a bar are full: all of them only at the end."""
    return width if fraction >= 1 else min(max(width - 1, 0), int(max(0.0, fraction) * width))


def flop(count: float) -> str:
    """Write a number of floating-point operations, such as ``1.44 TFLOP``."""
    power = 0
    while count >= 999.5 and power < 5:
        count, power = count / 1000, power + 1
    return f"{count:.3g} {' kMGTP'[power].strip()}FLOP"
