"""The sentence that says how a run ended."""

from __future__ import annotations

from .numbers import duration, plural


def ended(outcome: str, epochs: int, seconds: float, why_stopped: str = "") -> str:
    """Say how a run ended that was saved; `why_stopped` is one or two words, such as ``on request``."""
    counted = f"{plural(epochs, 'epoch')} in {duration(seconds)}"
    if outcome not in {"early", "stopped"}:
        return f"Finished: {counted}."
    how = "early" if outcome == "early" else why_stopped
    return f"Stopped {f'{how} ' if how else ''}after {counted}."
