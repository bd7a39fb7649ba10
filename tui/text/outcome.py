"""Describes how a run ended: what happened, why, by its last event or by its log, and what to do next.

``console.log`` is read as messages: without native prefixes, with errors marked and framework noise set apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from tpu_console.engine.runs.class_report import Mistake
from tpu_console.engine.runs.events import RunFailed, RunFinished, RunOutcome
from tpu_console.engine.runs.heartbeat import REMOVED, HeartbeatWatch
from tpu_console.engine.runs.run_directory import RunDirectory, is_removed
from tpu_console.engine.storage.files import inside
from tpu_console.engine.storage.paths import user_path

from .confusion import mistake_text
from .names import setting_in
from .numbers import duration, metric, milliseconds, percent, plural
from .run_lines import mirror_facts
from .tables import filled, labelled_lines

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
_PREFIXES = re.compile(
    r"""
    ([IWEF])\d{4}\ \d\d:\d\d:[\d.]+\ +\d+\ [^\s\]]+:\d+\]\ ?               # absl, XLA: I0000 00:00:179.7  12 a.cc:1]
    | \d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d[.,]\d+:\ ([IWEF])\ [^\s\]]+:\d+\]\ ? # TensorFlow: 2026-… I a/b.cc:1]
    | (DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL):(?:\d{4}-\d\d-\d\d\ [\d:.,]+:)?[\w.]+:(?:\d+:)?\ ?  # Python's logging
    | (WARNING|ERROR):\ (?=All\ log\ messages)
    """,
    re.VERBOSE,
)
_HARMLESS = re.compile(
    r"""
    All\ log\ messages\ before\ absl::InitializeLog
    | oneDNN\ custom\ operations\ are\ on
    | Could\ not\ find\ (?:cuda\ drivers|TensorRT)
    | failed\ call\ to\ cuInit:.*(?:\(303\)|\(100\)|NO_DEVICE|no\ CUDA-capable\ device)  # no GPU, or a hidden one
    | This\ TensorFlow\ binary\ is\ optimized
    | To\ enable\ the\ following\ instructions
    | Unable\ to\ register\ cu\w+\ (?:factory|plugin)
    | computation\ placer\ already\ registered
    | GeneratorDatasetOp::Dataset\ will\ not\ be\ optimized
    | Local\ rendezvous\ is\ aborting\ with\ status:\ OUT_OF_RANGE
    | Created\ device\ /job:
    | XLA\ service\ 0x
    | StreamExecutor\ device\ \(
    | Compiled\ cluster\ using\ XLA
    | disabling\ MLIR\ crash\ reproducer
    | ^Extension\ modules:  # of faulthandler
    """,
    re.VERBOSE,
)
_ALARM = re.compile(
    r"^[\w.]*(?:Error|Exception|Interrupt)\b|\b(?:error|exception)s?:|\b(?:fatal|failed|aborted|core dumped)\b", re.I
)
_CRASHES = {
    "Aborted": "SIGABRT",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
}
# What Python's faulthandler writes if native code crashes, and before it Abseil's, which libtpu installs.
_CRASH = re.compile(rf"Fatal Python error: ({'|'.join(_CRASHES)})|\*\*\* (SIG[A-Z]+) received")
_CRASH_REPORT = re.compile(
    r"\s|$|Stack \(most recent|(?:Current t|T)hread 0x|Current thread's C stack|Extension modules:|PC: |@ "
)
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = re.compile(r"(?:During handling of|The above exception)")
_CONTINUED = (" ", "Traceback", "\t")


class Message(Struct, frozen=True):
    """One line of the log."""

    text: str  # the line without its native prefix
    # Whether it reports an error. Of a traceback, only its last line does.
    is_error: bool = False
    is_noise: bool = False  # whether frameworks write it on healthy machines too
    count: int = 1  # how often it was written in a row


def read_messages(lines: Iterable[str]) -> list[Message]:
    """Return the log's messages; equal neighbors become one with a count."""
    messages: list[Message] = []
    is_in_traceback = False
    for line in lines:
        text, severity = line, ""
        while (prefix := _PREFIXES.match(text)) is not None:
            severity = severity or next(group for group in prefix.groups() if group)[0]
            text = text[prefix.end() :]
        is_noise = bool(_HARMLESS.search(text))
        is_error = not is_noise and (severity in {"E", "F", "C"} if severity else bool(_ALARM.search(text)))
        message = Message(text, is_error, is_noise)
        if _TRACEBACK in line or _CHAINED.match(line):
            is_in_traceback, message = _TRACEBACK in line, Message(message.text)
        elif is_in_traceback:
            is_in_traceback = not line or line.startswith(_CONTINUED)
            message = Message(message.text, is_error=not is_in_traceback)
        if messages and message.text and replace(messages[-1], count=1) == message:
            message = replace(message, count=messages.pop().count + 1)
        messages.append(message)
    return messages


def crash_in(log: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the signal of the crash with which a log ends, if there was one, and the log without the report on it.

    Of the report, the line of Python in which it happened stays, before the last line.
    """
    signal, before = "", log
    for end in range(len(log) - 1, -1, -1):
        if (crash := _CRASH.match(log[end])) is not None:
            signal, before = crash[2] or _CRASHES[crash[1]], log[:end]
        elif not _CRASH_REPORT.match(log[end]):
            break
    place = next((line.strip() for line in log[len(before) :] if line.startswith("  File ")), None)
    return signal, [*before[:-1], place, *before[-1:]] if place is not None else before


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


def finished_lines(state: RunState, run: RunDirectory, end: RunFinished) -> list[str]:
    """Describe how a saved run ended, its result, and what to do next."""
    ended = "stopped" if end.outcome == RunOutcome.STOPPED else "finished"
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


def failed_lines(end: RunFailed, run: RunDirectory) -> list[str]:
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
