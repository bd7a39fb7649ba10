"""How values become rows and columns, with round numbers in the middle of a cell, and the range that is shown."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal

import numpy as np
from msgspec import Struct

from .curve import Axis, Extent, FloatArray, IndexArray

_ROUND = (1.0, 2.0, 5.0)
# Cells of a decade that have 2 and 5 within 0.05 of a cell's middle.
_FINE_DECADES = (10, 20, 30, 40)
_TWO_AND_FIVE = (math.log10(2.0), math.log10(5.0))
_WANTED_TICKS = 5
_COST_OF_A_TICK = 0.03  # a missing one may make the curves shorter by this share
_LABEL_GAP = 3
_ROUNDING = 1e-9
_LONGEST = 99_999.5  # the first value that is written as a power of ten
_THOUSANDS = ("", "k", "M", "G", "T")
_TIME_UNITS = ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (3 * 86400.0, 3600.0, "h"), (math.inf, 86400.0, "d"))

# At either end, no more than this share of the samples lies outside, or one of a few.
_MOST_OUTSIDE = 0.15
# How far the whiskers of a box plot reach, in box lengths: Tukey calls what lies beyond "far out".
_REACH = 3.0
# Samples are left outside only if they would make the range more than this many times larger.
_STRETCH = 2.0
_FEW = 1000


class Tick(Struct, frozen=True):
    """A labelled cell of an axis."""

    cell: int  # its number
    value: float  # what lies in its middle, in the axis's unit
    label: str  # what to write there


class Scale(Struct, frozen=True):
    """Cells side by side, such that every `per_step`-th one has a multiple of `step` in its middle."""

    step: float  # between two ticks
    per_step: int  # cells from one tick to the next
    first: int  # the middle of cell 0, as a multiple of `step / per_step`
    cells: int  # number of cells
    high: float  # the highest value that must be seen
    is_log: bool = False  # whether values are decimal logarithms

    def dots(self, values: FloatArray, fineness: int) -> IndexArray:
        """Return the dot that is nearest to each value, of `fineness` dots in a cell; an outer one for those beyond.

        Half-way between two dots it is the upper one, but for the highest value the lower one: what lies on 0 or on 1,
        in the middle of a cell, is drawn neither below 0 nor above 1.
        """
        position = fineness * (values / self.step * self.per_step - self.first + 0.5)
        dots = np.where(values >= self.high, np.ceil(position - 1.0 - _ROUNDING), np.floor(position + _ROUNDING))
        return np.clip(dots, 0, fineness * self.cells - 1).astype(np.int64)

    def cell(self, value: float) -> int:
        """Return the cell of a value."""
        return int(self.dots(np.array([value]), 1)[0])

    def value(self, cell: float) -> float:
        """Return what lies in the middle of a cell."""
        return (self.first + cell) * self.step / self.per_step

    @property
    def borders(self) -> FloatArray:
        """What lies between a cell and the next one, shape `(cells - 1,)`; half-way as in `dots`."""
        borders = (self.first + np.arange(1, self.cells) - 0.5 - _ROUNDING) * self.step / self.per_step
        borders[self.cell(self.high) :] = np.inf
        return borders

    @property
    def seen(self) -> Extent:
        """What lies in the middle of the first cell, and the highest value that must be seen."""
        return self.value(0), self.high

    @property
    def ends(self) -> Extent:
        """What lies at the outer edges of the first and the last cell."""
        return self.value(-0.5), self.value(self.cells - 0.5)

    @property
    def round_values(self) -> list[tuple[int, float]]:
        """The cells with a round number in the middle, and these numbers."""
        numbers = range(-(-self.first // self.per_step), (self.first + self.cells - 1) // self.per_step + 1)
        found = [(number * self.per_step - self.first, number * self.step) for number in numbers]
        if self.is_log and self.step == 1.0 and self.per_step in _FINE_DECADES:
            decades = range(self.first // self.per_step, (self.first + self.cells) // self.per_step + 1)
            between = [decade + part for decade in decades for part in _TWO_AND_FIVE]
            found += [(round(value * self.per_step) - self.first, value) for value in between]
        return sorted((cell, value) for cell, value in found if 0 <= cell < self.cells)


def few(values: FloatArray) -> FloatArray:
    """Return the finite ones of about a thousand values, evenly spaced."""
    part = values[:: max(1, len(values) // _FEW)]
    return part[np.isfinite(part)]


def full_range(parts: Sequence[FloatArray]) -> Extent | None:
    """Return the lowest and the highest value, or None if there are none."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return None
    return float(min(part.min() for part in filled)), float(max(part.max() for part in filled))


