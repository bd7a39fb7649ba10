"""Starts the training process of a run, new, warmed up or to resume it, in a session of its own, and ends it, unsaved.

The process survives the terminal.
"""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from ..config.reading import load_config, with_changes
from ..config.run_config import RunConfig, flat_values, to_toml
from ..config.user_code import check_started, note_start
from ..config.values import parse_piece
from ..errors import ConsoleError
from ..messages import start_module
from ..runs.control import ask, is_waiting, take_requests
from ..runs.events import RunFinished, RunOutcome, Steering
from ..runs.heartbeat import LARGEST_HEARTBEAT, Liveness, Sight, liveness_of, look_for, write_heartbeat
from ..runs.run_directory import RunDirectory, RunningError, all_or_nothing, cannot_begin, create_run, lock_run
from ..storage.files import open_private, read_json, write_whole

if TYPE_CHECKING:
    from ..runs.checkpoint import Header
    from ..runs.state import RunState

WARM = "--warm"
FREE_BYTES = 4 << 30
_PATIENCE_S, _ASKED_EVERY_S = 5.0, 0.1
_LONGEST_EXIT_S, _LOOK_S = 15.0, 0.2
# Settings without which the variables of a checkpoint would have no place.
_FIXED = ("model", "model_options.", "optimizer.name", "fine_tuning.after_epochs", "name")


def prepare_run(
    config: RunConfig,
    folder: Path | None = None,
    label: str = "",
    on_named: Callable[[RunDirectory], object] = lambda _: None,
) -> RunDirectory:
    """Create the run directory of a configuration that the user starts; the label is its name by default.

    `on_named` is called when the run has its name, and before any list shows it.
    """
    run = create_run(label or config.name, folder)
    try:
        with all_or_nothing(run):
            on_named(run)
            note_start(config)
            write_whole(run.config, to_toml(config), is_synced=False)
            run.journal.touch(mode=0o600)
    except OSError as error:
        raise cannot_begin(run.path.parent, error) from error
    return run


def launch_environment() -> dict[str, str]:
    """Return the environment of a training process."""
    return {"TF_CPP_MIN_LOG_LEVEL": "1"} | os.environ


def may_warm(free_bytes: int, load: float, cores: int, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a process may be warmed up: the user allows it, there is memory, and the machine is idle.

    `load` is the mean number of processes that wanted to run in the last minute.
    """
    is_allowed = environ.get("TPU_CONSOLE_PREWARM", "true").lower() not in {"false", "0", "no", "off"}
    return is_allowed and free_bytes >= FREE_BYTES and load < cores


class WarmHost(Struct, frozen=True):
    """A process that waits for a run, as the process that started it sees it."""

    process: subprocess.Popen[bytes]
    environment: Mapping[str, str]
    variables: Mapping[str, str]  # what it set before it imported the framework
    _channel: socket.socket

    @classmethod
    def start(cls, environment: Mapping[str, str], variables: Mapping[str, str]) -> Self:
        """Start one; raise `OSError` if it cannot be started."""
        ours, theirs = socket.socketpair()
        # What importing prints goes to the log of the run, which is not known yet.
        with theirs, tempfile.TemporaryFile() as output:
            streams: dict[str, Any] = {"stdin": theirs.fileno(), "stdout": output, "stderr": subprocess.STDOUT}
            process = start_module("engine.process.main", WARM, json.dumps(variables), env=environment, **streams)
        return cls(process, environment, variables, ours)

    def fits(self, environment: Mapping[str, str], variables: Mapping[str, str]) -> bool:
        """Return whether it is what a new process would be: it lives, and nothing in the environment differs."""
        return self.process.poll() is None and (self.environment, self.variables) == (environment, variables)

    def hand_over(self, arguments: Sequence[str], log: int, lock: int) -> bool:
        """Give it the arguments of `main`, and the descriptors of log and lock; return whether it got them."""
        message = json.dumps(arguments).encode()
        try:
            sent = socket.send_fds(self._channel, [message], [log, lock])
        except OSError:
            sent = 0
        self._channel.close()
        return sent == len(message)

    def end(self) -> None:
        """End it."""
        self._channel.close()
        self.process.kill()
        self.process.wait()


def start_host(
    run: RunDirectory, resumes: str | None = None, lock: int | None = None, warm: WarmHost | None = None
) -> subprocess.Popen[bytes]:
    """Start the process that trains a prepared run, without a terminal; its output goes to ``console.log``.

    `resumes` is the checkpoint with which the run goes on; empty if it has none, None for a new run. The process holds
    the lock, of `lock_run`, which is taken here by default. If the warm one has died, another process is started.
    Raises `ConsoleError` if it cannot be started.
    """
    lock = lock_run(run) if lock is None else lock
    try:
        with open(run.log, "ab", opener=open_private) as log:
            arguments = [str(run.path), *([] if resumes is None else [resumes])]
            if warm is not None and warm.hand_over(arguments, log.fileno(), lock):
                process = warm.process
            else:
                options: dict[str, Any] = {"stdout": log, "stderr": subprocess.STDOUT, "env": launch_environment()}
                process = start_module("engine.process.main", *arguments, pass_fds=(lock,), **options)
    except OSError as error:
        raise ConsoleError(f"The training process cannot be started: {error.strerror}.") from error
    finally:
        os.close(lock)
    # Written here too, so that a process that dies immediately is seen to be dead. On a disk that has just become full
    # only the process itself can write it, because it has the reserve.
    with suppress(OSError):
        write_heartbeat(run, process.pid)
    return process


class FinishedError(ConsoleError):
    """The run has nothing left to do."""


class Resumption(Struct, frozen=True):
    """A run that is ready to go on; it is locked until it is started or given up."""

    run: RunDirectory
    config: RunConfig  # what it trains from now on
    checkpoint: str  # the checkpoint's name; empty if it has none and begins again
    at: "Header | None"  # where the checkpoint was taken; None without one
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
    # Not at the top: reading states takes NumPy, which a new run's process, started first, need not wait for.
    from ..runs.checkpoint import newest_checkpoint
    from ..runs.facts import conclude_killed
    from ..runs.follower import StateReader

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


def _check_unfinished(run: RunDirectory, state: "RunState", at: "Header | None", config: RunConfig) -> None:
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


def end_now(run: RunDirectory, by: str, *, responds: bool) -> None:
    """End the process of a run: it does so itself, with a last event, or is killed, at once if it does not respond.

    `by` says who asks, and how. Raises `ConsoleError` if it does not respond, and its process cannot be seen from here,
    or `OSError` if the request cannot be written.
    """
    number = ask(run, Steering.END_NOW, by)
    deadline = time.monotonic() + _PATIENCE_S * responds
    while time.monotonic() < deadline:
        if not is_waiting(run, number):
            return  # it has read it, and ends
        time.sleep(_ASKED_EVERY_S)
    if liveness_of(run) is Liveness.DEAD:
        return
    import psutil

    with suppress(OSError, ValueError, psutil.Error):
        beat = read_json(run.heartbeat, LARGEST_HEARTBEAT)
        if isinstance(beat, dict) and look_for(beat) is Sight.RUNNING:
            opened = {file.path for file in psutil.Process(beat["pid"]).open_files()}
            # Anybody may have written the heartbeat: only a process that has the run's journal open is killed.
            if str(run.journal.resolve()) in opened:
                with suppress(ProcessLookupError):
                    os.kill(beat["pid"], signal.SIGKILL)
                return
    what = f"{run.run_id} does not respond, and its process cannot be seen from here."
    raise ConsoleError(what, remedy="Kill it on the machine where it runs; `tpu-console runs show` names it.")
