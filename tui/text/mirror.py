"""How much of a run its mirror holds, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .numbers import duration, listed

if TYPE_CHECKING:
    from tpu_console.engine.runs.state import RunState

_NAMED = 4  # most files that one sentence names


def mirror_text(state: RunState) -> str:
    """Say how far a run's mirror is, such as ``complete to epoch 12, 3 s ago``; empty without one."""
    event = state.mirror
    if event is None:
        return ""
    seconds = max(0.0, state.last_at - state.mirror_at)
    age = duration(seconds) if seconds >= 60 else f"{seconds:.0f} s"
    holds = f"complete to epoch {event.epoch}" if event.epoch else "no checkpoint there"
    if event.left:
        names = listed(event.left, _NAMED) + (f" ({event.problem})" if event.problem else "")
        return f"{'not copied' if event.is_given_up or state.end is not None else 'copying'}: {names}; {holds}"
    if event.is_given_up:
        return f"off: {event.problem}"
    if event.problem:
        return f"not written for {age}, retrying ({event.problem}); {holds}"
    if state.end is not None:
        return "complete"
    return f"{holds}, {age} ago" if seconds >= 1 else holds


def mirror_facts(state: RunState, run_id: str) -> list[tuple[str, str]]:
    """Say at the end of a run how far its mirror is, and how to copy the rest; nothing without a mirror."""
    if state.mirror is None:
        return []
    if not state.mirror.problem and not state.mirror.left:
        return [("mirror", f"{state.mirror.place} ({mirror_text(state)})")]
    return [("mirror", mirror_text(state)), ("to copy", f"tpu-console runs mirror {run_id}")]
