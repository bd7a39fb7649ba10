"""The run that a `BridgeCallback` in a notebook or script makes."""

from __future__ import annotations

import inspect
import json
import os
import socket
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from ..config.options import Alerts
from ..errors import ConsoleError
from ..monitoring.alerts import AlertWatch
from ..monitoring.sampler import Sampler
from ..runs.control import Control
from ..runs.events import RunFailed, RunFinished, RunOutcome, RunSource, RunStarted
from ..runs.facts import conclude
from ..runs.heartbeat import TICK_S, Heartbeat
from ..runs.journal import JournalWriter
from ..runs.recorder import Recorder
from ..runs.run_directory import RunDirectory, all_or_nothing, cannot_begin, create_run
from .summary import state_of, summary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType


open_display: Callable[[RunDirectory], Callable[[], None]] | None = None
"""Draws a run in the notebook's cell; returns a function that ends it. `tpu_console` sets it, not the engine."""


class NotebookRun:
    """Makes the run, writes its heartbeat and samples the machine while `fit` runs, and ends it.

    Keras calls no callback when an exception or the notebook's stop button ends `fit`. So the heartbeat thread checks
    that the `fit` that made the run is still on its thread's stack, and ends the run if not.

    If a callback of KerasTuner or Optuna is in the same `fit`, the run has the number and hyperparameters of its trial.

    Raises:
        ConsoleError: The run folder cannot be written.
    """

    def __init__(self, label: str, config: Mapping[str, Any] | None = None, *, display: bool = False) -> None:
        self._fit = _fit_frame(inspect.currentframe())
        self._trial = _trial_beside(self._fit)
        if (trial := self._trial) is not None:
            given = trial.hyperparameters.values if hasattr(trial, "hyperparameters") else trial.params
            label += f"-{getattr(trial, 'trial_id', getattr(trial, 'number', ''))}"
            config = {**given, **(config or {})}
        values = json.loads(json.dumps(dict(config or {}), default=str))  # what JSON cannot hold becomes text
        run = create_run(label)
        try:
            with all_or_nothing(run):
                journal = JournalWriter(run.journal)
                control = Control()
                heartbeat = Heartbeat(run, journal, control, self._stop_recording)
        except OSError as error:
            raise cannot_begin(run.path.parent, error) from error
        self.recorder = Recorder(run, journal, control)
        self.recorder.emit(RunStarted(label, RunSource.NOTEBOOK, os.getpid(), socket.gethostname(), values))
        self._thread = threading.get_ident()
        self._over = threading.Event()
        self._close_display: Callable[[], None] | None = None
        self.recorder.listen(AlertWatch(self.recorder, Alerts(nan="warn")).hear)
        self._sampler = Sampler(self.recorder)
        self._sampler.start()
        self._beat = threading.Thread(target=self._watch, args=(heartbeat,), name="tpu-console-heartbeat", daemon=True)
        self._beat.start()
        if display:
            self._close_display = _displayed(run)

    def finish(self, reason: str = "fit returned") -> None:
        """End the run; the reason counts unless it was asked to stop."""
        asked = self.recorder.control.reason
        outcome, reason = RunOutcome.STOPPED if asked else RunOutcome.COMPLETED, asked or reason
        if not self._over.is_set():  # it may no longer be recorded
            self.end(RunFinished(outcome, reason, summary_of(state_of(self.recorder), outcome, reason)))
        self._beat.join(2.0)

    def _stop_recording(self, why: str) -> None:
        """End the run, but not `fit`, whose model is in the notebook."""
        warnings.warn(f"tpu-console no longer records {self.recorder.run.run_id}: {why}.", stacklevel=2)
        self.end(RunFailed(f"The run is no longer recorded: {why}.", "", "", log=""))

    def _watch(self, heartbeat: Heartbeat) -> None:
        while not self._over.wait(TICK_S):
            try:
                heartbeat.tick()
            except OSError:
                continue  # a full disk now may have room later
            if not _is_on_stack(self._thread, self._fit):
                self.end(
                    RunFinished(RunOutcome.EARLY, "Optuna pruned the trial", {})
                    if _is_pruned(self._trial)
                    else RunFailed(
                        what="fit() ended before its last epoch.",
                        why="It was interrupted, or an exception was raised in the notebook or script that called it.",
                        remedy="See the output of the cell that called fit().",
                        log="",
                    )
                )

    def end(self, event: RunFinished | RunFailed) -> None:
        """Write the run's last event."""
        if self._over.is_set():
            return
        self._over.set()
        self._sampler.stop()
        self.recorder.emit(event)
        self.recorder.journal.close()
        conclude(self.recorder.run)
        if self._close_display is not None:
            self._close_display()
        self._fit = None  # frees fit's local variables


def _displayed(run: RunDirectory) -> Callable[[], None] | None:
    """Draw a run in the notebook's cell; if that is not possible, training goes on without it."""
    if open_display is None:
        return None
    try:
        return open_display(run)
    except ConsoleError as error:
        warnings.warn(f"display=True has no effect. {error}", stacklevel=2)
        return None


def numbers(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the metrics that are single numbers, sorted by name; Keras also passes on others, and some in groups."""
    found: dict[str, float] = {}
    for name, value in sorted((logs or {}).items()):
        if isinstance(value, dict):
            found |= numbers(value)
            continue
        try:
            found[name] = float(value)
        except (TypeError, ValueError):
            continue
    return found


def _fit_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost `fit` on this stack; None if there is none."""
    while frame is not None and frame.f_code.co_name != "fit":
        frame = frame.f_back
    return frame


def _trial_beside(frame: FrameType | None) -> Any:
    """Return the trial of KerasTuner or Optuna that a callback of this `fit` belongs to; None if there is none."""
    listed = frame.f_locals.get("callbacks") if frame is not None else None
    for callback in getattr(listed, "callbacks", listed) or ():
        for trial in (getattr(callback, "trial", None), getattr(callback, "_trial", None)):
            if hasattr(trial, "hyperparameters") or hasattr(trial, "should_prune"):
                return trial
    return None


def _is_pruned(trial: Any) -> bool:
    try:
        return bool(trial.should_prune())
    except Exception:  # noqa: BLE001  no trial of Optuna, or its storage is gone
        return False


def _is_on_stack(thread: int, wanted: FrameType | None) -> bool:
    if wanted is None:
        return True  # called without fit: nothing to look for
    frame = sys._current_frames().get(thread)  # noqa: SLF001  the documented way to look at another thread
    while frame is not None:
        if frame is wanted:
            return True
        frame = frame.f_back
    return False
