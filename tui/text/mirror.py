"""How much of a run its mirror holds, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .numbers import duration

if TYPE_CHECKING:
    from tpu_console.engine.runs.state import RunState

_NAMED = 4  # most files that one sentence names


def mirror_text(state: RunState) -> str:
    """Say how far a run's mirror is, such as ``complete to epoch 12, 3s ago``; empty without one."""
    event = state.mirror
    if event is None:
        return ""
    age = duration(max(0.0, state.last_at - state.mirror_at))
    holds = f"complete to epoch {event.epoch}" if event.epoch else "no checkpoint there"
    if event.left:
        more = f" and {len(event.left) - _NAMED} more" if len(event.left) > _NAMED else ""
        return f"not copied: {', '.join(event.left[:_NAMED])}{more} ({event.problem}); {holds}"
    if event.is_given_up:
        return f"off: {event.problem}"
    if event.problem:
        return f"not reachable for {age}, retrying ({event.problem}); {holds}"
    return "complete" if state.end is not None else f"{holds}, {age} ago"


def mirror_lines(state: RunState, run_id: str) -> list[str]:
    """Say at the end of a run how far its mirror is, and how to copy the rest; nothing without a mirror."""
    text = mirror_text(state)
    if not text or state.mirror is None:
        return []
    is_whole = not state.mirror.left and not state.mirror.problem
    return [f"{state.mirror.place} ({text})"] if is_whole else [text, f"tpu-console mirror {run_id}  (copy the rest)"]
