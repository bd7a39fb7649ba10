"""Short labels and values."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MINUTE_S = 60.0
_HOUR_S = 3600.0
_DAY_S = 86400.0


def label_ticks(values: Sequence[float]) -> list[str]:
    """Labels for evenly spaced `values`: one unit (k, M, G or a power of ten), no more digits than needed."""
    largest = max((abs(v) for v in values), default=0.0)
    if largest == 0.0:
        return ["0"] * len(values)
    step = min((b - a for a, b in itertools.pairwise(values)), default=largest)
    exponent, suffix = _unit(largest)
    unit = 10.0**exponent
    decimals = _decimals(step / unit)
    return ["0" if v == 0.0 else f"{v / unit:.{decimals}f}{suffix}" for v in values]


def format_value(value: float, digits: int = 4) -> str:
    """A metric's value in `digits` significant digits, always the same width for values of one size."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)
    if value == 0.0:
        return "0"
    if 1e-3 <= abs(value) < 10.0**digits:
        return f"{value:#.{digits}g}".rstrip(".")
    mantissa, _, exponent = f"{value:.{max(digits - 2, 0)}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _unit(largest: float) -> tuple[int, str]:
    """Power of ten to divide by and how to write it, for labels up to `largest`."""
    exponent = math.floor(math.log10(largest) + 1e-9)
    if exponent < -3 or exponent >= 15:
        return exponent, f"e{exponent}"
    for power, suffix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if exponent >= power:
            return power, suffix
    return 0, ""


def _decimals(step: float) -> int:
    """Return the decimals that distinguish labels `step` apart."""
    least = max(0, -math.floor(math.log10(step) + 1e-9))
    return next((n for n in range(least, least + 2) if math.isclose(round(step, n), step, rel_tol=1e-6)), least + 2)


def time_unit(longest_s: float) -> tuple[float, str]:
    """Return the unit in which times up to the longest one are written, in seconds, and its abbreviation."""
    if longest_s < 2 * _MINUTE_S:
        return 1.0, "s"
    if longest_s < 2 * _HOUR_S:
        return _MINUTE_S, "min"
    if longest_s < 3 * _DAY_S:
        return _HOUR_S, "h"
    return _DAY_S, "d"
