"""`BridgeCallback`, which is public: writes the progress of `model.fit` to a run's journal."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import keras
from msgspec.structs import replace

from ..accelerators.backend import loaded_framework
from ..compat.keras import ForBothKeras
from ..errors import did_you_mean
from ..models.compile import metrics_of, rate_of, used_optimizers
from ..runs.checkpoint import Header
from ..runs.events import Compiled, EpochEnded, FitStarted, Phase, Progress, ValidationProgress
from ..runs.recorder import Recorder
from .notebook import PROGRESS_S, NotebookRun, numbers


def watch(model: Any, report: Callable[[Compiled], None]) -> None:
    """Call a function, the newest one, with every further compilation of a model's steps, in the training thread."""
    watched = getattr(model, "tpu_console_compilations", None)
    if watched is None and loaded_framework().traces_steps(model):
        watched = model.tpu_console_compilations = _Watched(model)
    if watched is not None:
        watched.report, watched.traced = report, None


class _Watched:
    """Wraps the methods of a model that trace a step, and those that make the functions that `fit` calls."""

    report: Callable[[Compiled], None]

    def __init__(self, model: Any) -> None:
        self._model = model
        self.traced: dict[str, str] | None = None  # the batch of the current execution, if it was traced for it
        self._began, self._hits = 0.0, loaded_framework().cached_programs()
        self._before: dict[str, dict[str, str]] = {}  # the batch of the newest compilation, by the name of the step
        self._known: dict[str, list[dict[str, str]]] = defaultdict(list)  # all since the step was traced
        self._wrap("train")
        self._wrap("test")

    def _note(self, name: str, data: Any) -> None:
        if (batch := described(data)) not in self._known[name]:
            self._known[name].append(batch)
            if self.traced is None:
                self._began, self._hits = time.perf_counter(), loaded_framework().cached_programs()
            self.traced = batch

    def _wrap(self, name: str) -> None:
        model, attribute, last = self._model, f"{name}_function", None
        step, make = getattr(model, f"{name}_step"), getattr(model, f"make_{attribute}")

        @wraps(step)
        def traced(*arguments: Any) -> Any:  # Keras calls it to trace it, never for a batch
            self._known[name].clear()
            self._note(name, arguments[-1])
            return step(*arguments)

        @wraps(make)
        def made(*arguments: Any, **named: Any) -> Any:
            nonlocal last
            showing = loaded_framework().showing_shapes(model, traced, partial(self._note, name))
            setattr(model, f"{name}_step", showing or traced)
            if showing is not None:
                model.jit_compile = False  # the step compiles itself
            try:
                make(*arguments, **named)
            finally:
                if showing is not None:
                    model.jit_compile = True
            if (function := getattr(model, attribute)) is not last:
                last = partial(self._executed, name, function)
                setattr(model, attribute, last)
                self._before.pop(name, None)
            return last

        setattr(model, f"{name}_step", traced)
        setattr(model, f"make_{attribute}", made)

    def _executed(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        result = function(*arguments)
        if self.traced is not None:
            batch, self.traced = self.traced, None
            seconds, hits = time.perf_counter() - self._began, loaded_framework().cached_programs()
            is_cached = None if hits is None else hits != self._hits
            before, self._before[name] = self._before.get(name, {}), batch
            part = next((key for key, one in batch.items() if before and before.get(key) != one), "")
            now = batch.get(part) or next(iter(batch.values()), "")
            what = name == "test", is_cached, part, now, before.get(part, ""), steps_of(self._model)
            self.report(Compiled(0, 0, 0.0, seconds, *what))  # `report` knows the place
        return result


def steps_of(model: Any) -> int:
    """Return a compiled model's steps per execution."""
    return int(getattr(model, "steps_per_execution", 1) or 1)


def described(data: Any) -> dict[str, str]:
    """Return the type and the shape of each part of a batch, such as ``{"inputs": "float32[64,28,28,1]"}``."""
    parts = {}
    for name, part in zip(("inputs", "labels", "weights"), data if isinstance(data, tuple) else (data,), strict=False):
        for number, array in enumerate(one for one in keras.tree.flatten(part) if hasattr(one, "shape")):
            shape = ",".join("?" if size is None else str(size) for size in array.shape)
            key = f"{name} {number + 1}" if number else name
            parts[key] = f"{keras.backend.standardize_dtype(array.dtype)}[{shape}]"
    return parts


VALIDATION_PROGRESS_S = 0.5  # shortest time between two events of a validation


class BridgeCallback(ForBothKeras, keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Reports training to a run directory, which ``tpu-console attach`` shows live.

    Stopping the run there stops `fit` after the current execution.

    Args:
        run: A name: a run of that name is made when `fit` begins, and ends with it. The engine passes the
            `Recorder` of a run that it made and ends itself.
        global_batch: Examples per step over all replicas, for the speed; None if unknown.
        replica_batch: Examples per step and replica; None if unknown.
        monitor: The metric that decides which epoch is best; by default ``val_loss`` if measured, else ``loss``.
        config: Hyperparameters to show with a run that is given by its name.
        display: Whether to draw the run in the notebook's cell while it trains.
        epochs: Epochs of the run if the engine trains it in several calls of `fit`; None takes those of `fit`. May be
            changed between them.
        resumed: Where the run was when it was interrupted; None if it begins.
        clock: Monotonic seconds.

    Example::

        model.fit(train, validation_data=validation, epochs=10, callbacks=[BridgeCallback("resnet-try")])
    """

    # Lets Keras run this callback beside training instead of waiting for the device after every execution.
    async_safe = True

    def __init__(
        self,
        run: str | Recorder = "notebook",
        *,
        global_batch: int | None = None,
        replica_batch: int | None = None,
        monitor: str = "",
        config: Mapping[str, Any] | None = None,
        display: bool = False,
        epochs: int | None = None,
        resumed: Header | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._target, self._config, self._display = run, config, display
        self._global_batch, self._replica_batch, self._monitor = global_batch, replica_batch, monitor
        self.execution_reason = ""  # why `steps_per_execution` has its value
        self.best_step_ms: float | None = None  # what the preflight says
        self.best_layers_ms: dict[str, float] = {}
        self.epochs = epochs
        self._resumed, self._clock = resumed, clock
        self._notebook: NotebookRun | None = None
        self._lock = threading.Lock()
        self._recorder: Recorder
        self._trained: Any = None
        self._wait: Callable[[], object] = lambda: None  # until the device has done the steps that were sent to it
        self._goes_on = self._is_training = False
        self._reset()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle only the arguments, as KerasTuner does for each trial: a copy makes its own runs."""
        named: dict[str, Any] = {"global_batch": self._global_batch, "replica_batch": self._replica_batch}
        named |= {"monitor": self._monitor, "config": self._config, "display": self._display}
        return partial(type(self), self._target, **named), ()

    def where(self) -> tuple[int, int, float]:
        """Return the current epoch, from 1, the steps done in the run, and the seconds of training."""
        with self._lock:
            return self._epoch, self._step + self._epoch_step, self._clock() - self._began

    def go_on_from(self, resumed: Header) -> None:
        """Go back to a checkpoint when the next `fit` begins."""
        self._resumed, self._goes_on = resumed, False

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Exclude the time of the block, in which training is paused, from all times."""
        self._wait()
        began = self._clock()
        try:
            yield
        finally:
            with self._lock:
                paused_s = self._clock() - began
                self._began += paused_s
                self._epoch_began += paused_s
                self._test_began += paused_s

    def leave_out(self, steps: int, seconds: float) -> None:
        """Leave steps of this epoch out of its speed, because they were slowed down."""
        with self._lock:
            self._untimed_steps += steps
            self._untimed_s += seconds

    def seconds(self) -> tuple[float, float]:
        """Return the seconds since the run's first `fit` began, and those of the current epoch."""
        now = self._clock()
        return now - self._began, now - self._epoch_began

    def _reset(self) -> None:
        at = self._resumed
        self._began = self._clock() - (at.elapsed_s if at else 0.0)
        self._step = at.step - at.epoch_step if at else 0  # steps of the epochs that ended
        self._epoch = at.epoch if at else 0
        self._epoch_step = 0
        # Of an epoch that was begun before: its steps and seconds until then.
        self._earlier_steps, self._earlier_s = (at.epoch_step, at.epoch_s) if at else (0, 0.0)
        self._epoch_began = self._began
        self._next_progress = self._next_test_progress = 0.0
        self._first_execution_s: float | None = None
        self._steps_behind = 1  # from the number Keras gives an execution to the steps done after it
        self._untimed_steps, self._untimed_s = 0, 0.0  # of this epoch: compilation and validation
        self._test_began = self._validation_s = self._compile_s = 0.0
        self._test_batches = 0
        self._test_batches_total: int | None = None
        self._has_warned_of_monitor = False

    def set_model(self, model: Any) -> None:
        """Report when the model's steps are compiled: Keras has not made the functions that it calls yet."""
        super().set_model(model)
        watch(model, self.compiled)

    def compiled(self, found: Compiled) -> None:
        """Report that a step was compiled."""
        recorder = self._target if isinstance(self._target, Recorder) else self._recorder if self._notebook else None
        if recorder is None:
            return  # called by `evaluate` after `fit`
        epoch, step, elapsed_s = self.where()
        recorder.emit(replace(found, epoch=epoch, step=step, elapsed_s=elapsed_s))

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Create the run if its name was given, and report the plan of training."""
        if isinstance(self._target, Recorder):
            self._recorder = self._target
        else:
            self._notebook = NotebookRun(self._target, self._config, display=self._display)
            self._recorder = self._notebook.recorder
        self._is_training = True
        # On JAX `self.model` takes the weights back from the running step; between batches that breaks training.
        self._trained = self.model
        if (limiter := loaded_framework().limit_dispatch(self.model)) is not None:
            self._wait = limiter.wait
        if self._goes_on:
            self._first_execution_s = None  # the model was compiled again; steps and seconds go on
            self._steps_behind = 1
        else:
            self._reset()
        self._goes_on = self._notebook is None
        params = self.params or {}
        plan = FitStarted(
            epochs=self.epochs or int(params.get("epochs") or 1),
            steps_per_epoch=int(params["steps"]) if params.get("steps") else None,
            global_batch=self._global_batch,
            replica_batch=self._replica_batch,
            steps_per_execution=steps_of(self.model),
            execution_reason=self.execution_reason,
            monitor=self._monitor,
            metrics=metrics_of(self.model),
            best_step_ms=self.best_step_ms,
            best_layers_ms=self.best_layers_ms,
        )
        self._recorder.emit(plan)
        self._recorder.enter(Phase.COMPILING)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Start the epoch's clock."""
        self._wait()
        self._epoch = epoch + 1
        self._epoch_step = self._untimed_steps = self._earlier_steps
        self._epoch_began = self._clock() - self._earlier_s
        self._validation_s = self._compile_s = 0.0
        self._untimed_s = self._earlier_s

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Report progress; called once per execution, possibly from several threads in parallel."""
        now = self._clock()
        with self._lock:
            first = self._first_execution_s is None
            if first and batch == 0:
                # Before 3.11 Keras names an execution by its first step, since then by its last.
                self._steps_behind = steps_of(self._trained)
            epoch_step = self._earlier_steps + batch + self._steps_behind
            if epoch_step <= self._epoch_step:
                return  # an older execution whose report came late
            self._epoch_step = epoch_step
            if first:
                self._compile_s = self._first_execution_s = now - self._epoch_began - self._earlier_s
                self._untimed_s += self._compile_s
                self._untimed_steps = self._epoch_step
            due = now >= self._next_progress
            if due:
                self._next_progress = now + PROGRESS_S
        if first:
            self._recorder.enter(Phase.TRAINING)
        if due:
            step, elapsed_s = self._step + epoch_step, now - self._began
            self._recorder.emit(Progress(self._epoch, epoch_step, step, elapsed_s, numbers(logs)))
        if self._recorder.should_stop():
            self._trained.stop_training = True

    def on_test_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Validation begins."""
        if self._is_training:  # called by `fit`, not by `evaluate`
            self._wait()  # for the last training steps, whose time does not count as validation
            self._test_began = self._clock()
            self._test_batches = 0
            self._next_test_progress = self._test_began + VALIDATION_PROGRESS_S
            self._recorder.enter(Phase.VALIDATING)

    def on_test_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Report the progress of validation, possibly from several threads in parallel."""
        now = self._clock()
        with self._lock:
            self._test_batches = max(self._test_batches, batch + 1)
            if not self._is_training or now < self._next_test_progress:
                return
            self._next_test_progress = now + VALIDATION_PROGRESS_S
        self._recorder.emit(ValidationProgress(self._epoch, self._test_batches, self._test_batches_total))

    def on_test_end(self, logs: Mapping[str, float] | None = None) -> None:
        """Validation ends."""
        if self._is_training:
            self._validation_s += self._clock() - self._test_began
            self._test_batches_total = self._test_batches or None
            self._recorder.enter(Phase.TRAINING)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Report the epoch, and stop if a stop was requested during validation."""
        now = self._clock()
        seconds = now - self._epoch_began
        self._step += self._epoch_step
        self._earlier_steps, self._earlier_s = 0, 0.0
        timed_steps = self._epoch_step - self._untimed_steps
        timed_s = seconds - self._untimed_s - self._validation_s
        step_s = timed_s / timed_steps if timed_steps > 0 and timed_s > 0 else None
        rates = {rate_of(one) for one in used_optimizers(self.model).values()}
        ended = EpochEnded(
            epoch=epoch + 1,
            step=self._step,
            epoch_steps=self._epoch_step,
            elapsed_s=now - self._began,
            seconds=seconds,
            compile_s=self._compile_s,
            validation_s=self._validation_s,
            step_ms=step_s and step_s * 1e3,
            examples_per_s=self._global_batch / step_s if self._global_batch and step_s else None,
            learning_rate=rates.pop() if len(rates) == 1 else None,
            logs=numbers(logs),
        )
        self._recorder.emit(ended)
        self._epoch_step = 0  # they are counted in the run's steps now
        name, known = self._monitor, dict(logs or {})
        is_measured = any(key.startswith("val_") for key in known) or not name.startswith("val_")
        if name and name not in known and is_measured and not self._has_warned_of_monitor:
            self._has_warned_of_monitor = True
            hint = did_you_mean(name, known)
            self._recorder.notice(f"There is no metric '{name}' to decide which epoch is best; {hint}")
        if self._recorder.should_stop():
            self._trained.stop_training = True

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        """End the run if this callback created it."""
        self._is_training = False
        if self._notebook is not None:
            self._notebook.finish()
            self._notebook = None
