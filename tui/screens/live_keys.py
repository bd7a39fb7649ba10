"""The keys of the live screen, and what each of them goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from textual.binding import Binding

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
"""The lower panes under the loss; the others stand on the right where there is room for all."""

KEYS: list[BindingType] = [
    Binding("s", "smooth", "smooth", tooltip="Smooth the training curves: off, a little, more, and off again."),
    Binding("l", "log_scale", "log", tooltip="Draw the charts on a logarithmic scale, or on a linear one again."),
    Binding("x", "axis", "axis", tooltip="Draw the charts over steps, epochs or time."),
    Binding("m", "marker", "dots", tooltip="Draw with braille dots, blocks or plain ASCII, as your font allows."),
    Binding("z", "zoom", "zoom", tooltip="Give the pane you are in the whole screen; again or escape goes back."),
    Binding(
        "p",
        "pane",
        "pane",
        tooltip="Go to the next lower pane: epochs, replicas, log, system, and samples if there are any.",
    ),
    Binding("k", "stop", "stop", tooltip="Stop training after the current steps and save what it has (asks first)."),
    Binding("d,q", "app.leave", "detach", tooltip="Leave the console; training goes on without it."),
    Binding("n", "app.new_run", "new", tooltip="Set up another run; this one goes on."),
    Binding("i", "details", "info", tooltip="Show the run's details: notices, versions, phases, files."),
    Binding(
        "c", "classes", show=False, tooltip="After the end: how well each class is told, and the confusion matrix."
    ),
    Binding("h", "host", show=False, tooltip="Of several hosts, show the next one's figures and replicas."),
    Binding("question_mark,f1", "app.help", "help", tooltip="Explain every key and every figure."),
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
