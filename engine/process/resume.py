"""Resumes a run that was interrupted, in its own folder."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..config.reading import load_config, with_changes
from ..config.run_config import RunConfig, flat_values, to_toml
from ..config.user_code import check_started, note_start
from ..config.values import parse_piece
from ..errors import ConsoleError
from ..runs.checkpoint import Header, newest_checkpoint
from ..runs.control import take_requests
from ..runs.events import RunFinished, RunOutcome, Steering
from ..runs.facts import conclude_killed
from ..runs.follower import StateReader
from ..runs.heartbeat import Liveness, liveness_of
from ..runs.run_directory import RunDirectory, cannot_begin, is_named, list_runs
from ..runs.state import RunState
from ..storage.files import write_whole
from .launch import RunningError, lock_run, start_host

# Settings without which the variables of a checkpoint would have no place.
_FIXED = ("model", "model_options.", "optimizer.name", "fine_tuning.after_epochs", "name")
_LONGEST_EXIT_S, _LOOK_S = 15.0, 0.2


class FinishedError(ConsoleError):
    """The run has nothing left to do."""


class Resumption(Struct, frozen=True):
    """A run that is ready to go on; it is locked until it is started or given up."""

    run: RunDirectory
    config: RunConfig  # what it trains from now on
    checkpoint: str  # the checkpoint's name; empty if it has none and begins again
    at: Header | None  # where the checkpoint was taken; None without one
    changes: tuple[str, ...]  # what is different from now on, one line each
    earlier: int  # how often the run was resumed before
    lock: int

    def start(self) -> subprocess.Popen[bytes]:
        """Start the training process; raise `ConsoleError` if it cannot be started."""
        self.make_ready()
        return start_host(self.run, self.checkpoint, self.lock)

    def make_ready(self) -> None:
        """Write what the process that trains it needs; raise `ConsoleError` if it cannot be written."""
        try:
            note_start(self.config)
        except OSError as error:
            raise cannot_begin(self.run.path.parent, error) from error
        if self.changes:
            # Synced: it replaces a file without which the run's checkpoints are lost.
            write_whole(self.run.config, to_toml(self.config))
        take_requests(self.run)  # what was asked of the process that is gone

    def give_up(self) -> None:
        """Unlock the run."""
        os.close(self.lock)


def prepare_resumption(
    run: RunDirectory, changes: Sequence[tuple[str, Any]] = (), *, trust: bool = False
) -> Resumption:
    """Find the newest whole checkpoint of a run, and check that the run can go on from it with some settings changed.

    Raises `UntrustedCodeError` if it reaches more than what the user started, and is not trusted, `ConfigError` for a
    wrong change, and `ConsoleError` if it still trains, has finished, or cannot go on with these changes.
    """
    if not run.config.exists():
        what = f"{run.run_id} was trained by a notebook or script, so only that can train it again."
        raise ConsoleError(what, remedy="Run it again, with a callback such as keras.callbacks.BackupAndRestore.")
    deadline = time.monotonic() + _LONGEST_EXIT_S
    while True:
        try:
            lock = lock_run(run)
            break
        except RunningError:  # a process that has written its last event ends within seconds
            if time.monotonic() > deadline or StateReader(run).catch_up().end is None:
                raise
        time.sleep(_LOOK_S)
    try:
        if run.heartbeat.exists() and liveness_of(run) is not Liveness.DEAD:
            raise RunningError(run)
        before = load_config(run.config)
        state = StateReader(run).catch_up()
        conclude_killed(run, state, is_locked=True)
        asked = [event.after for event in state.steered if event.action == Steering.EPOCHS and not event.refused]
        if state.fit is not None and asked and asked[-1] == state.fit.epochs:  # changed while it trained
            changes = [("epochs", state.fit.epochs), *changes]
        config = with_changes(before, changes) if changes else before
        found = newest_checkpoint(run)
        at = found[1] if found is not None else None
        _check_unfinished(run, state, at, config)
        if not trust:
            check_started(run.run_id, config, given=dict(changes))
        name = found[0].name if found is not None else ""
        differences = _changes(before, config, has_checkpoint=at is not None)
        return Resumption(run, config, name, at, differences, len(state.resumed), lock)
    except BaseException:
        os.close(lock)
        raise


def _check_unfinished(run: RunDirectory, state: RunState, at: Header | None, config: RunConfig) -> None:
    done = at.epoch if at is not None else 0
    if not isinstance(state.end, RunFinished) or state.end.outcome == RunOutcome.STOPPED:
        if done > config.epochs:
            raise ConsoleError(f"{done} epochs are done, and only {config.epochs} were asked for.")
        return
    change, waited = "", int(at.patience.get("wait", 0)) if at is not None else 0
    if state.end.outcome == RunOutcome.EARLY and 0 < config.early_stopping.patience <= waited:
        change = f"--set early_stopping.patience={2 * waited}"
    elif config.epochs <= len(state.epochs):
        change = f"--epochs {2 * len(state.epochs)}"
    if change:
        what = f"{run.run_id} has finished: {state.end.reason}."
        raise FinishedError(what, remedy=f"To train on: tpu-console resume {run.run_id} {change}")
    if at is None:
        raise ConsoleError(f"{run.run_id} has finished and has no checkpoint.", remedy="Start a new run.")


def _changes(before: RunConfig, after: RunConfig, *, has_checkpoint: bool) -> tuple[str, ...]:
    old, new = flat_values(before), flat_values(after)
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    is_same = parse_piece(before.optimizer.name).name == parse_piece(after.optimizer.name).name
    fixed = [key for key in keys if key.startswith(_FIXED) and not (key == "optimizer.name" and is_same)]
    if fixed and has_checkpoint:
        raise ConsoleError(
            f"{fixed[0]} cannot change from {old.get(fixed[0])} to {new.get(fixed[0])} in a resumed run.",
            why="The checkpoint holds the variables of the model and optimizer it was trained with.",
            remedy="Start a new run.",
        )
    return tuple(f"{key}: {old.get(key)} → {new.get(key)}" for key in keys)


def newest_run_named(name: str, folder: Path | None = None) -> RunDirectory | None:
    """Return the newest run with a label; None if there is none."""
    return next((run for run in list_runs(folder) if is_named(run.run_id, name)), None)
