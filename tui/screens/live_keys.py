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
CHARTS = ("loss", "metrics")
BOTTOM_PANES = ("epochs", "replicas", "log")
SYSTEM, SAMPLES = "system", "samples"
"""Lower panes that come with the first figures of a host and the first samples, behind the others."""
PANES = (*CHARTS, *BOTTOM_PANES, SYSTEM, SAMPLES)
LEFT_PANES = ("epochs", SYSTEM)
"""The lower panes under the loss chart; the others are on the right if there is room for all."""

KEYS: list[BindingType] = [
    Binding("s", "smooth", "Smooth", tooltip="Smooth the training curves more, then off again."),
    Binding("l", "log_scale", "Log", tooltip="Switch the charts between linear and logarithmic scale."),
    Binding("x", "axis", "Axis", tooltip="Plot over steps, epochs or time."),
    Binding("m", "marker", "Dots", tooltip="Draw curves with braille dots, blocks or ASCII."),
    Binding("z", "zoom", "Zoom", tooltip="Zoom the focused pane; again or escape to go back."),
    Binding(
        "p",
        "pane",
        "Pane",
        tooltip="Go to the next pane: epochs, replicas, log, system, samples.",
    ),
    Binding("k", "stop", "Stop", tooltip="Stop training after the current steps and save the model (asks first)."),
    Binding("d", "app.leave", "Detach", tooltip="Leave the console; training continues."),
    Binding("n", "app.new_run", "New", tooltip="Set up another run; this one continues."),
    Binding("i", "details", "Info", tooltip="Show details: notices, versions, phases, files."),
    Binding("c", "classes", show=False, tooltip="Show class scores and the confusion matrix (after the run)."),
    Binding("h", "host", show=False, tooltip="Show the next host."),
    HELP,
    *(
        Binding(str(number), f"zoom('{name}')", show=False, tooltip=f"Zoom the {name} pane, or go back.")
        for number, name in enumerate(PANES, 1)
    ),
    Binding("escape", "unzoom", show=False, tooltip="Leave the zoomed pane."),
]


_T = TypeVar("_T")


def after(values: tuple[_T, ...], value: _T) -> _T:
    """Return the value after this one, the first after the last."""
    return values[(values.index(value) + 1) % len(values)]
