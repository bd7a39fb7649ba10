"""The sentence that says how a run ended."""

from __future__ import annotations

from .numbers import duration, plural


def ended(outcome: str, epochs: int, seconds: float | None = None, why_stopped: str = "") -> str:
    """Say how a run ended that was saved, if known with its time and why it stopped, such as ``on request``."""
    counted = plural(epochs, "epoch") + ("" if seconds is None else f" in {duration(seconds)}")
    if outcome not in {"early", "stopped"}:
        return f"Finished: {counted}."
    how = "early" if outcome == "early" else why_stopped
    return f"Stopped {f'{how} ' if how else ''}after {counted}."