def robust_range(
    samples: Sequence[FloatArray], extremes: Sequence[FloatArray], kept: Sequence[FloatArray]
) -> Extent | None:
    """Return a range that a few spikes do not change.

    Of each curve, it has all but the outliers of some samples, evenly spaced, and the extremes unless that would
    flatten the rest; what is kept, the newest and the best, is always seen.
    """
    usual = [end for part in samples if len(part) for end in _whiskers(part)]
    inner = full_range([np.array(usual), *kept])
    outer = full_range([*extremes, *kept])
    if inner is None or outer is None:
        return outer
    low, high = inner
    reach = (_STRETCH - 1.0) * (high - low)
    low = outer[0] if low - outer[0] <= reach else low
    high = outer[1] if outer[1] - high <= reach else high
    return low, high


def _whiskers(part: FloatArray) -> Extent:
    """Return the ends of a box plot's whiskers; a steep start hides at most a seventh of the samples."""
    out, ordered = max(int(_MOST_OUTSIDE * len(part)), 1), np.sort(part)
    lower, upper = (float(end) for end in np.percentile(ordered, (25, 75)))
    reach = _REACH * (upper - lower)
    if reach == 0.0:
        return float(np.percentile(part, 1)), float(np.percentile(part, 99))
    inside = ordered[(ordered >= min(ordered[out], lower - reach)) & (ordered <= max(ordered[-1 - out], upper + reach))]
    return float(inside[0]), float(inside[-1])


