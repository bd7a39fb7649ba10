"""One run as a row of the runs table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from ..following.overview import Status
from ..text.numbers import duration, metric

if TYPE_CHECKING:
    from ..following.overview import Overview

_FAINT = "$foreground 60%"
_STATES = {
    Status.UNSTARTED: ("○", _FAINT),
    Status.RUNNING: ("▶", "bold $text-primary"),
    Status.PAUSED: ("‖", "$text-warning"),
    Status.STOPPING: ("■", "$text-warning"),
    Status.SILENT: ("▲", "bold $text-warning"),
    Status.FINISHED: ("✓", "$text-success"),
    Status.STOPPED: ("■", ""),
    Status.FAILED: ("✗", "$text-error"),
    Status.CRASHED: ("✗", "$text-error"),
    Status.UNREADABLE: ("✗", "$text-error"),
}


def run_cells(overview: Overview) -> dict[str, Content]:
    """Return a run's row by column.

    Args:
        overview: The run's overview.
    """
    mark, style = _STATES[overview.status]
    best, seconds = overview.best, overview.seconds()
    total = f"/{overview.epochs}" if overview.epochs is not None else ""
    return {
        "Run": Content(overview.run.run_id),
        "State": Content.styled(f"{mark} {overview.status.value}", style),
        "Preset": Content(overview.problem or overview.label),
        "Epochs": Content(f"{overview.epochs_done}{total}"),
        "Best": Content(f"{metric(best[1])} {best[0]}" if best is not None else "–"),
        "Took": Content(duration(seconds)),
    }
