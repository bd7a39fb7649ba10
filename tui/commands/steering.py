"""`tpu-console stop`, `pause`, `continue`, `checkpoint`, `set` and `profile`: requests to a run that trains."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tpu_console.engine.errors import ConsoleError, RunNotFoundError
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import Profiled, RunFailed, RunFinished, RunSource, Steered, Steering, StopRequested
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of
from tpu_console.engine.runs.journal import JournalReader
from tpu_console.engine.runs.run_directory import RunDirectory, find_run, list_runs
from tpu_console.engine.storage.paths import user_path

from ..terminal.output import complain, say, say_json, width_of_output
from ..text.names import Status
from ..text.numbers import plural
from ..text.run_lines import STOP_PENDING, busy_text, change_text, silent_text
from .options import command, complete_run, json_option, option, run_argument

if TYPE_CHECKING:
    from ..following.overview import Overview

    Answer = Steered | Profiled | StopRequested | RunFinished | RunFailed

_ANSWER_S = 5.0  # longest wait for a run's answer, which comes after the current execution
_LOOK_S = 0.1
_WHEN_TRACED = "Steps are traced while a run trains."
_KEYS = {"epochs", "learning_rate"}  # what `set` can change; also the names of the requests
_DONE = "the run was asked, or has ended already"


@command(
    "tpu-console stop",
    "tpu-console stop 20261120-133100-digits-cnn --after epoch",
    "tpu-console stop digits-cnn --now --yes",
    done=_DONE,
)
@run_argument
@option("--after", "What to finish first. [default: step]", type=click.Choice(["step", "epoch"]))
@option("--now", "Kill the process; unsaved work is lost. Asks first.")
@option("--yes", "Do not ask.")
def stop(name: str | None, after: str | None, now: bool, yes: bool) -> None:
    """Stop RUN and save its model; by default the running one.

    The run stops after its current steps or epoch; this command does not wait for that. `tpu-console resume RUN` goes
    on later.
    """
    if now and after:
        raise click.UsageError("--now and --after exclude each other.")
    details = _the_run(name)
    run = details.run
    if now:
        _kill(details, asks=not yes)
        return
    reader, _ = _ask(details, Steering.STOP_AFTER_EPOCH if after == "epoch" else Steering.STOP, "stop")
    if details.status is Status.SILENT:
        say([f"{run.run_id} is {silent_text(details.life.silent_s)}; {STOP_PENDING}.",
             f"If it never responds: tpu-console stop {run.run_id} --now"])  # fmt: skip
        return
    what = "this epoch" if after == "epoch" else "its current steps"
    say([f"Stopping {run.run_id} after {what}; the model will be saved."])
    _answer(run, reader, lambda event: not isinstance(event, Steered) or event.action == Steering.STOP_AFTER_EPOCH)
    if after != "epoch" and (busy := busy_text(details.state, time.time())):
        say([f"First {busy}. To kill it instead: tpu-console stop {run.run_id} --now"])


def _request(asked: str, text: str) -> click.Command:
    """Make a command that sends the request of its name."""

    @run_argument
    def send(name: str | None) -> None:
        _steer(name, asked)

    send.__doc__ = text
    return command(f"tpu-console {asked}", f"tpu-console {asked} digits-cnn", name=asked, done=_DONE)(send)


_PAUSE = "Pause RUN, by default the running one.\n\nIt keeps its devices and memory; `tpu-console continue` goes on."
_SAVE = "Save a checkpoint of RUN, by default the running one.\n\n`tpu-console resume` can go on from it."
pause = _request("pause", _PAUSE)
continue_ = _request("continue", "Resume a paused RUN; by default the running one.")
checkpoint = _request("checkpoint", _SAVE)


@command(
    "tpu-console set epochs=+5",
    "tpu-console set digits-cnn epochs=30",
    "tpu-console set digits-cnn learning_rate=1e-4",
    name="set",
    done=_DONE,
)
@click.argument("words", metavar="[RUN] KEY=VALUE", nargs=-1, required=True)
def set_(words: tuple[str, ...]) -> None:
    """Change RUN while it trains; by default the running one.

    epochs=20, epochs=+5 or epochs=-5 changes how many epochs it trains. learning_rate=VALUE takes effect with the next
    execution, unless the learning rate follows a schedule.
    """
    *names, assignment = words
    key, equals, value = assignment.partition("=")
    if len(names) > 1 or not equals or key not in _KEYS or not value:
        raise click.UsageError("Write [RUN] epochs=N, epochs=+N or learning_rate=VALUE.")
    _steer(names[0] if names else None, "set", key, value)


@command(
    "tpu-console runs profile",
    "tpu-console runs profile digits-cnn --steps 20",
    "tpu-console runs profile 143000-digits --before 101500-digits",
    done="steps were traced, or the run does not respond",
    failed="no steps were traced",
)
@run_argument
@option("--steps N", "How many steps to trace. [default: 5]", type=click.IntRange(1, 100), default=5)
@option("--before RUN", "Compare with this run, traced before a change.", shell_complete=complete_run)
@json_option("Print a JSON object.")
def profile(name: str | None, steps: int, before: str | None, as_json: bool) -> None:
    """Trace a few steps of RUN and say where their time goes.

    By default, of the running one. Training goes on. For a run that has ended, this shows what its last trace said,
    and what was compiled.
    """
    from ..following.overview import read_details, read_traced, read_traced_before
    from ..text.profile import change_of, profile_lines, traced_before
    from ..text.tables import for_json

    details = _the_run(name, has_to_train=False)
    run, other = details.run, None
    if before is not None and (other := read_traced(find_run(before))) is None:
        raise ConsoleError(f"No steps of {before} were traced.", remedy=_WHEN_TRACED)
    if details.status.is_live:
        reader, number = _ask(details, Steering.PROFILE, "runs profile", str(steps))
        (complain if as_json else say)([f"Tracing {plural(steps, 'step')} of {run.run_id} …"])

        def is_answer(event: Answer) -> bool:
            is_begun = isinstance(event, Steered) and not event.refused
            return isinstance(event, Steered | Profiled) and event.request == number and not is_begun

        answer = None
        while answer is None and details.status.is_live and details.status is not Status.SILENT:
            answer = _answer(run, reader, is_answer)
            details = read_details(run)
        if answer is None and details.status.is_live:
            say([f"{run.run_id} does not respond. It traces the steps when it goes on; run this command again then."])
            return
        if isinstance(answer, Steered):
            raise ConsoleError(f"No steps of {run.run_id} were traced: {answer.refused}.")
    state, none = details.state, f"No steps of {run.run_id} were traced."
    if not state.profiled and not state.compiled:
        raise ConsoleError(none, remedy=_WHEN_TRACED)
    other = other or read_traced_before(run, state.started) or traced_before(state)
    lines = profile_lines(state, width_of_output() or 80, none, other)
    if as_json:
        best_ms = state.fit.best_layers_ms if state.fit is not None else {}
        newest = state.profiled[-1] if state.profiled else None
        change = change_of(newest, other) if newest is not None and other is not None else ""
        page = {"reason": lines[0], "profiled": newest, "best_layers_ms": best_ms, "compiled": [*state.compiled]}
        say_json(for_json(page | {"change": change, "before": other[1] if other is not None else None}))
        return
    say(lines)
    if state.profiled:
        until = f"{plural(state.profiled[-1].steps, 'step')} until step {state.profiled[-1].step:,}."
        say(["", f"{until} To see all operations: xprof {user_path(run.profile)}"])


def _steer(name: str | None, asked: str, key: str = "", value: str = "") -> None:
    """Send a request named like the command, or like the key that `set` changes, and wait a moment for the answer."""
    details = _the_run(name)
    run, answer = details.run, None
    reader, number = _ask(details, Steering(key or asked), asked, value)
    if details.status is not Status.SILENT:
        answer = _answer(run, reader, lambda event: isinstance(event, Steered) and event.request == number)
    if isinstance(answer, Steered):
        say([f"{run.run_id}: {change_text(answer)}, at step {answer.step:,}."])
    elif answer is not None:
        raise ConsoleError(f"{run.run_id} ended before it read the request.")
    else:
        busy = busy_text(details.state, time.time()) or "it has not answered yet"
        say([f"{run.run_id} will carry this out between two executions; {busy}."])


def _the_run(name: str | None, *, has_to_train: bool = True) -> Overview:
    """Read a run, by default the one that trains; end the command if it has to train and does not."""
    from ..following.overview import read_details, read_overviews

    if name:
        details = read_details(find_run(name))
    else:
        # Check processes first: this avoids reading the journals of the many runs that have ended.
        candidates = [run for run in list_runs() if liveness_of(run) is not Liveness.DEAD]
        live = [overview.run for overview in read_overviews(candidates) if overview.status.is_live]
        if not live:
            raise RunNotFoundError("No run is training.", remedy="To list your runs: tpu-console runs")
        if len(live) > 1:
            remedy = f"Name one: {', '.join(run.run_id for run in live)}"
            raise RunNotFoundError("Several runs are training.", remedy=remedy)
        details = read_details(live[0])
    if has_to_train and not details.status.is_live:
        say([f"{details.run.run_id} is not training: {details.status}."])
        raise click.exceptions.Exit(0)
    return details


def _ask(details: Overview, what: Steering, asked: str, value: str = "") -> tuple[JournalReader, str]:
    """Send a request; return a reader of what the run writes after it, and the request's number."""
    run, started = details.run, details.state.started
    if what is not Steering.STOP and started is not None and started.source == RunSource.NOTEBOOK:
        raise ConsoleError(f"{run.run_id} trains in a notebook, so it can only be stopped after a step.")
    reader = JournalReader(run.journal)
    while reader.read():
        pass
    return reader, ask(run, what, f"requested with tpu-console {asked}", value)


