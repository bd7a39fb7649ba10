"""The crosshair that all charts share, and what the curves are at its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .curve import densest, sample_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .curve import Axis, Curve


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place on the horizontal axis."""

    x: float  # in the axis's unit


@dataclass(frozen=True, slots=True)
class ReadValue:
    """The value of one curve at a place."""

    name: str  # the curve's name, for instance `val_loss`
    value: float | None  # its newest sample there, NaN included; None before the first one
    is_validation: bool  # whether it was measured on held-out data
    running: bool  # whether it is the mean of the epoch so far


@dataclass(frozen=True, slots=True)
class Reading:
    """All curves at one place."""

    step: float  # steps done there
    epoch: float  # epochs done there, with the fraction of the current one
    elapsed_s: float  # seconds since training began
    values: tuple[ReadValue, ...]  # one per curve


def moved(
    cursor: Cursor | None, curves: Sequence[Curve], axis: Axis, count: int, *, least: float = 0.0
) -> Cursor | None:
    """Return the cursor `count` samples further right, or left if that is negative; None if there are no samples.

    The curve with the most samples decides. Without a cursor, it is put on the newest sample. It moves at least as far
    as `least`, such as the width of one cell, so that every key press can be seen.
    """
    curve = densest(curves)
    if curve is None:
        return None
    x = curve.along(axis)
    if cursor is None:
        return Cursor(float(x[-1]))
    here = sample_at(x, cursor.x)
    there = here + count
    if least > 0.0 and count:
        far = float(x[here]) + np.sign(count) * least
        there = max(there, int(np.searchsorted(x, far))) if count > 0 else min(there, sample_at(x, far))
    return Cursor(float(x[min(max(there, 0), len(x) - 1)]))


def snapped(x: float, curves: Sequence[Curve], axis: Axis) -> float:
    """Return the position of the sample that is nearest to `x`, of the curve with the most samples."""
    curve = densest(curves)
    if curve is None:
        return x
    positions = curve.along(axis)
    before = sample_at(positions, x)
    near = positions[before : before + 2]
    return float(near[np.abs(near - x).argmin()])


def cursor_on_axis(cursor: Cursor | None, curves: Sequence[Curve], old: Axis, new: Axis) -> Cursor | None:
    """Return the cursor at the same sample on another horizontal axis."""
    curve = densest(curves)
    if cursor is None or curve is None:
        return None
    return Cursor(float(curve.along(new)[sample_at(curve.along(old), cursor.x)]))


def read_at(curves: Sequence[Curve], axis: Axis, x: float) -> Reading | None:
    """Return the newest sample of every curve at or before `x`, or None if there are no samples."""
    ruler = densest(curves)
    if ruler is None:
        return None
    here = sample_at(ruler.along(axis), x)
    values = []
    for curve in curves:
        positions = curve.along(axis)
        is_there = len(positions) and positions[0] <= x
        value = float(curve.value[sample_at(positions, x)]) if is_there else None
        values.append(ReadValue(curve.name, value, curve.is_validation, curve.running))
    return Reading(float(ruler.step[here]), float(ruler.epoch[here]), float(ruler.elapsed_s[here]), tuple(values))
