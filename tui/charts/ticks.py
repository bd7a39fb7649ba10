"""Round tick positions and short labels."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .curve import Axis

if TYPE_CHECKING:
    from collections.abc import Sequence

_MINUTE_S = 60.0
_HOUR_S = 3600.0
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled place on an axis."""

    position: float  # where, in the axis's own unit
    label: str  # what to write there


_ROUND = (1.0, 2.0, 5.0)
# Where round numbers are too far apart: no two neighbours differ by more than a third.
_LESS_ROUND = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
_LEAST_TICKS = 3


def round_ticks(low: float, high: float, most: int, steps: Sequence[float] = _ROUND) -> list[float]:
    """At most `most` evenly spaced round numbers (one of `steps` times a power of ten apart) in `[low, high]`."""
    if most < 1 or not high > low:
        return []
    power = math.floor(math.log10((high - low) / most))
    for step in (m * 10.0**e for e in range(power, power + 3) for m in steps):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            return [i * step for i in range(first, last + 1)]
    return []


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


def value_ticks(low: float, high: float, most: int, *, log_scale: bool) -> list[Tick]:
    """Ticks of the vertical axis, whose ends may be decimal logarithms: three or more if `most` allows."""
    if log_scale:
        return _log_ticks(low, high, most)
    values = _enough_ticks(low, high, most)
    return [Tick(v, label) for v, label in zip(values, label_ticks(values), strict=True)]


def _enough_ticks(low: float, high: float, most: int) -> list[float]:
    values = round_ticks(low, high, most)
    return values if len(values) >= _LEAST_TICKS else round_ticks(low, high, most, _LESS_ROUND)


def axis_ticks(low: float, high: float, most: int, axis: Axis) -> list[Tick]:
    """Ticks of the horizontal axis; `low` and `high` in steps, epochs or seconds."""
    if axis is not Axis.TIME:
        values = round_ticks(low, high, most)
        if axis is Axis.STEP:
            values = [v for v in values if v.is_integer()]
        return [Tick(v, label) for v, label in zip(values, label_ticks(values), strict=True)]
    unit_s, suffix = _time_unit(high)
    values = round_ticks(low / unit_s, high / unit_s, most)
    labels = label_ticks(values)
    return [Tick(v * unit_s, label + suffix) for v, label in zip(values, labels, strict=True)]


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


def _time_unit(longest_s: float) -> tuple[float, str]:
    if longest_s < 2 * _MINUTE_S:
        return 1.0, "s"
    if longest_s < 2 * _HOUR_S:
        return _MINUTE_S, "min"
    if longest_s < 3 * _DAY_S:
        return _HOUR_S, "h"
    return _DAY_S, "d"


def _log_ticks(low: float, high: float, most: int) -> list[Tick]:
    """Powers of ten; with fewer than three of them in sight 1, 2 and 5; on less, round numbers."""
    decades = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    if len(decades) >= _LEAST_TICKS:
        stride = math.ceil(len(decades) / max(most, 1))
        if len(decades) // stride >= _LEAST_TICKS or most < _LEAST_TICKS:
            chosen = [*decades[::stride]]
        else:
            chosen = [decades[0], (decades[0] + decades[-1]) // 2, decades[-1]]
        return [Tick(float(e), _power_label(e)) for e in chosen]
    exponents = range(math.floor(low), math.ceil(high) + 1)
    fine = [[m * 10.0**e for e in exponents for m in steps] for steps in ((1.0, 3.0), _ROUND)]
    found = [[v for v in values if low <= math.log10(v) <= high] for values in fine]
    found.append([v for v in _enough_ticks(10.0**low, 10.0**high, most) if v > 0.0])
    values = next((values for values in found if _LEAST_TICKS <= len(values) <= most), found[-1])
    return [Tick(math.log10(v), label) for v, label in zip(values, label_ticks(values), strict=True)]


def _power_label(exponent: int) -> str:
    return f"{10.0**exponent:g}" if -3 <= exponent <= 3 else f"1e{exponent}"
