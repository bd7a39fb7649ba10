"""The keys of the live screen, and the values that each one cycles through."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..text.keys import bind
from .parts import HELP

if TYPE_CHECKING:
    from textual.binding import BindingType

    from ..charts.raster import Marker

SMOOTHINGS = (0.0, 0.5, 0.8, 0.9, 0.97)
MARKERS: tuple[Marker, ...] = ("braille", "block", "ascii")
FOLLOWED_SHARES = (0.5, 0.2, 0.05, 1.0)
"""Shares of the run that the charts show while they follow it."""

BOTTOM_PANES = ("epochs", "replicas", "log")
SYSTEM, SAMPLES = "system", "samples"
"""Lower panes that come with the first figures of a host and the first samples, behind the others."""
PANES = (*BOTTOM_PANES, SYSTEM, SAMPLES)
FIRST_NUMBER = 3
"""The key that zooms the first lower pane; the keys before it zoom charts."""
LEFT_PANES = ("epochs", SYSTEM)
"""The lower panes under the left charts; the others are on the right if there is room for all."""


STEERING = {"stop", "pause", "go_on", "checkpoint", "epochs", "rate"}
"""Actions on a run that trains."""

CURSOR_KEYS: list[BindingType] = [
    bind("left", "cursor(-1)"),
    bind("right", "cursor(1)"),
    bind("far left", "cursor_far(-1)"),
    bind("far right", "cursor_far(1)"),
    bind("jump", "jump"),
    bind("first", "cursor_end('first')"),
    bind("last", "cursor_end('last')"),
]
CHART_KEYS: list[BindingType] = [
    bind("filter", "filter"),
    bind("smooth", "smooth"),
    bind("axis", "axis"),
    bind("range", "y_range"),
    bind("log scale", "log_scale"),
    bind("follow", "follow"),
    bind("marker", "marker"),
    bind("zoom in", "zoom_x(1)"),
    bind("zoom out", "zoom_x(-1)"),
    bind("earlier", "pan(-1)"),
    bind("later", "pan(1)"),
    bind("whole", "show_all"),
    bind("page up", "page(-1)"),
    bind("page down", "page(1)"),
    bind("chart before", "move_chart(-1)"),
    bind("chart after", "move_chart(1)"),
    *(bind(f"number {place}", f"zoom_chart({place})") for place in range(1, FIRST_NUMBER)),
]
KEYS: list[BindingType] = [
    bind("stop", "stop"),
    bind("pause", "pause"),
    bind("pause", "go_on", "Continue"),
    bind("checkpoint", "checkpoint"),
    bind("epochs", "epochs"),
    bind("rate", "rate"),
    bind("resume", "resume"),
    bind("matrix", "classes"),
    bind("compare", "compare"),
    *CURSOR_KEYS,
    bind("pane", "pane"),
    bind("zoom", "zoom"),
    bind("info", "details"),
    bind("detach", "app.leave"),
    HELP,  # with the keys before it, all that a narrow footer has room for
    bind("again", "again"),
    bind("new", "app.new_run"),
    *CHART_KEYS,
    *(bind(f"number {number}", f"zoom('{name}')") for number, name in enumerate(PANES, FIRST_NUMBER)),
    bind("host", "host", show=False),
    bind("back", "back", show=False),
]


_T = TypeVar("_T")


def after(values: tuple[_T, ...], value: _T) -> _T:
    """Return the value after this one, the first after the last."""
    return values[(values.index(value) + 1) % len(values)]
