"""What a run's state and events say: the lines of plain output, the sentences of screens, the table of epochs.

Nothing here reads the clock or the terminal: functions take a run's state and events and return text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from tpu_console.engine.runs import events
from tpu_console.engine.runs.metrics import MetricKind

from .names import setting_in
from .numbers import (
    NONE,
    count,
    duration,
    learning_rate,
    listed,
    local_time,
    metric,
    milliseconds,
    plural,
    shape,
    size,
    whole_duration,
)
from .tables import BEST, Column, labelled

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
    events.Steering.PAUSE: "paused",
    events.Steering.CONTINUE: "continued",
    events.Steering.CHECKPOINT: "checkpoint saved",
    events.Steering.PROFILE: "steps are traced",
}
_SOURCES: dict[str, str] = {
    events.RunSource.PROCESS: "started by tpu-console",
    events.RunSource.IN_PROCESS: "inside the console",
    events.RunSource.NOTEBOOK: "a notebook or script",
    events.RunSource.IMPORTED: "another tool",
}


def trained_by(started: events.RunStarted) -> str:
    """Say what trained a run; one that was imported has no process."""
    source = _SOURCES.get(started.source, started.source)
    return f"process {started.pid} on {started.host}, {source}" if started.pid else source


def found(phase: str, state: RunState) -> str:
    """Describe what a phase found: devices, data or the model; empty if it finds nothing."""
    if phase == events.Phase.CONNECTING and (ready := state.accelerator) is not None:
        replicas = "" if len(ready.replicas) == 1 else f", {len(ready.replicas)} replicas"
        versions = ", ".join(f"{name} {version}" for name, version in ready.versions.items())
        return f"{ready.accelerator}{replicas} ({ready.reason.rstrip('.')}), {versions}"
    if phase == events.Phase.LOADING and state.data is not None:
        data = state.data
        classes = plural(data.classes, "class", "classes") if data.classes else ""
        train = "" if data.train_examples is None else f"{data.train_examples:,} training examples"
        validation = "" if data.validation_examples is None else f"{data.validation_examples:,} for validation"
        # Several inputs have no single shape, and not every task has classes.
        return ", ".join(part for part in (train, validation, shape(data.input_shape or ()), classes) if part)
    if phase == events.Phase.BUILDING and state.model is not None:
        model = state.model
        parameters, layers = plural(model.parameters, "parameter"), plural(model.layers, "layer")
        return f"{model.name}: {parameters} in {layers}, {size(model.weight_bytes)}"
    if phase == events.Phase.COMPILING:
        return "first execution, not counted in epoch 1"
    return ""


def settled(fit: events.FitStarted) -> str:
    """Describe the setup of training: epochs, steps, batch and steps per execution."""
    steps = "" if fit.steps_per_epoch is None else f" of {plural(fit.steps_per_epoch, 'step')}"
    batch = "" if fit.global_batch is None else f", batch {fit.global_batch:,}"
    reason = f": {fit.execution_reason}" if fit.execution_reason else ""
    executions = f"{plural(fit.steps_per_execution, 'step')} per execution{reason}"
    return f"{plural(fit.epochs, 'epoch')}{steps}{batch}, {executions}"


def epoch_line(
    event: events.EpochEnded, fit: events.FitStarted | None, *, is_best: bool, waited_percent: float | None = None
) -> str:
    """Describe an ended epoch, whose time excludes compilation; `waited_percent` of it was spent waiting for data."""
    epochs = fit.epochs if fit is not None else event.epoch
    step = NONE if event.step_ms is None else f"{event.step_ms:.1f}"
    has_batch = fit is None or fit.global_batch is not None
    parts = [
        f"epoch {event.epoch:>{len(str(epochs))}}/{epochs}",
        f"{duration(event.seconds - event.compile_s):>6}",
        f"{step:>5} ms/step",
        f"{count(event.examples_per_s) or NONE:>7} examples/s" if has_batch else "",
        f"lr {learning_rate(event.learning_rate)}" if event.learning_rate is not None else "",
        f"waits {waited_percent:>2.0f}%" if waited_percent is not None else "",
        *_metrics(event.logs),
    ]
    return "  ".join(filter(None, parts)) + f" {BEST}" * is_best


def _metrics(logs: dict[str, float]) -> list[str]:
    """Write each metric once, loss first, followed by its validation value."""
    parts = []
    for name, value in sorted(logs.items(), key=lambda item: item[0] != "loss"):
        if name.startswith("val_") and name.removeprefix("val_") in logs:
            continue
        validation = f" val {metric(logs[f'val_{name}'])}" if f"val_{name}" in logs else ""
        parts.append(f"{name} {metric(value)}{validation}")
    return parts


def progress_line(state: RunState) -> str:
    """Describe the progress of training; empty before the first progress event."""
    if state.progress is None:
        return ""
    from tpu_console.engine.runs.timing import pace  # with NumPy, which the first frame does without

    progress, speed = state.progress, pace(state)
    epochs = state.fit.epochs if state.fit is not None else progress.epoch
    done = f"step {progress.epoch_step:,}"
    if state.fit is not None and (steps := state.fit.steps_per_epoch):
        step = min(progress.epoch_step, steps)  # the last execution of an epoch may run past its end
        done = f"step {step:>{len(f'{steps:,}')},}/{steps:,} {step / steps:>4.0%}"
    parts = [
        f"epoch {progress.epoch:>{len(str(epochs))}}/{epochs}",
        done,
        f"{milliseconds(speed.step_ms):>5} ms/step" if speed.step_ms is not None else "",
        f"{speed.examples_per_s:>7,.0f} examples/s" if speed.examples_per_s is not None else "",
        *_metrics(progress.logs),
        f"{duration(speed.run_left_s)} left" if speed.run_left_s is not None else "",
    ]
    return "  ".join(filter(None, parts))


def waiting_line(state: RunState, now: float) -> str:
    """Describe what a run is doing while it reports no progress."""
    if not state.phase:
        return labelled("starting", "…")
    detail = f"  {state.phase_detail}" if state.phase_detail else ""
    seconds = state.phase_s.get(state.phase, 0.0) + max(0.0, now - state.phase_since)
    return labelled(state.phase, f"{duration(seconds):>6}  so far{detail}")


def resumed_text(event: events.RunResumed) -> str:
    """Say where a run goes on, and why it went back if nobody resumed it."""
    if event.why:
        return f"from step {event.step:,}: {event.why}"
    if not event.step:
        return "from the beginning: it had no checkpoint"
    within = f"in epoch {event.epoch + 1} at step {event.epoch_step}"
    place = within if event.epoch_step else f"after epoch {event.epoch}"
    return f"{place} ({duration(event.elapsed_s)} of training so far)"


def change_text(event: events.Steered) -> str:
    """Say what was changed, such as ``epochs 10 → 15``, or why it was not."""
    name = event.action.replace("_", " ")
    if event.refused:
        return f"{name} refused: {event.refused}"
    if event.after is None:
        return _DONE.get(event.action, name)
    write = learning_rate if event.action == events.Steering.LEARNING_RATE else count
    return f"{name} {write(event.before) or '?'} → {write(event.after)}"


def steered_text(event: events.Steered) -> str:
    """Say what was changed, at which step and by whom."""
    where = "" if event.refused else f" at step {event.step:,}"
    return f"{change_text(event)}{where}, {event.by}"


def stop_text(event: events.StopRequested) -> str:
    """Say who asked the run to stop, and when it will."""
    return f"{event.reason}; after this epoch" if event.after == events.StopAfter.EPOCH else event.reason


def is_busy(state: RunState) -> bool:
    """Return whether a run does something that it finishes before it reacts.

    A validation is left between two batches, but not in a notebook or by several hosts.
    """
    if state.phase == events.Phase.VALIDATING:
        hosts = {one.process for one in state.accelerator.replicas} if state.accelerator is not None else ()
        return len(hosts) > 1 or (state.started is not None and state.started.source == events.RunSource.NOTEBOOK)
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


def budget_text(event: events.BudgetSet, now: float) -> str:
    """Say how much time the run has, and how much of it is left until when."""
    return f"{duration(event.seconds)}, {budget_clock(event, now).removeprefix('budget ')}"


def budget_clock(event: events.BudgetSet, now: float) -> str:
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


METRIC = 9  # importance of the metrics


def epoch_columns(names: Iterable[str]) -> list[Column]:
    """Return the columns of a table of epochs with these metrics."""

    def logged(name: str) -> Callable[[events.EpochEnded], float | None]:
        return lambda epoch: epoch.logs.get(name)

    return [
        Column("epoch", 10, True, 6, "epoch", attrgetter("epoch")),
        Column("time", 6, True, 7, "seconds", attrgetter("seconds"), duration),
        Column("compile", 2, True, 7, "compile_s", lambda epoch: epoch.compile_s or None, duration),
        Column("validating", 1, True, 7, "validation_s", lambda epoch: epoch.validation_s or None, duration),
        Column("ms/step", 5, True, 5, "step_ms", attrgetter("step_ms"), milliseconds),
        Column("examples/s", 4, True, 7, "examples_per_s", attrgetter("examples_per_s"), count),
        Column("lr", 3, True, 7, "learning_rate", attrgetter("learning_rate"), learning_rate),
        *(Column(name, METRIC, True, 6, name, logged(name), metric) for name in names),
    ]


def metrics_in_order(state: RunState, names: Iterable[str]) -> list[str]:
    """Sort training before validation and the losses first in each; keep Keras's order otherwise."""
    return sorted(names, key=lambda name: (name.startswith("val_"), state.metric(name).kind != MetricKind.LOSS))
