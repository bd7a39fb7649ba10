"""Runs of notebooks and scripts: what `BridgeCallback` makes of a `fit`, and `Run` of a custom training loop."""

import inspect
import json
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from ..config.options import Alerts
from ..errors import ConsoleError
from ..monitoring.alerts import AlertWatch
from ..monitoring.sampler import Sampler
from ..runs import events
from ..runs.control import Control
from ..runs.events import EpochEnded, FitStarted, Phase, Progress, RunFailed, RunFinished
from ..runs.facts import conclude, summary_of
from ..runs.heartbeat import Heartbeat, HeartbeatThread
from ..runs.journal import JournalWriter
from ..runs.metrics import metric_called
from ..runs.recorder import Recorder
from ..runs.run_directory import RunDirectory, all_or_nothing, cannot_begin, create_run

open_display: Callable[[RunDirectory], Callable[[], None]] | None = None
"""Draws a run in the notebook's cell; returns a function that ends it. `tpu_console` sets it, not the engine."""


class NotebookRun:
    """Makes the run, writes its heartbeat and samples the machine while `fit` runs, and ends it.

    Keras calls no callback when an exception or the notebook's stop button ends `fit`. So the heartbeat thread checks
    that the `fit` that made the run is still on its thread's stack, and ends the run if not.
    """

    def __init__(self, label: str, config: Mapping[str, Any] | None = None, *, display: bool = False) -> None:
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_name != "fit":
            frame = frame.f_back
        self._fit = frame  # the innermost `fit` on this stack; None if there is none
        values = json.loads(json.dumps(dict(config or {}), default=str))  # what JSON cannot hold becomes text
        run = create_run(label)
        try:
            with all_or_nothing(run):
                journal = JournalWriter(run.journal)
                control = Control()
                heartbeat = Heartbeat(run, journal, control, self._stop_recording)
        except OSError as error:
            raise cannot_begin(run.path.parent, error) from error
        self.recorder, process = Recorder(run, journal, control), (os.getpid(), socket.gethostname())
        self.recorder.emit(events.RunStarted(label, events.RunSource.NOTEBOOK, *process, values))
        self._thread = threading.get_ident()
        self._close_display: Callable[[], None] | None = None
        self.recorder.listen(AlertWatch(self.recorder, Alerts(nan="warn")).on_event)
        self._sampler = Sampler(self.recorder)
        self._sampler.start()
        self._beat = HeartbeatThread(heartbeat, self._look)
        self._beat.start()
        if display and open_display is not None:
            try:
                self._close_display = open_display(run)
            except ConsoleError as error:
                warnings.warn(f"display=True has no effect. {error}", stacklevel=2)

    def finish(self, reason: str = "fit returned") -> None:
        """End the run; the reason counts unless it was asked to stop."""
        asked = self.recorder.control.reason
        outcome, reason = events.RunOutcome.STOPPED if asked else events.RunOutcome.COMPLETED, asked or reason
        if not self._beat.stopped.is_set():  # it may no longer be recorded
            self.end(RunFinished(outcome, reason, summary_of(self.recorder.state(), outcome, reason)))
        self._beat.join(2.0)

    def _stop_recording(self, why: str) -> None:
        """End the run, but not `fit`, whose model is in the notebook."""
        warnings.warn(f"tpu-console no longer records {self.recorder.run.run_id}: {why}.", stacklevel=2)
        self.end(RunFailed(f"The run is no longer recorded: {why}.", "", "", log=""))

    def _look(self) -> None:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001  the documented way to look at a thread
        while frame is not None and frame is not self._fit:
            frame = frame.f_back
        if self._fit is not None and frame is None:
            why = "It was interrupted, or an exception was raised in the notebook or script that called it."
            remedy = "See the output of the cell that called fit()."
            self.end(RunFailed("fit() ended before its last epoch.", why, remedy, ""))

    def end(self, event: RunFinished | RunFailed) -> None:
        """Write the run's last event."""
        if self._beat.stopped.is_set():
            return
        self._beat.stopped.set()
        self._sampler.stop()
        self.recorder.emit(event)
        self.recorder.journal.close()
        conclude(self.recorder.run)
        if self._close_display is not None:
            self._close_display()
        self._fit = None  # frees fit's local variables


