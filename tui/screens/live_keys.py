"""The keys of the live screen, and the values that each one cycles through."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from textual.binding import Binding

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


def _hidden(keys: str, action: str, tooltip: str = "", key_display: str | None = None) -> Binding:
    return Binding(keys, action, show=False, tooltip=tooltip, key_display=key_display)


STEERING = {"stop", "pause", "go_on", "checkpoint", "epochs", "rate"}
"""Actions on a run that trains."""

_CURSOR = "Read the curves: move the cursor to the next sample."
_ENDS = "Move the cursor to the first or the last sample that is shown."
_ZOOM_X = "Show a shorter or a longer part of the run."
_PAN = "Show an earlier or a later part of the run."
_PAGE = "Show other charts."
_MOVE = "Move the focused chart to another place."

KEYS: list[BindingType] = [
    Binding("left", "cursor(-1)", "Cursor", key_display="←→", tooltip=_CURSOR),
    _hidden("right", "cursor(1)"),  # explained with the key before, like the next ones
    _hidden("shift+left", "cursor_far(-1)", "Move the cursor by a tenth of what is shown.", key_display="shift+←→"),
    _hidden("shift+right", "cursor_far(1)"),
    _hidden("g", "jump", "Move the cursor to the next ★ or mark; after the last one, to the first."),
    _hidden("home", "cursor_end('first')", _ENDS),
    _hidden("end", "cursor_end('last')", _ENDS),
    Binding("s", "smooth", "Smooth", tooltip="Smooth the training curves more, then off again."),
    Binding("z", "zoom", "Zoom", tooltip="Zoom the focused pane; again or escape to go back."),
    Binding("p", "pane", "Pane", tooltip="Go to the next pane: epochs, replicas, log, system, samples."),
    Binding("k", "stop", "Stop", tooltip="Stop training after this step or epoch, or kill it (asks first)."),
    Binding("space", "pause", "Pause", tooltip="Pause training after the current steps."),
    Binding("space", "go_on", "Continue", tooltip="Continue training after a pause."),
    _hidden("w", "checkpoint", "Save a checkpoint now."),
    _hidden("e", "epochs", "Train more or fewer epochs."),
    _hidden("t", "rate", "Change the learning rate."),
    Binding("u", "resume", "Resume", tooltip="Continue the run from its newest checkpoint."),
    Binding("c", "classes", "Classes", tooltip="Show class scores and the confusion matrix."),
    Binding("r", "again", "Again", tooltip="Set up a new run with the settings of this one."),
    Binding("C", "compare", "Compare", tooltip="Compare the run with the newest other runs of its preset."),
    Binding("i", "details", "Info", tooltip="Show details: settings, notices, versions, phases, files."),
    Binding("d", "app.leave", "Detach", tooltip="Leave the console; training continues."),
    HELP,  # with the keys before it, all that a narrow footer has room for
    Binding("n", "app.new_run", "New", tooltip="Set up another run; this one continues."),
    Binding("slash", "filter", "Filter", key_display="/", tooltip="Show the charts that match a regular expression."),
    _hidden("plus,equals_sign", "zoom_x(1)", _ZOOM_X),
    _hidden("minus", "zoom_x(-1)", _ZOOM_X),
    _hidden("comma", "pan(-1)", _PAN),
    _hidden("full_stop", "pan(1)", _PAN),
    _hidden("0", "show_all", "Show the whole run."),
    Binding("f", "follow", "Follow", tooltip="Follow the newest 50, 20 or 5% of the run, or show all of it."),
    Binding("x", "axis", "Axis", tooltip="Plot over steps, epochs or time."),
    Binding("y", "y_range", "Range", tooltip="Fit the values that matter, all values, or keep the vertical range."),
    Binding("l", "log_scale", "Log", tooltip="Switch the charts between linear and logarithmic scale."),
    Binding("m", "marker", "Dots", tooltip="Draw curves with braille dots, blocks or ASCII."),
    _hidden("pageup", "page(-1)", _PAGE),
    _hidden("pagedown", "page(1)", _PAGE),
    _hidden("less_than_sign", "move_chart(-1)", _MOVE),
    _hidden("greater_than_sign", "move_chart(1)", _MOVE),
    _hidden("h", "host", "Show the next host."),
    *(_hidden(str(place), f"zoom_chart({place})", f"Zoom chart {place} of the page, or go back.") for place in (1, 2)),
    *(
        _hidden(str(number), f"zoom('{name}')", f"Zoom the {name} pane, or go back.")
        for number, name in enumerate(PANES, FIRST_NUMBER)
    ),
    _hidden("escape", "back", "Leave the cursor, the part of the run, the zoomed pane, and then this screen."),
]


_T = TypeVar("_T")


def after(values: tuple[_T, ...], value: _T) -> _T:
    """Return the value after this one, the first after the last."""
    return values[(values.index(value) + 1) % len(values)]
