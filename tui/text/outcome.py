"""Describes how a run ended: what happened, why, what to do next; also after the console has closed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tpu_console.engine.runs.class_report import Mistake
from tpu_console.engine.runs.events import RunFailed, RunFinished
from tpu_console.engine.runs.heartbeat import REMOVED
from tpu_console.engine.runs.run_directory import RunDirectory, is_removed
from tpu_console.engine.storage.files import inside
from tpu_console.engine.storage.paths import user_path

from .confusion import mistake_text
from .log_text import crash_in, read_messages
from .names import setting_in
from .numbers import duration, metric, milliseconds, percent, plural
from .steering import mirror_facts
from .tables import filled

if TYPE_CHECKING:
    from tpu_console.engine.runs.follower import Snapshot
    from tpu_console.engine.runs.state import RunState

_LOG_LINES = 4
_LONGEST_WORDS = 200
_ABORTED_BY_JAX = "JAX distributed service detected fatal errors"
_OUTPUTS = {
    "model": "model.keras",
    "best model": "checkpoints/best.keras",
    "weights": "model.weights.h5",
    "best weights": "checkpoints/best.weights.h5",
    "history": "history.csv",
    "summary": "summary.json",
    "class report": "report.json",
    "tensorboard": "tensorboard/",
    "log": "console.log",
}


def output_places(run: RunDirectory) -> dict[str, Path]:
    """Return the paths of the run's outputs that exist, by name."""
    found = {}
    for name, file in _OUTPUTS.items():
        with suppress(OSError):  # its folder is a link
            if (path := inside(run.path, file)).exists() and not path.is_symlink():
                found[name] = path
    return found


def output_pairs(run: RunDirectory) -> list[tuple[str, str]]:
    """Return the names of the run's outputs and their paths, shortened for display."""
    return [(name, user_path(path)) for name, path in output_places(run).items()]


class Ending(Struct, frozen=True):
    """The end of a run."""

    kind: Literal["good", "stopped", "bad"]
    headline: str  # what happened, in one sentence
    facts: Sequence[tuple[str, str]] = ()  # pairs of a label and a text
    log: Sequence[str] = ()  # the last lines of the log, if they are the best clue


def has_model(run: RunDirectory) -> bool:
    """Return whether a run saved a model that can predict."""
    return not {"model", "best model"}.isdisjoint(output_places(run))


def resume_command(run: RunDirectory) -> str:
    """Return the command that continues a run; a notebook's run begins again."""
    return f"tpu-console resume {run.run_id}" if run.config.exists() else "run the notebook again"


def is_finished(state: RunState) -> bool:
    """Return whether the run did what it was asked to, all of its epochs or fewer."""
    return isinstance(state.end, RunFinished) and state.end.outcome != "stopped"


def is_diverged(state: RunState) -> bool:
    """Return whether the run stopped because its loss was no number."""
    return state.is_diverging and isinstance(state.end, RunFinished) and state.end.outcome == "stopped"


def continue_changes(state: RunState) -> list[tuple[str, float]]:
    """Return what to change before a run that is over goes on, by dotted key.

    One that diverged gets a tenth of its learning rate, one that ended early twice the patience, and one that did all
    of its epochs as many again.
    """
    if is_diverged(state):
        rate = setting_in(state.started, "optimizer", "learning_rate")
        return [("optimizer.learning_rate", float(f"{rate / 10:.3g}"))] if isinstance(rate, float) and rate else []
    if not (isinstance(state.end, RunFinished) and is_finished(state)) or state.fit is None:
        return []
    patience = setting_in(state.started, "early_stopping", "patience")
    if state.end.outcome == "early" and isinstance(patience, int) and patience:
        return [("early_stopping.patience", 2 * patience)]
    return [("epochs", 2 * state.fit.epochs)]


def continue_command(run: RunDirectory, state: RunState) -> str:
    """Return the command that continues a run that is over, with the settings to change."""
    changes = continue_changes(state) if run.config.exists() else []
    options = (f"--epochs {value}" if key == "epochs" else f"--set {key}={value:g}" for key, value in changes)
    return " ".join((resume_command(run), *options))


def next_commands(run: RunDirectory, state: RunState) -> list[tuple[str, str]]:
    """Return what one can do with a run that is over, each with its command."""
    # Imported here, because it takes 50 ms.
    from tpu_console.engine.models.table import MODELS

    commands = [("details", f"tpu-console runs show {run.run_id}")]
    if has_model(run):
        commands.append(("predict", f"tpu-console predict {run.run_id} --data FILE"))
    if run.config.exists():
        model = MODELS.get(str(state.started.config.get("model"))) if state.started is not None else None
        if model is None or model.has_code:
            commands.append(("export", f"tpu-console export {run.run_id} --script train.py"))
        commands.append(("continue", continue_command(run, state)))
    return [*commands, ("compare", f"tpu-console runs compare {run.run_id}")]


def can_resume(run: RunDirectory, snapshot: Snapshot) -> bool:
    """Return whether `continue_command` continues a run."""
    return (snapshot.state.end is not None or snapshot.crashed) and run.config.exists()


