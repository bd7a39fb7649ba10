"""The lines that plain output prints about a run, one pure function per kind of line, and the table of its epochs.

Nothing here reads the clock or the terminal: functions take a run's state and events and return lines.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from tpu_console.engine.runs import events
from tpu_console.engine.runs.heartbeat import HeartbeatWatch
from tpu_console.engine.runs.metrics import MetricKind
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.runs.timing import pace
from tpu_console.engine.storage.paths import user_path

from .cells import BEST
from .numbers import NONE, count, duration, learning_rate, metric, milliseconds, plural, shape, size
from .outcome import best_text, crash_of, efficiency_line, next_commands, output_pairs
from .steering import mirror_facts
from .tables import Column, labelled, labelled_lines

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


def finished_lines(state: RunState, run: RunDirectory, end: events.RunFinished) -> list[str]:
    """Describe how a saved run ended, its result, and what to do next."""
    ended = "stopped" if end.outcome == events.RunOutcome.STOPPED else "finished"
    facts = [
        (ended, f"{end.reason or end.outcome} (total {duration(state.took_s)})"),
        ("best", best_text(state)),
        ("time", ", ".join(f"{phase} {duration(seconds)}" for phase, seconds in state.phase_s.items())),
        ("efficiency", efficiency_line(state)),
        *(pair for pair in output_pairs(run) if pair[0] != "log"),
        *mirror_facts(state, run.run_id),
        ("next", f"tpu-console attach {run.run_id}  (curves)"),
        *(("", f"{command}  ({what})") for what, command in next_commands(run, state)),
    ]
    return labelled_lines(facts)


def failed_lines(end: events.RunFailed, run: RunDirectory) -> list[str]:
    """Say why a run failed and what to do."""
    log = f"Log: {user_path(run.log)}" if run.log.exists() else ""
    return [part for part in (end.what, end.why, end.remedy, log) if part]


def crashed_lines(run: RunDirectory, log: Sequence[str]) -> list[str]:
    """Say that the training process ended without a last event, and show the end of its log."""
    crash, messages = crash_of(run, HeartbeatWatch(run).look().waiting, log)
    end = ["The end of its log:", *(f"  {text}" for text in messages)] if messages else []
    what, *others = failed_lines(crash, run)
    why = [crash.why] if crash.why else []
    return [f"{run.run_id}: {what}", *why, *end, *others[len(why) :]]


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
