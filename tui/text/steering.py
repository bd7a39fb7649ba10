"""What was asked of a run while it trained, why it does not answer, and how much its mirror holds, in words."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from tpu_console.engine.runs.events import BudgetSet, Steered, Steering, StopAfter, StopRequested

from .names import setting_in
from .numbers import count, duration, learning_rate, listed, local_time, whole_duration

if TYPE_CHECKING:
    from tpu_console.engine.runs.state import RunState
    from tpu_console.engine.runs.timing import Stall

STOP_PENDING = "stop requested; waiting for the run to respond"
WHY_SILENT = (
    "The process may be suspended, or waiting for a disk, a network mount or the accelerator; "
    "it will continue afterwards."
)
_NAMED = 4  # most files that one sentence names
_LATEST = 2e11  # the latest Unix time that a clock can show
_DONE: dict[str, str] = {
    Steering.PAUSE: "paused",
    Steering.CONTINUE: "continued",
    Steering.CHECKPOINT: "checkpoint saved",
    Steering.PROFILE: "steps are traced",
}


def change_text(event: Steered) -> str:
    """Say what was changed, such as ``epochs 10 → 15``, or why it was not."""
    name = event.action.replace("_", " ")
    if event.refused:
        return f"{name} refused: {event.refused}"
    if event.after is None:
        return _DONE.get(event.action, name)
    write = learning_rate if event.action == Steering.LEARNING_RATE else count
    return f"{name} {write(event.before) or '?'} → {write(event.after)}"


def steered_text(event: Steered) -> str:
    """Say what was changed, at which step and by whom."""
    where = "" if event.refused else f" at step {event.step:,}"
    return f"{change_text(event)}{where}, {event.by}"


def stop_text(event: StopRequested) -> str:
    """Say who asked the run to stop, and when it will."""
    return f"{event.reason}; after this epoch" if event.after == StopAfter.EPOCH else event.reason


def is_busy(state: RunState) -> bool:
    """Return whether a run does something that it finishes before it reacts."""
    return state.phase not in {"", "training", "paused"}


def busy_text(state: RunState, now: float) -> str:
    """Say what a run does before it can react, such as ``it is compiling (1m 20s so far)``; empty if it trains."""
    if not is_busy(state):
        return ""
    doing = "busy with its accelerator" if state.phase == "connecting" else state.phase
    return f"it is {doing} ({duration(now - state.phase_since)} so far)"


def silent_text(seconds: int) -> str:
    """Say how long a run has not responded, such as ``not responding for 25 s``."""
    return f"not responding for {whole_duration(seconds)}"


def stall_text(stall: Stall) -> str:
    """Say how long training has stalled, such as ``no step for 2m 05s (usually 0.30 s)``."""
    return f"no step for {whole_duration(stall.seconds)} (usually {duration(stall.usual_s)})"


def schedule_of(state: RunState) -> str:
    """Name the schedule of the learning rate; empty if the rate is constant and can be changed."""
    schedule = str(setting_in(state.started, "optimizer", "schedule") or "constant")
    warmup = setting_in(state.started, "optimizer", "warmup_epochs")
    return "warm-up" if schedule == "constant" and warmup else schedule.removeprefix("constant")


def epochs_problem(text: str) -> str:
    """Say why a text is not a number of epochs, such as 20, +5 or -5; empty if it is one."""
    return "" if re.fullmatch(r"[+-]?0*[1-9]\d{0,8}", text) else f"'{text}' is not a number of epochs such as 20 or +5."


def rate_problem(text: str) -> str:
    """Say why a text is not a learning rate; empty if it is one."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    return "" if math.isfinite(rate) and rate > 0 else f"'{text}' is not a learning rate such as 0.001."


def budget_text(event: BudgetSet, now: float) -> str:
    """Say how much time the run has, and how much of it is left until when."""
    return f"{duration(event.seconds)}, {budget_clock(event, now).removeprefix('budget ')}"


def budget_clock(event: BudgetSet, now: float) -> str:
    """Say how much of a budget is left, such as ``budget 2h 10m left, until Mon 17:42``."""
    if event.ends_at <= now:
        return "budget used up"
    ends = local_time(min(event.ends_at, _LATEST))
    return f"budget {whole_duration(event.ends_at - now)} left, until {ends:%a %H:%M}"


def mirror_text(state: RunState) -> str:
    """Say how far a run's mirror is, such as ``complete to epoch 12, 3 s ago``; empty without one."""
    if (event := state.mirror) is None:
        return ""
    age = whole_duration(max(0.0, state.last_at - state.mirror_at))
    holds = f"complete to epoch {event.epoch}" if event.epoch else "no checkpoint there"
    if event.left:
        names = listed(event.left, _NAMED) + (f" ({event.problem})" if event.problem else "")
        return f"{'not copied' if event.is_given_up or state.end is not None else 'copying'}: {names}; {holds}"
    if event.is_given_up:
        return f"off: {event.problem}"
    if event.problem:
        return f"not written for {age}, retrying ({event.problem}); {holds}"
    return "complete" if state.end is not None else f"{holds}, {age} ago"


def mirror_facts(state: RunState, run_id: str) -> list[tuple[str, str]]:
    """Say at the end of a run how far its mirror is, and how to copy the rest; nothing without a mirror."""
    if state.mirror is None:
        return []
    if not state.mirror.problem and not state.mirror.left:
        return [("mirror", f"{state.mirror.place} ({mirror_text(state)})")]
    return [("mirror", mirror_text(state)), ("to copy", f"tpu-console runs mirror {run_id}")]