def numbers(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the metrics that are single numbers, sorted by name; Keras also passes on others, and some in groups."""
    found: dict[str, float] = {}
    for name, value in sorted((logs or {}).items()):
        with suppress(TypeError, ValueError):
            found |= numbers(value) if isinstance(value, dict) else {name: float(value)}
    return found


PROGRESS_S = 0.1  # shortest time between two points


class Run:
    """A run of a custom training loop, which calls no Keras callbacks; begins and ends with the `with` block.

    In a script or notebook ::

        from tpu_console import Run

        with Run("my-loop", config={"learning_rate": 0.1}, epochs=3) as run:
            for step, batch in enumerate(batches, 1):
                run.log(step, loss=train(batch))
                if run.should_stop:
                    break

    Args:
        config: Hyperparameters to show beside it.
        epochs: Epochs planned, if the loop has epochs.
        steps_per_epoch: Steps of each, if known.
        batch_size: Examples per step, for the speed.
        monitor: The metric that decides which epoch is best; by default ``val_loss`` if logged, else ``loss``.
        display: Whether to draw the run in the notebook's cell while it trains.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        name: str = "loop",
        *,
        config: Mapping[str, Any] | None = None,
        epochs: int = 1,
        steps_per_epoch: int | None = None,
        batch_size: int | None = None,
        monitor: str = "",
        display: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._config, self._display, self._clock = name, config, display, clock
        self._plan = FitStarted(epochs, steps_per_epoch, batch_size, batch_size, 1, monitor=monitor)
        self._epoch, self._step, self._epoch_began_at = 1, 0, 0
        self._logs: dict[str, float] = {}
        self._next = 0.0

    def __enter__(self) -> Self:
        """Begin the run."""
        self._made = NotebookRun(self._name, self._config, display=self._display)
        self._recorder = self._made.recorder
        self._recorder.emit(self._plan)
        self._recorder.enter(Phase.TRAINING)
        self._began = self._epoch_began = self._clock()
        return self

    def log(self, step: int, **metrics: Any) -> None:
        """Log the metrics of a step, counted from 1 over the whole run; more than ten per second are thinned out."""
        now, in_epoch = self._clock(), step - self._epoch_began_at
        logs, known = numbers(metrics), self._step - self._epoch_began_at
        for name, value in logs.items():
            # As Keras reports it, and as it is read: the mean since the epoch began, if it is a mean.
            if name in self._logs and metric_called(name).is_mean and in_epoch > 0 and known:
                logs[name] = (self._logs[name] * known + value * (in_epoch - known)) / in_epoch
        self._step = step
        self._logs |= logs
        if now >= self._next:
            self._next = now + PROGRESS_S
            logs.pop("learning_rate", None)  # one per epoch is charted
            self._recorder.emit(Progress(self._epoch, in_epoch, step, now - self._began, logs))

    def end_epoch(self, **metrics: Any) -> None:
        """End an epoch; its metrics are these and the logged ones, as means over the epoch or as newest values."""
        now, steps, batch = self._clock(), self._step - self._epoch_began_at, self._plan.global_batch
        seconds = now - self._epoch_began
        ended = EpochEnded(
            epoch=self._epoch,
            step=self._step,
            epoch_steps=steps,
            elapsed_s=now - self._began,
            seconds=seconds,
            compile_s=0.0,
            validation_s=0.0,
            step_ms=1e3 * seconds / steps if steps else None,
            examples_per_s=batch * steps / seconds if batch and steps else None,
            learning_rate=self._logs.pop("learning_rate", None),
            logs=self._logs | numbers(metrics),
        )
        self._recorder.emit(ended)
        self._epoch, self._epoch_began_at, self._epoch_began = self._epoch + 1, self._step, now

    @property
    def should_stop(self) -> bool:
        """Whether the console asked the run to stop."""
        return self._recorder.should_stop()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """End the run, as failed after an exception."""
        if error is None:
            if self._step > self._epoch_began_at:
                self.end_epoch()
            self._made.finish("the loop ended")
        else:
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            self._made.end(RunFailed(what, "It was raised in the training loop.", "See the output of the script.", ""))
