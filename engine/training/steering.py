"""Steers a run while it trains, stops it in time, and goes back to a checkpoint when its loss has become NaN."""

import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import keras

from ..config.reading import with_changes
from ..config.run_config import RunConfig, journal_values, to_toml
from ..config.values import LARGEST_NUMBER
from ..errors import one_line
from ..models.compile import used_optimizers
from ..runs.checkpoint import Header
from ..runs.control import Request
from ..runs.events import Phase, RunResumed, Steered, Steering
from ..runs.recorder import Recorder
from ..storage.files import write_whole
from .bridge import BridgeCallback
from .checkpoints import Checkpoints
from .profiling import DEFAULT_STEPS, Profiler

_LOOK_S = 0.1  # between two looks for requests in a pause
ROLLBACK_FACTOR = 0.25  # the learning rate after going back, relative to the one before
MOST_ROLLBACKS = 3  # of a process: after that, the learning rate is probably not the cause


class DeclinedError(Exception):
    """A request cannot be carried out; its text says why, in one sentence."""


@contextmanager
def refusing() -> Iterator[None]:
    """Decline a request if the framework refuses it."""
    try:
        yield
    except Exception as error:
        raise DeclinedError(one_line(error, 200)) from error


class SteeringCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Carries out requests between two executions.

    It comes between `Checkpoints` and `BridgeCallback` in the list of callbacks. It has no `on_train_batch_end`: with
    one, Keras would wait for the device after every execution.
    """

    def __init__(
        self,
        recorder: Recorder,
        bridge: BridgeCallback,
        checkpoints: Checkpoints,
        profiler: Profiler,
        config: RunConfig,
    ) -> None:
        super().__init__()
        self._recorder, self._bridge, self._checkpoints, self._profiler = recorder, bridge, checkpoints, profiler
        self.epochs = config.epochs
        self.goes_back = ""  # why training ends to go back to a checkpoint
        self._first_phase = config.fine_tuning.after_epochs
        self._first_step = bridge.where()[1]
        self._profile_at = at if (at := config.profile.at) > self._first_step else 0  # a resumed run has traced them
        self._profile_steps = config.profile.steps
        self._is_paused = self._is_late = False
        self._rollbacks = 0

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Carry out requests, in the training thread and between two executions."""
        self._profiler.executed()
        team = self._recorder.team
        request, refused = team.trace_now() if team is not None else (None, "")
        if request is None and 0 < self._profile_at <= self._done():
            self._profile_at = 0
            request = Request(Steering.PROFILE, "set in the configuration", str(self._profile_steps))
        if request is not None and team is None:
            self._recorder.control.ask(request)
        elif request is not None and refused:
            self._answer(request, refused)
        elif request is not None:
            self._carry_out(request, is_agreed=True)
        self._look(is_before_step=self._recorder.phase is Phase.TRAINING)

    def _done(self) -> int:
        """Return the steps that are done."""
        if (team := self._recorder.team) is None:
            return self._bridge.where()[1]
        # What the bridge knows comes later on one host than on another.
        return self._first_step + team.executions * int(self._checkpoints.trained.steps_per_execution or 1)

    def on_test_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Trace no validation."""
        self._profiler.executed(is_last=True)

    def on_test_batch_begin(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Carry out requests between two batches of validation."""
        self._look()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Stop if that was requested for the end of this epoch; end training if epochs were removed."""
        self._profiler.executed(is_last=True)
        self._recorder.control.end_epoch()
        if self.epochs <= epoch + 1 < self.params["epochs"]:
            self._checkpoints.trained.stop_training = True

    def goes_on(self, epochs_done: int) -> bool:
        """Return whether epochs were added after `fit` had begun its last one; training ends if not."""
        self._look()
        if self._recorder.should_stop() or self._checkpoints.trained.stop_training:
            return False
        return epochs_done < self.epochs

    def go_back(self, config: RunConfig, *, is_fine_tuning: bool) -> tuple[RunConfig, Header] | None:
        """Return a configuration with a lower rate, and the checkpoint to go on from; without one, stop the run."""
        why, self.goes_back = self.goes_back, ""
        saved = self._checkpoints.last_good() if self._rollbacks < MOST_ROLLBACKS else None
        if saved is None:
            tried = f"even after going back {self._rollbacks} times with a lower learning rate"
            tried = tried if self._rollbacks else "and there is no checkpoint to go back to"
            self._recorder.control.stop(f"{why}, {tried}")
            return None
        self._rollbacks += 1
        section = "fine_tuning" if is_fine_tuning else "optimizer"
        before = getattr(config, section).learning_rate * self._checkpoints.rate_change()
        after = before * ROLLBACK_FACTOR
        config, at = with_changes(config, [(f"{section}.learning_rate", after)]), saved[0]
        with suppress(OSError):  # on a full disk; a run resumed from there begins with the old rate
            write_whole(self._recorder.run.config, to_toml(config))
        why = f"{why}; learning rate {before:.3g} → {after:.3g}"
        self._recorder.emit(RunResumed(*at.place, os.getpid(), socket.gethostname(), journal_values(config), why))
        self._bridge.go_on_from(at)
        self._checkpoints.go_on_from(saved)
        return config, at

    def close(self) -> None:
        """Refuse the requests that came too late."""
        for request in self._recorder.control.take():
            self._answer(request, "training has ended")

    def _look(self, *, is_before_step: bool = False) -> None:
        if (deadline := self._recorder.deadline) is not None and not self._is_late and deadline.is_reached():
            self._is_late = True
            saving = f"; the slowest save so far took {deadline.save_s:.1f} s" if deadline.save_s else ""
            self._recorder.control.stop(f"the time budget ({deadline.event.limit}) is nearly used up{saving}")
        for request in self._recorder.control.take():
            if request.action == Steering.ROLL_BACK:
                self.goes_back = request.by
                self._checkpoints.is_void = self._checkpoints.trained.stop_training = True
            elif request.action == Steering.PROFILE and not (is_before_step or self._is_paused):
                self._recorder.control.ask(request)  # it waits for the next step
            elif request.action == Steering.CHECKPOINT and not (self._checkpoints.can_save or self._is_paused):
                self._recorder.control.ask(request)  # it waits for the end of the step, or of the epoch
            else:
                self._carry_out(request)
        if self._is_paused and self._recorder.phase is not Phase.PAUSED:
            self._pause()

    def _pause(self) -> None:
        """Wait until somebody continues or stops the run; requests are carried out meanwhile."""
        if self._profiler.is_tracing:
            self._profiler.end()
        phase = self._recorder.phase or Phase.TRAINING
        with self._bridge.standing_still():
            self._recorder.enter(Phase.PAUSED)
            while self._is_paused and not self._recorder.should_stop():
                time.sleep(_LOOK_S)
                self._look()
            self._is_paused = False
        self._recorder.enter(phase)

    def _carry_out(self, request: Request, *, is_agreed: bool = False) -> None:
        """Do what was asked; `is_agreed` if all hosts do it now."""
        team, refused = self._recorder.team, ""
        change: tuple[()] | tuple[float, float] = ()
        try:
            if team is not None and not is_agreed:
                if request.action != Steering.PROFILE:
                    raise DeclinedError("several hosts train this run together; they can only be stopped or traced")
                with refusing():
                    team.ask_for_trace(request)
                return  # it is answered when it begins
            change = self._change(request)
        except DeclinedError as error:
            refused = str(error)
        self._answer(request, refused, *change)

    def _answer(self, request: Request, refused: str, before: float | None = None, after: float | None = None) -> None:
        place = self._bridge.where()
        self._recorder.emit(Steered(request.action, request.by, *place, before, after, refused, request.number))

    def _change(self, request: Request) -> tuple[()] | tuple[float, float]:
        """Return a value before and after, if the request changes one."""
        match request.action:
            case Steering.PAUSE | Steering.CONTINUE:
                pauses = request.action == Steering.PAUSE
                if self._recorder.should_stop():
                    raise DeclinedError("the run is stopping")
                if pauses is self._is_paused:
                    raise DeclinedError("the run is already paused" if pauses else "the run is not paused")
                self._is_paused = pauses
            case Steering.EPOCHS:
                return self._set_epochs(request.value)
            case Steering.LEARNING_RATE:
                return self._set_learning_rate(request.value)
            case Steering.CHECKPOINT:
                _ = self.model  # on JAX this fetches the weights
                if why_not := self._checkpoints.save_now():
                    raise DeclinedError(why_not)
            case Steering.PROFILE:
                if self._is_paused or self._profiler.is_tracing:
                    raise DeclinedError("the run is paused" if self._is_paused else "it is tracing steps already")
                with refusing():
                    steps = int(request.value or DEFAULT_STEPS)
                    self._profiler.begin(self._checkpoints.trained, self._done(), steps, request.number)
            case _:
                raise DeclinedError(f"this version cannot do '{request.action}'")
        return ()

    def _set_epochs(self, value: str) -> tuple[float, float]:
        before, epoch = self.epochs, self._bridge.where()[0]
        try:
            wanted = int(value) + (before if value.startswith(("+", "-")) else 0)
        except ValueError:
            raise DeclinedError(f"'{value}' is not a number of epochs such as 20 or +5") from None
        if not 1 <= wanted <= LARGEST_NUMBER:
            raise DeclinedError(f"a run cannot have {wanted:,} epochs")
        if wanted < epoch:
            raise DeclinedError(f"epoch {epoch} has begun already")
        if wanted <= self._first_phase:
            raise DeclinedError(f"fine-tuning begins after epoch {self._first_phase}")
        self.epochs = self._bridge.epochs = wanted
        return before, wanted

    def _set_learning_rate(self, value: str) -> tuple[float, float]:
        wanted = math.nan
        with suppress(ValueError):
            wanted = float(value)
        if not (math.isfinite(wanted) and wanted > 0):
            raise DeclinedError(f"'{value}' is not a learning rate such as 0.001")
        used = used_optimizers(self.model)  # on JAX this also fetches the weights, so that the new value is used
        if len(used) > 1:
            raise DeclinedError(f"the model has several optimizers ({', '.join(used)}), and only one could be changed")
        (optimizer,) = used.values()
        before = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        try:
            optimizer.learning_rate = wanted
        except TypeError:  # what Keras raises for a schedule
            raise DeclinedError("it follows a schedule, and only a constant one can be changed") from None
        return before, wanted