def crash_of(run: RunDirectory, waiting: int | None, log: Sequence[str]) -> tuple[RunFailed, list[str]]:
    """Explain the crash of a run as its missing last event, and return the last messages of its log before that.

    `waiting` is how many events the full disk did not take, None if it was not full; `log` has the lines of the log.
    """
    if is_removed(run):
        return RunFailed(f"The run ended, because {REMOVED}.", "", "", run.log.name), []
    signal, before = crash_in(log)
    messages = [message.text for message in read_messages(before) if message.text and not message.is_noise]
    what = "The training process ended without reporting an error."
    why = "It was killed, ran out of memory, or the machine restarted."
    go_on = f"To continue: {resume_command(run)}"
    remedy = f"{go_on}; if memory ran out, with a smaller --batch-size."
    if waiting is not None:
        what = "The disk was full when the training process ended; its last event is missing."
        why = f"{plural(waiting, 'event')} could not be written." if waiting else ""
        remedy = f"Free space for {user_path(run.path)}, then: {resume_command(run)}"
        messages = []
    elif jax := next((text for text in reversed(messages) if _ABORTED_BY_JAX in text), ""):
        what = "JAX ended the training process."
        why = f"It says: {jax.rpartition('absl::Status: ')[2][:_LONGEST_WORDS]}"
        remedy = f"If another host ended first, see the log of its run. {go_on}"
    elif signal:
        what = f"The training process crashed in a library ({signal})."
        why = f"Its log ends with: {messages[-1][:_LONGEST_WORDS]}" if messages else ""
        remedy = f"Check the installed versions with `tpu-console doctor`. {go_on}"
    return RunFailed(what, why, remedy, run.log.name), messages[-_LOG_LINES:]


def outcome_of(run: RunDirectory, snapshot: Snapshot) -> Ending | None:
    """Return how the run ended; None if it has not."""
    state, end, messages, kept = snapshot.state, snapshot.state.end, list[str](), ""
    if end is None:
        if not snapshot.crashed:
            return None
        end, messages = crash_of(run, snapshot.waiting, snapshot.log)
        kept = f" The best model so far is in {state.checkpoint.path}." if state.checkpoint is not None else ""
    if isinstance(end, RunFailed):
        facts = [("why", end.why), ("what to do", f"{end.remedy}{kept}"), ("log", user_path(run.log))]
        return Ending("bad", end.what, filled([*facts, *mirror_facts(state, run.run_id)]), messages)
    counted, is_stopped = f"{plural(len(state.epochs), 'epoch')} in {duration(state.took_s)}", end.outcome == "stopped"
    headline = f"Finished: {counted}{'; the loss is NaN' if state.is_nan else ''}."
    if is_stopped or end.outcome == "early":
        why = "early" if not is_stopped else "because it diverged" if is_diverged(state) else "on request"
        headline = f"Stopped {why} after {counted}."
    places = output_places(run)
    model = next((user_path(path) for name, path in places.items() if "model" in name or "weights" in name), "")
    saved, best = state.checkpoint, state.best_epoch()
    is_apart = saved is not None and best is not None and saved.epoch == best.epoch < state.epochs[-1].epoch
    classes = ""
    with suppress(KeyError, TypeError, ValueError):
        scores = end.summary["classes"]
        confused = f" · most confused: {mistake_text(Mistake(**scores['mistakes'][0]))}" if scores["mistakes"] else ""
        classes = f"balanced accuracy {scores['balanced_accuracy']:.4f}{confused}"
    facts = [
        ("best", best_text(state) + (f", saved as {saved.path}" if saved is not None and is_apart else "")),
        ("why", end.reason if end.outcome in {"early", "stopped"} else ""),
        ("classes", classes),
        ("efficiency", efficiency_line(state)),
        ("model", model),
        *mirror_facts(state, run.run_id),
        ("to continue", continue_command(run, state) if is_stopped else ""),
    ]
    return Ending("stopped" if is_stopped else "bad" if state.is_nan else "good", headline, filled(facts))


def has_classes(state: RunState) -> bool:
    """Return whether the run has a class report."""
    return isinstance(state.end, RunFinished) and isinstance(state.end.summary.get("classes"), dict)


def efficiency_line(state: RunState) -> str:
    """Compare a TPU run with the best case of its preflight; empty if there was none."""
    if state.accelerator is None or state.accelerator.accelerator != "tpu":
        return ""
    from tpu_console.engine.preflight.likely import efficiency_of  # loads Pydantic, and hardly a run is on a TPU

    if (found := efficiency_of(state)) is None:
        return ""
    figures = f"{milliseconds(found.measured_step_ms)} ms/step, {milliseconds(found.best_step_ms)} at best"
    return f"{percent(100 * found.share)} of the best case for {found.tpu}: {figures}"


def best_text(state: RunState) -> str:
    """Write the best epoch's score, such as ``val_accuracy 0.9917 in epoch 27``; empty if there is none."""
    monitor, best = state.monitor, state.best_epoch()
    return f"{monitor} {metric(best.logs[monitor])} in epoch {best.epoch}" if best is not None else ""


def goes_on(run_id: str) -> str:
    """Return the line about a run that continues without a console."""
    return f"{run_id} is still training. To come back: tpu-console attach {run_id}"


def farewell_to(run: RunDirectory, snapshot: Snapshot) -> str:
    """Return a few lines about the run that was open when the console closed, by its last snapshot."""
    if (outcome := outcome_of(run, snapshot) if snapshot.is_over else None) is None:
        return goes_on(run.run_id)
    kept = ("best", "what to do", "mirror", "to copy", "log")
    facts = [f"{label.capitalize()}: {text}" for label, text in outcome.facts if label in kept]
    return "\n".join([f"{run.run_id}: {outcome.headline}", *facts, f"To see it again: tpu-console attach {run.run_id}"])
