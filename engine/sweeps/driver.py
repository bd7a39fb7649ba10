"""The process that trains the runs of a sweep: ``python -P -m tpu_console.engine.sweeps.driver FOLDER LOCK``.

It starts one run at a time and waits for its end. Like any run, it has its own process and continues if this one is
killed; the next one, of `tpu-console sweep --resume`, waits for it. LOCK is the descriptor of the sweep's lock.
"""

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..config.run_config import RunConfig
from ..config.user_code import note_start
from ..errors import ConsoleError
from ..machine.devices import detect_hardware
from ..planning import make_plan
from ..process.launch import FinishedError, prepare_resumption, prepare_run, start_host
from ..runs.control import ask
from ..runs.events import EpochEnded, RunFinished, RunOutcome, Steering
from ..runs.follower import RunFollower, StateReader
from ..runs.heartbeat import HeartbeatWatch, Liveness
from ..runs.run_directory import RunDirectory, RunningError
from ..runs.state import RunState
from ..storage.paths import sweeps_folder
from .cells import Cell, Trials, cells_of, is_pruned, parse_axes
from .folder import PRUNED, STOPPED, Sweep, lock_when_free

_POLL_S = 0.2


class Grid:
    """Gives every combination that is not done once, and again if a retry is requested."""

    def __init__(self, sweep: Sweep, cells: Sequence[Cell]) -> None:
        self._sweep, self._cells = sweep, cells
        self._attempted: set[int] = set()

    def next(self) -> Cell | None:
        """Return the next run; None at the end."""
        runs = self._sweep.runs()
        for cell in self._cells:
            is_retried = self._sweep.requested(f"retry-{cell.number:04}", taken=True)
            if cell.number not in self._attempted or is_retried:
                self._attempted.add(cell.number)
                if cell.number not in runs or not is_done(runs[cell.number]):
                    return cell
        return None

    def judge(self, epoch: EpochEnded) -> bool:  # noqa: ARG002  a combination is always trained to its end
        """Return whether the run should be stopped."""
        return False

    def ended(self, cell: Cell, state: RunState | None) -> None:
        """Do nothing: the run's journal says how it ended."""


def is_done(run: RunDirectory) -> bool:
    """Return whether nothing of a run is left to do: it finished, or was pruned."""
    state = StateReader(run).catch_up()
    return is_pruned(state) or (isinstance(state.end, RunFinished) and state.end.outcome != RunOutcome.STOPPED)


def refusal(config: RunConfig | None) -> str:
    """Say why the plan of this machine refuses a configuration; empty if it does not."""
    if config is None:
        return "its values do not fit together"
    plan = make_plan(config, detect_hardware())
    return "" if plan.is_possible else plan.advice[0].text


def drive(sweep: Sweep) -> None:
    """Train what is left of a sweep, until it is done or asked to stop."""
    definition = sweep.checked().read()
    axes = parse_axes(definition.over)
    source: Grid | Trials
    if definition.search:
        source = Trials(sweep, definition, axes)
    else:
        source = Grid(sweep, cells_of(definition.config, axes, definition.repeat))
    while not sweep.is_stopping and (cell := source.next()) is not None:
        if cell.config is None or refusal(cell.config):
            source.ended(cell, None)
            continue
        # One sweep trains on a machine at a time.
        lock = lock_when_free(sweeps_folder() / f".training-{platform.node()}", lambda: sweep.is_stopping)
        state = None if sweep.is_stopping else _train(sweep, cell.number, cell.config, source)
        if lock is not None:
            os.close(lock)
        if state is not None:
            source.ended(cell, state)


def _train(sweep: Sweep, number: int, config: RunConfig, source: Grid | Trials) -> RunState | None:
    """Start or resume the run of a cell and wait for the end of its process; None if it cannot be started."""
    process = None
    if (run := sweep.runs().get(number)) is None:
        # Noted before any list shows the run: if this process is killed, no run is left outside the sweep.
        run = prepare_run(config, on_named=lambda named: sweep.note(number, named))
    try:
        if not run.heartbeat.exists() and not (run.journal.exists() and run.journal.stat().st_size):
            process = start_host(run)
        elif not is_done(run):
            note_start(config)  # which the sweep names
            process = prepare_resumption(run).start()
    except (RunningError, FinishedError):
        pass  # it trains, because only this process was killed; or it ended while this one was away
    except ConsoleError as error:
        print(f"{run.run_id}: {error}", file=sys.stderr, flush=True)
        return None
    return _followed(sweep, run, process, source)


def _followed(
    sweep: Sweep, run: RunDirectory, process: subprocess.Popen[bytes] | None, source: Grid | Trials
) -> RunState:
    """Wait until nothing trains a run; pass on its epochs, and a request to stop."""
    follower, watch = RunFollower(run), HeartbeatWatch(run)
    judged, is_asked = 0, False
    while True:
        is_over = process.poll() is not None if process is not None else watch.look().liveness is Liveness.DEAD
        state = follower.catch_up().state
        worse = [epoch for epoch in state.epochs[judged:] if source.judge(epoch)]
        judged = len(state.epochs)
        if is_over:
            return state
        why = PRUNED if worse and state.end is None else STOPPED if sweep.requested("stop-run") else ""
        if why and not is_asked:
            ask(run, Steering.STOP, why)
            is_asked = True
        time.sleep(_POLL_S)


def main(arguments: Sequence[str]) -> int:
    """Train the runs of a sweep; return the exit code."""
    os.umask(0o077)
    sweep = Sweep(Path(arguments[0]))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sweep.request("stop-run"))
    try:
        drive(sweep)
    except ConsoleError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
