"""The crosshair that all charts share, and what the curves are at its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .curve import sample_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .curve import Axis, Curve, FloatArray


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


def moved(cursor: Cursor | None, curves: Sequence[Curve], axis: Axis, direction: int) -> Cursor | None:
    """Return the cursor at the next sample of any curve, right of it or left, or at the last one; None without samples.

    Without a cursor, it is put on the newest sample.
    """
    columns = _columns(curves, axis)
    if not columns:
        return None
    if cursor is None:
        return Cursor(max(float(x[-1]) for x in columns))
    if direction > 0:
        nearest = min(
            (float(x[at]) for x in columns if (at := int(np.searchsorted(x, cursor.x, "right"))) < len(x)),
            default=cursor.x,
        )
    else:
        nearest = max(
            (float(x[at - 1]) for x in columns if (at := int(np.searchsorted(x, cursor.x))) > 0), default=cursor.x
        )
    return Cursor(nearest)


def snapped(x: float, curves: Sequence[Curve], axis: Axis) -> float:
    """Return the position of the sample that is nearest to `x`."""
    near = [float(end) for along in _columns(curves, axis) for end in along[sample_at(along, x) :][:2]]
    return min(near, key=lambda end: abs(end - x), default=x)


def cursor_on_axis(cursor: Cursor | None, curves: Sequence[Curve], old: Axis, new: Axis) -> Cursor | None:
    """Return the cursor at the same sample on another horizontal axis."""
    if cursor is None or (curve := _newest_at(curves, old, cursor.x)) is None:
        return None
    return Cursor(float(curve.along(new)[sample_at(curve.along(old), cursor.x)]))


def _columns(curves: Sequence[Curve], axis: Axis) -> list[FloatArray]:
    """Return the positions of the samples, each column once: most curves share one."""
    return list({id(x): x for curve in curves if len(x := curve.along(axis))}.values())


def _newest_at(curves: Sequence[Curve], axis: Axis, x: float) -> Curve | None:
    """Return the curve with the newest sample at or before `x`, or else with the first one."""

    def position(curve: Curve) -> tuple[bool, float]:
        along = curve.along(axis)
        found = float(along[sample_at(along, x)])
        return (True, found) if found <= x else (False, -found)

    return max((curve for curve in curves if len(curve.value)), key=position, default=None)


def read_at(curves: Sequence[Curve], axis: Axis, x: float) -> Reading | None:
    """Return the newest sample of every curve at or before `x`, or None if there are no samples."""
    ruler = _newest_at(curves, axis, x)
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
