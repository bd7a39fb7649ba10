"""What every key does and what every figure means, for people who have not trained on a TPU before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from .dialogs import COLUMNS, TextDialog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.binding import Binding

_FIGURES = (
    ("epoch", "One pass over the training data, or over as many steps as the configuration says."),
    ("step", "One update of the weights from one global batch of examples."),
    ("replica", "One copy of the model on one device (a TPU core, a GPU). All replicas train together."),
    ("global batch", "Examples a step: the batch of one replica times the number of replicas."),
    ("loss", "What training makes smaller. It falls quickly at first, then slowly."),
    ("accuracy", "The share of examples whose class was guessed right; 1.0 is all of them."),
    (
        "val_…",
        "The same figure on data that is not trained on. Training on while it gets worse is learning by heart.",
    ),
    ("ms/step", "Milliseconds a step takes, without compilation and validation."),
    ("images/s", "Examples a second over all replicas. The figure to compare machines and batch sizes by."),
    ("lr", "Learning rate: how far one step moves the weights."),
    (
        "compile",
        "Seconds until the first steps returned: the program is built once, and no time left counts it.",
    ),
    ("time left", "From the pace of the latest steps and, for the run, of the validations so far."),
    ("★", "The best epoch so far by the metric the run watches."),
    ("smooth", "Draws a moving average over the training curves; the raw line stays behind it, dimmed."),
    ("memory", "What the device's runtime says it uses. Some runtimes do not tell; then the reason stands below."),
    ("duty", "Share of the last seconds in which the device computed, as a TPU's runtime tells."),
    ("coords", "Where the chip sits in the TPU's mesh."),
    ("(1)", "A figure that is missing or not whole: the reason stands below the rows, under this number."),
    (
        "slow",
        "A host whose replicas take over 10 % fewer images a second than the median of the hosts, for ten seconds.",
    ),
    ("waits", "Share of the time in which training waited for its input; faster devices would not make it shorter."),
    ("detach", "Leaves this screen. Training goes on in a process of its own; `tpu-console attach` comes back."),
)


def help_dialog(bindings: Iterable[tuple[str, Binding]]) -> TextDialog:
    """Make the help screen.

    Args:
        bindings: Keys as they are shown, and what they do.
    """
    parts = [Content.styled("Keys", "bold $text-accent")]
    keys: dict[str, list[str]] = {}
    for shown, binding in bindings:
        keys.setdefault(binding.tooltip, []).append(shown)
    parts += [_entry(" ".join(shown), text, 10) for text, shown in keys.items()]
    parts += [_entry("tab", "Go from pane to pane; arrow keys, page up and page down scroll the one you are in.", 10)]
    parts += [Content(""), Content.styled("Figures", "bold $text-accent")]
    parts += [_entry(name, text, 14) for name, text in _FIGURES]
    return TextDialog("Help", Content("\n").join(parts))


def _entry(name: str, text: str, width: int) -> Content:
    """A name and its text, the text's later lines under its first."""
    import textwrap

    lines = textwrap.wrap(text, COLUMNS - width - 1)
    indent = "\n" + " " * (width + 1)
    return Content.assemble((f"{name:<{width}} ", "bold"), indent.join(lines))
