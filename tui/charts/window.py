"""The part of the horizontal axis that charts show, and how zooming and panning change it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from .curve import Axis, Curve, on_axis

if TYPE_CHECKING:
    from collections.abc import Sequence


Extent: TypeAlias = tuple[float, float]

# A smaller share of the run is never shown: its samples would have the same position.
_SMALLEST_SHARE = 1e-7


class Mode(enum.Enum):
    """How a window moves while a run grows."""

    ALL = "all"
    FOLLOW = "follow"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Window:
    """What charts show of the horizontal axis, in the axis's unit."""

    # `ALL` shows everything, `FOLLOW` the newest `right - left` units, `FIXED` exactly `left` to `right`.
    mode: Mode = Mode.ALL
    left: float = 0.0  # left end; not used by `ALL`
    right: float = 0.0  # right end; not used by `ALL`


def resolved(window: Window, extent: Extent) -> Extent:
    """Return the ends of the part that is shown of curves with the ends `extent`."""
    left, right = extent
    if window.mode is Mode.FOLLOW:
        return max(left, right - (window.right - window.left)), right
    return extent if window.mode is Mode.ALL else (window.left, window.right)


def zoomed(window: Window, extent: Extent, factor: float, at: float | None = None) -> Window:
    """Return a window that shows `1 / factor` of what this one shows.

    `at` stays where it is, such as the mouse pointer. Without it, a window that shows the newest samples keeps
    following them, and any other one keeps its middle.
    """
    left, right = resolved(window, extent)
    smallest = _SMALLEST_SHARE * (extent[1] - extent[0])
    span = max((right - left) / factor, smallest)
    if span >= extent[1] - extent[0]:
        return Window()
    if at is None:
        if window.mode is not Mode.FIXED:
            return Window(Mode.FOLLOW, extent[1] - span, extent[1])
        at = (left + right) / 2
    share = (at - left) / (right - left) if right > left else 0.5
    begin = at - min(max(share, 0.0), 1.0) * span
    return _inside(Window(Mode.FIXED, begin, begin + span), extent)


def panned(window: Window, extent: Extent, share: float) -> Window:
    """Return a window that is moved right by `share` of its width, or left if that is negative.

    A window that is moved to the right end follows the newest samples; one that shows everything stays.
    """
    if window.mode is Mode.ALL:
        return window
    left, right = resolved(window, extent)
    distance = share * (right - left)
    moved = _inside(Window(Mode.FIXED, left + distance, right + distance), extent)
    return replace(moved, mode=Mode.FOLLOW) if share > 0 and moved.right >= extent[1] else moved


def following(extent: Extent, share: float) -> Window:
    """Return a window that follows the newest share of the run so far, such as 0.1 for 10%; 1 shows everything."""
    span = share * (extent[1] - extent[0])
    return Window(Mode.FOLLOW, extent[1] - span, extent[1]) if share < 1.0 and span > 0.0 else Window()


def window_on_axis(window: Window, curves: Sequence[Curve], old: Axis, new: Axis) -> Window:
    """Return the window that shows the same samples on another horizontal axis."""
    extent = extent_of(curves, old)
    if window.mode is Mode.ALL or extent is None:
        return Window()
    left, right = (on_axis(x, curves, old, new) for x in resolved(window, extent))
    return Window(window.mode, left, right) if right > left else Window()


def extent_of(curves: Sequence[Curve], axis: Axis) -> Extent | None:
    """Return the first and the last position of any sample, or None without samples."""
    positions = [curve.along(axis) for curve in curves if len(curve.value)]
    if not positions:
        return None
    return float(min(x[0] for x in positions)), float(max(x[-1] for x in positions))


def _inside(window: Window, extent: Extent) -> Window:
    """Move a window that reaches beyond an end back inside."""
    span = window.right - window.left
    left = max(extent[0], min(window.left, extent[1] - span))
    return Window(window.mode, left, left + span)
