"""`Run`: reports a custom training loop, which calls no Keras callbacks.

In a script or notebook ::

    from tpu_console import Run

    with Run("my-loop", config={"learning_rate": 0.1}, epochs=3) as run:
        for step, batch in enumerate(batches, 1):
            run.log(step, loss=train(batch))
            if run.should_stop:
                break
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from ..runs.events import EpochEnded, FitStarted, Phase, Progress, RunFailed
from ..runs.metrics import metric_called
from .notebook import NotebookRun, numbers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_PROGRESS_S = 0.1  # shortest time between two points


class Run:
    """A run that the console shows live; it begins with the `with` block and ends with it.

    Args:
        config: Hyperparameters to show beside it.
        epochs: Epochs planned, if the loop has epochs.
        steps_per_epoch: Steps of each, if known.
        batch_size: Examples per step, for the speed.
        monitor: The metric that decides which epoch is best; by default ``val_loss`` if logged, else ``loss``.
        display: Whether to draw the run in the notebook's cell while it trains.
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
    ) -> None:
        self._name, self._config, self._display = name, config, display
        self._plan = FitStarted(
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            global_batch=batch_size,
            replica_batch=batch_size,
            steps_per_execution=1,
            execution_reason="",
            monitor=monitor,
        )
        self._epoch = 1
        self._step = self._epoch_began_at = 0
        self._logs: dict[str, float] = {}
        self._next = 0.0

    def __enter__(self) -> Self:
        """Begin the run."""
        self._made = NotebookRun(self._name, self._config, display=self._display)
        self._recorder = self._made.recorder
        self._recorder.emit(self._plan)
        self._recorder.enter(Phase.TRAINING)
        self._began = self._epoch_began = time.monotonic()
        return self

    def log(self, step: int, **metrics: Any) -> None:
        """Log the metrics of a step, counted from 1 over the whole run; more than ten per second are thinned out."""
        now, in_epoch = time.monotonic(), step - self._epoch_began_at
        logs = {name: self._since_epoch_began(name, value, step) for name, value in numbers(metrics).items()}
        self._step = step
        self._logs |= logs
        if now >= self._next:
            self._next = now + _PROGRESS_S
            logs.pop("learning_rate", None)  # one per epoch is charted
            self._recorder.emit(Progress(self._epoch, in_epoch, step, now - self._began, logs))

    def _since_epoch_began(self, name: str, value: float, step: int) -> float:
        """Return a metric as Keras reports it, and as it is read: the mean since the epoch began, if it is a mean."""
        in_epoch, known = step - self._epoch_began_at, self._step - self._epoch_began_at
        if name not in self._logs or not metric_called(name).is_mean or in_epoch <= 0 or not known:
            return value
        return (self._logs[name] * known + value * (in_epoch - known)) / in_epoch

    def end_epoch(self, **metrics: Any) -> None:
        """End an epoch; its metrics are these and the logged ones, as means over the epoch or as newest values."""
        now, steps = time.monotonic(), self._step - self._epoch_began_at
        seconds = now - self._epoch_began
        batch = self._plan.global_batch
        self._recorder.emit(
            EpochEnded(
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
        )
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
