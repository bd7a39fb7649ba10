"""The words for a run that does not respond or has stalled, shared by all views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .numbers import duration, whole_duration

if TYPE_CHECKING:
    from tpu_console.engine.runs.timing import Stall

STOP_PENDING = "stop requested; waiting for the run to respond"

WHY_SILENT = (
    "The process may be suspended, or waiting for a disk, a network mount or the accelerator; "
    "it will continue afterwards."
)


def silent_text(seconds: int) -> str:
    """Say how long a run has not responded, such as ``not responding for 25 s``."""
    return f"not responding for {whole_duration(seconds)}"


def stall_text(stall: Stall) -> str:
    """Say how long training has stalled, such as ``no step for 2m 05s (usually 0.30 s)``."""
    return f"no step for {whole_duration(stall.seconds)} (usually {duration(stall.usual_s)})"