def y_scale(low: float, high: float, rows: int, *, is_log: bool = False, below: int = 0, above: int = 0) -> Scale:
    """Return the scale of a vertical axis from a value to a higher one; `below` and `above` rows stay free.

    A logarithmic one, whose values are decimal logarithms, has less than two ticks if they lie close together.
    """
    room, found = rows - below - above, []
    for step, per_step in _log_sizes(low, high, room) if is_log else _sizes(low, high, room):
        lowest, highest = _cell_number(low, step, per_step), _cell_number(high, step, per_step)
        first = lowest - (room - 1 - highest + lowest) // 2
        if not is_log and high <= 1.0:
            first = min(first, max(_cell_number(1.0, step, per_step), highest) - room + 1)
        if not is_log and low >= 0.0:
            first = max(first, 0)
        found.append(Scale(step, per_step, first - below, rows, high, is_log))
    least = 3 if rows >= 9 else 2 if rows >= 3 else 1
    return min(found, key=_cost(least, rows // 3 + 2))


def x_scale(left: float, right: float, columns: int, axis: Axis) -> Scale:
    """Return the scale of a horizontal axis, whose ends are in steps, epochs or seconds."""
    if right - left <= max(1e-12 * abs(left), 1e-300):  # one place
        right = left + max(1.0, 1e-9 * abs(left))
    unit = _time_unit(right)[0] if axis is Axis.TIME else 1.0
    least_step = 1.0 if axis is Axis.STEP and right - left >= 1.0 else 0.0
    found = [
        Scale(step, per_step, _cell_number(left, step, per_step), columns, right)
        for step, per_step in _sizes(left, right, columns, unit)
        if step >= least_step
    ]
    found.sort(key=_cost(3 if columns >= 24 else 2, columns))
    for scale in found:  # the first whose labels fit between its ticks
        if scale.per_step >= max((len(tick.label) for tick in x_ticks(scale, axis)), default=0) + _LABEL_GAP:
            return scale
    return found[0]


def _cost(least: int, most: int) -> Callable[[Scale], tuple[int, float]]:
    """Return a key that is lowest for the scale with the tallest curves, preferably with about five ticks."""

    def cost(scale: Scale) -> tuple[int, float]:
        ticks = len(scale.round_values)
        missing = max(0, min(_WANTED_TICKS, most) - ticks)
        return max(least - ticks, ticks - most, 0), scale.step / scale.per_step * (1.0 + _COST_OF_A_TICK * missing)

    return cost


def _sizes(low: float, high: float, cells: int, unit: float = 1.0) -> Iterator[tuple[float, int]]:
    """Yield steps of 1, 2 or 5 times a power of ten, each with about the most cells in which the values fit."""
    power = math.floor(math.log10((high - low) / unit / cells))
    for exponent in range(power, power + math.ceil(math.log10(cells)) + 2):
        for number in _ROUND:
            step = number * 10.0**exponent * unit
            most = _most_cells(low, high, cells, step)
            yield from ((step, per_step) for per_step in range(most, max(most - 3, 0), -1))


def _log_sizes(low: float, high: float, cells: int) -> Iterator[tuple[float, int]]:
    for step in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0):
        if per_step := _most_cells(low, high, cells, step):
            yield step, per_step
    yield from ((1.0, per_step) for per_step in _FINE_DECADES if _is_room(low, high, cells, 1.0, per_step))


def _most_cells(low: float, high: float, cells: int, step: float) -> int:
    """Return the most cells per step with which the values fit, 0 if not even one cell per step does."""
    most = int(cells * step / (high - low)) + 1
    return next((per_step for per_step in range(most, 0, -1) if _is_room(low, high, cells, step, per_step)), 0)


def _is_room(low: float, high: float, cells: int, step: float, per_step: int) -> bool:
    return _cell_number(high, step, per_step) - _cell_number(low, step, per_step) < cells


def _cell_number(value: float, step: float, per_step: int) -> int:
    return math.floor(value / step * per_step + 0.5 + _ROUNDING)


def y_ticks(scale: Scale) -> list[Tick]:
    """Return the ticks of a vertical axis; none above 1 if nothing is, such as an accuracy of 1.2."""
    found = scale.round_values
    if scale.is_log:
        return [Tick(cell, value, _power_of_ten(value)) for cell, value in found]
    if scale.high <= 1.0 and scale.first >= 0:
        found = [(cell, value) for cell, value in found if value <= 1.0 + _ROUNDING]
    labels = label_ticks([value for _, value in found])
    return [Tick(cell, value, label) for (cell, value), label in zip(found, labels, strict=True)]


def _power_of_ten(logarithm: float) -> str:
    exponent = math.floor(logarithm + _ROUNDING)
    number = round(10.0 ** (logarithm - exponent))
    return f"{number * 10.0**exponent:g}" if -4 <= exponent <= 3 else f"{number}e{exponent}"


def x_ticks(scale: Scale, axis: Axis) -> list[Tick]:
    """Return the ticks of a horizontal axis."""
    unit, suffix = _time_unit(scale.high) if axis is Axis.TIME else (1.0, "")
    labels = label_ticks([value / unit for _, value in scale.round_values])
    return [Tick(cell, value, label + suffix) for (cell, value), label in zip(scale.round_values, labels, strict=True)]


def label_ticks(values: Sequence[float]) -> list[str]:
    """Labels for evenly spaced `values`: one unit (k, M, G or a power of ten), no more digits than needed."""
    largest = max((abs(v) for v in values), default=0.0)
    if largest == 0.0:
        return ["0"] * len(values)
    step = min((b - a for a, b in itertools.pairwise(values)), default=largest)
    exponent = math.floor(math.log10(largest) + _ROUNDING)
    thousands = max(exponent, 0) // 3
    is_plain = exponent >= -3 and thousands < len(_THOUSANDS)
    unit, suffix = (1000.0**thousands, _THOUSANDS[thousands]) if is_plain else (10.0**exponent, f"e{exponent}")
    decimals = max(0, -int(Decimal(f"{step / unit:.2g}").normalize().as_tuple().exponent))
    return ["0" if v == 0.0 else f"{v / unit:.{decimals}f}{suffix}" for v in values]


def format_value(value: float | None, digits: int = 4) -> str:
    """A metric's value in `digits` significant digits, always the same width for values of one size; None is n/a."""
    if value is None:
        return "n/a"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)
    if value == 0.0:
        return "0"
    if 1e-3 <= abs(value) < 10.0**digits:
        return f"{value:#.{digits}g}".rstrip(".")
    if 1.0 <= abs(value) < _LONGEST:
        return f"{value:.0f}"
    mantissa, _, exponent = f"{value:.{max(digits - 2, 0)}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _time_unit(longest_s: float) -> tuple[float, str]:
    """Return the unit in which times up to the longest one are written, in seconds, and its abbreviation."""
    return next((unit, suffix) for limit_s, unit, suffix in _TIME_UNITS if longest_s < limit_s)