def _answer(run: RunDirectory, reader: JournalReader, is_it: Callable[[Answer], bool]) -> Answer | None:
    """Wait for the run's answer, or its end; None if there is none in time. Raise `ConsoleError` if it refuses."""
    deadline = time.monotonic() + _ANSWER_S
    while True:
        for record in reader.read():
            event = record.event
            if isinstance(event, RunFinished | RunFailed):
                return event
            if isinstance(event, Steered | Profiled | StopRequested) and is_it(event):
                if isinstance(event, Steered) and event.refused:
                    raise ConsoleError(f"{run.run_id}: {change_text(event)}.")
                return event
        if time.monotonic() >= deadline:
            return None
        time.sleep(_LOOK_S)


def _kill(details: Overview, *, asks: bool) -> None:
    """End the process of a run without saving."""
    from tpu_console.engine.process.launch import end_now

    run, started = details.run, details.state.started
    if started is not None and started.source != RunSource.PROCESS:
        raise ConsoleError(f"{run.run_id} has no separate process; only `tpu-console stop` can end it.")
    if asks:
        if not sys.stdin.isatty():
            raise click.UsageError("--now asks before it kills; without a terminal, add --yes.")
        click.confirm(f"Kill {run.run_id}? Work since its last checkpoint is lost.", abort=True, err=True)
    end_now(run, "requested with tpu-console stop --now", responds=details.status is not Status.SILENT)
    say([f"Killed {run.run_id}; its checkpoints are kept."])
