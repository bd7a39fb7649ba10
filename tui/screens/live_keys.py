"""The keys of the live screen, and the values that each one cycles through."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..text.keys import bind
from .live_panes import PANES
from .parts import HELP

if TYPE_CHECKING:
    from textual.binding import BindingType

    from ..charts.raster import Marker

SMOOTHINGS = (0.0, 0.5, 0.8, 0.9, 0.97)
MARKERS: tuple[Marker, ...] = ("braille", "block", "ascii")
FOLLOWED_SHARES = (0.5, 0.2, 0.05, 1.0)
"""Shares of the run that the charts show while they follow it."""

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
    *(bind(f"number {place}", f"zoom_chart({place})") for place in (1, 2)),
]
KEYS: list[BindingType] = [
    bind("stop", "steer('stop')"),
    bind("pause", "steer('pause')"),
    bind("pause", "steer('go_on')", "Continue"),
    bind("checkpoint", "steer('checkpoint')"),
    bind("epochs", "steer('epochs')"),
    bind("rate", "steer('rate')"),
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
    *(bind(f"number {pane.key}", f"zoom('{pane.name}')") for pane in PANES),
    bind("host", "host", show=False),
    bind("back", "back", show=False),
]


_T = TypeVar("_T")


def after(values: tuple[_T, ...], value: _T) -> _T:
    """Return the value after this one, the first after the last."""
    return values[(values.index(value) + 1) % len(values)]
