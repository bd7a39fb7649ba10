"""Explains every key and every figure, for users who are new to TPUs."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from textual.content import Content

from .dialogs import TextDialog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from textual.binding import Binding

    from .live_panes import LivePane

_FIGURES = (
    ("epoch", "One pass over the training data, or the configured number of steps."),
    ("step", "One weight update from one global batch."),
    ("replica", "A copy of the model on one device (a TPU core, a GPU). All replicas train together."),
    ("global batch", "Examples per step: the batch per replica times the number of replicas."),
    ("loss", "What training minimizes. It falls quickly at first, then slowly."),
    ("accuracy", "The share of examples classified correctly; 1.0 is all of them."),
    (
        "val_…",
        "The same metric on validation data. If it gets worse while training improves, the model is overfitting.",
    ),
    ("ms/step", "Milliseconds per step, without compilation and validation."),
    ("examples/s", "Examples per second on all replicas. Use it to compare machines and batch sizes."),
    ("lr", "Learning rate: how far each step moves the weights."),
    (
        "compile",
        "Time of the first execution, which includes compilation. Not part of the time left.",
    ),
    ("time left", "Estimated from recent steps and, for the run, from past validations."),
    ("★", "The best epoch so far, by the monitored metric."),
    ("smooth", "A moving average of the training curves; the raw curve stays visible, dimmed."),
    ("memory", "Memory in use, as the device's runtime reports it. Below the rows: why a figure is missing."),
    ("duty", "Share of recent time the device was busy, as the TPU runtime reports it."),
    ("coords", "The chip's position in the TPU mesh."),
    ("(1)", "A missing or partial figure; the note with this number gives the reason."),
    (
        "slow",
        "A host whose replicas ran more than 10% slower than the median host in the last ten seconds.",
    ),
    ("waits", "Share of time spent waiting for input data. A faster device would not help."),
    ("detach", "Leaves this screen. Training continues in its own process; `tpu-console attach` comes back."),
)

_NAME = 14  # cells for a key or the name of a figure
_TAB = "Go to the next part of the screen."


def help_dialog(bindings: Iterable[tuple[str, Binding]], panes: Sequence[LivePane[Any]] = ()) -> TextDialog:
    """Make the help screen, from keys as they are shown and what they do, and the panes of the screen."""
    keys: dict[str, list[str]] = {}
    for shown, binding in bindings:
        keys.setdefault(binding.tooltip, []).append(shown)
    return TextDialog("Help", lambda room: _text(keys, panes, room), kind="help")


def _text(keys: Mapping[str, Sequence[str]], panes: Sequence[LivePane[Any]], room: int) -> Content:
    parts = [Content.styled("Keys", "bold $text-accent")]
    parts += [_entry(" ".join(shown), text, room) for text, shown in keys.items()]
    parts += [_entry("tab", _TAB, room), Content("")]
    if panes:
        parts += [Content.styled("Panes", "bold $text-accent")]
        parts += [*(_entry(pane.label, pane.help, room) for pane in panes), Content("")]
    parts += [Content.styled("Figures", "bold $text-accent")]
    parts += [_entry(name, text, room) for name, text in _FIGURES]
    return Content("\n").join(parts)


def _entry(name: str, text: str, room: int) -> Content:
    """Lay out a name and its text, which wraps beside it."""
    lines = textwrap.wrap(text, room - _NAME - 1)
    indent = "\n" + " " * (_NAME + 1)
    return Content.assemble((f"{name:<{_NAME}} ", "bold"), indent.join(lines))
