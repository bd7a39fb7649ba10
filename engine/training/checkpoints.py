"""Saves the whole state of training while it runs, and restores it in a resumed run.

Copying the variables to host memory stalls training; hashing and writing happen in another thread. A checkpoint is
skipped if stalls and computing would take more than 2% of the training time.
"""

import inspect
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ..config.run_config import RunConfig
from ..errors import DataError
from ..input.pipeline import Pipeline
from ..runs.checkpoint import Header, SavedArray, newest_checkpoint, read_checkpoint, write_checkpoint
from ..runs.recorder import Recorder
from .bridge import BridgeCallback
from .outputs import BestCheckpoint

Arrays = dict[str, list[NDArray[Any]]]  # of a checkpoint, by group of variables

_COST_SHARE = 0.02
_KEPT = "The previous checkpoint is kept."


def placed(header: Header, data: Pipeline) -> Header:
    """Return where a run goes on, even if its batch size or the length of an epoch has changed."""
    if (header.steps_per_epoch, header.global_batch) == (data.steps_per_epoch, data.global_batch):
        return header
    examples = header.epoch_step * header.global_batch
    epoch_step = min(examples // data.global_batch, data.steps_per_epoch - 1)
    batches = header.epoch * data.steps_per_epoch + epoch_step
    return replace(header, epoch_step=epoch_step, batches=batches, steps_per_execution=1)


class Checkpoints(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Saves the state of training after every epoch and every few minutes within one, and when the run is stopped.

    It comes before all other callbacks: an epoch is saved when the next one begins, after all of them have seen its
    end. It counts the steps itself, because Keras calls callbacks from other threads.
    """

    async_safe = True
    best: BestCheckpoint | None = None  # the callback that saves the best model

    def __init__(
        self,
        recorder: Recorder,
        config: RunConfig,
        data: Pipeline,
        bridge: BridgeCallback,
        stopping: Any,
        saved: tuple[Header, Arrays] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._recorder, self._bridge, self._clock = recorder, bridge, clock
        self._every_s = 60.0 * config.checkpoint.every_minutes
        self._steps_per_epoch, self._global_batch = data.steps_per_epoch, data.global_batch
        self.epoch = self._epoch_step = self._step = self.batches = 0  # `epoch` counts those that ended
        self._saved: tuple[Header, Arrays] | None = None
        self.is_void = False  # whether the state is not worth saving or validating, because training will go back
        self.trained: Any = None  # the compiled model; on JAX `model` would take its weights from the running step
        self._phase, self._steps = 0, 1
        self._metrics: Sequence[NDArray[Any]] = ()
        self._is_cut = False  # the rest of an epoch that was begun before the run was resumed
        self._has_cut_validation = False
        self.stopping = stopping
        self.own: OwnCallbacks | None = None
        self.schedule_epochs = config.epochs
        self._writer: threading.Thread | None = None
        self._saved_at, self._pause_s, self._cost_s = clock(), 0.0, 0.0
        if saved is not None:
            self.go_on_from(saved)
        # A run that can go back saves the state before its first step, too.
        self._newest = (self._step - (config.alerts.nan == "rollback"), 0)
        self._failure = ""  # of the newest checkpoint
        self._learning_rate: float | None = None

    def go_on_from(self, saved: tuple[Header, Arrays]) -> None:
        """Go on from a checkpoint; `attach` restores its state."""
        self._saved, self.is_void, at = saved, False, saved[0]
        self.epoch, self._epoch_step, self._step, self.batches = at.epoch, at.epoch_step, at.step, at.batches

    def last_good(self) -> tuple[Header, Arrays] | None:
        """Return the newest checkpoint of the model's current phase of training, to go back to; None without one."""
        self.close()
        found = newest_checkpoint(self._recorder.run)
        return read_checkpoint(found[0]) if found is not None and found[1].phase == self._phase else None

    def rate_change(self) -> float:
        """Return a constant learning rate relative to that of the configuration."""
        rate = _constant_rate(self.trained)
        return 1.0 if rate is None else rate / (self._learning_rate or 1.0)

    def attach(self, model: Any, phase: int) -> None:
        """Count the steps of a compiled model, before `fit` is called; restore its state if the run is resumed."""
        self.trained, self._phase = model, phase
        self._learning_rate = _constant_rate(model)
        if self._saved is not None:
            self._restore(*self._saved)
            self._saved[1].clear()  # callers hold it until the run ends, and it is as large as the state
            self._saved = None
        model.make_train_function()
        inner, self._steps = model.train_function, int(model.steps_per_execution or 1)

        def counted(*state_and_iterator: Any) -> Any:
            is_time = self._clock() - self._saved_at > self._every_s
            if is_time and self._is_due() and self._recorder.team is None:
                self._save(state_and_iterator[0] if len(state_and_iterator) > 1 else None)
            done = inner(*state_and_iterator)
            self._epoch_step += self._steps
            self._step += self._steps
            self.batches += self._steps
            if self._is_cut and self._epoch_step >= self._steps_per_epoch:
                model.stop_training = True
            return done

        model.train_function = counted

    def is_stopped_within_epoch(self) -> bool:
        """Return whether training was stopped before the epoch's last step."""
        return self._epoch_step < self._steps_per_epoch and self._recorder.control.reason is not None

    def allows_validation(self) -> bool:
        """Return whether the epoch may be validated: not if training goes back or is stopped within it.

        Several hosts that stop do not: they could not leave the validation after the same batch.
        """
        is_stopped = self._recorder.team is not None and self._recorder.control.reason is not None
        return not (self.is_void or is_stopped or self.is_stopped_within_epoch())

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Save the epoch before; continue the metrics of an epoch that was begun before the run was resumed."""
        self._is_cut = self._epoch_step > 0
        if not self._is_cut and (self._is_due() or self._recorder.team is not None):
            self._save()
        metrics, self._metrics = self._metrics, ()
        for variable, value in zip(self.trained.metrics_variables, metrics, strict=bool(metrics)):
            variable.assign(value)

    def on_test_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """End the validation if the run was asked to stop; its metrics do not count then."""
        if self._recorder.control.reason is not None:
            self._has_cut_validation = self.trained.stop_evaluating = True

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Count the epoch, or save the state within it if training was stopped there."""
        if self._has_cut_validation and logs is not None:
            self._recorder.notice(f"Epoch {epoch + 1} was not validated: the run was stopped.")
            for name in [name for name in logs if name.startswith("val_")]:
                del logs[name]
        if self.is_stopped_within_epoch():
            self._save()
            return
        if self._is_cut:
            self.trained.stop_training = False
        self.epoch, self._epoch_step = epoch + 1, 0

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        """Save the last epoch, before early stopping restores the best weights."""
        if self._newest != (self._step, self._phase):
            self._save()
        self.close()

    def close(self) -> None:
        """Wait until the newest checkpoint is written."""
        if self._writer is not None:
            self._writer.join()

    @property
    def can_save(self) -> bool:
        """Whether the state can be saved: after the first step, and not between an epoch's last one and its end."""
        return self._step > 0 and self._epoch_step < self._steps_per_epoch

    def save_now(self) -> str:
        """Save the state between two executions and wait until it is written; return why not, if it is not."""
        if not self._every_s:
            return "checkpoints are switched off (checkpoint.every_minutes is 0)"
        if not self.can_save:
            return "it can be saved when this epoch has ended" if self._step else "no step has been done yet"
        if self._newest != (self._step, self._phase):
            self._save()
        self.close()
        return "it could not be written" if self._failure else ""

    def _is_due(self) -> bool:
        is_idle = self._writer is None or not self._writer.is_alive()
        return is_idle and self._step > self._newest[0] and self._clock() - self._saved_at >= self._pause_s

    def _save(self, state: Any = None) -> None:
        """Copy the state, which JAX's callers pass within an epoch, and write it from another thread."""
        if not self._every_s or self.is_void:
            return
        self.close()
        began = self._clock()
        groups = _variables(self.trained)
        values = dict(zip(groups, state or groups.values(), strict=True))
        named = [
            (group, v.path, value) for group, vs in groups.items() for v, value in zip(vs, values[group], strict=True)
        ]
        if self.stopping is not None and getattr(self.stopping, "best_weights", None) is not None:
            best = zip(self.trained.weights, self.stopping.best_weights, strict=True)
            named += [("best", weight.path, value) for weight, value in best]
        arrays = [np.array(keras.ops.convert_to_numpy(value), order="C") for _, _, value in named]
        # NumPy has no bfloat16, which float32 holds exactly.
        arrays = [array.astype(np.float32) if array.dtype.kind == "V" else array for array in arrays]
        elapsed_s, epoch_s = self._bridge.seconds()
        header = Header(
            epoch=self.epoch,
            epoch_step=self._epoch_step,
            step=self._step,
            batches=self.batches,
            elapsed_s=elapsed_s,
            epoch_s=epoch_s if self._epoch_step else 0.0,
            phase=self._phase,
            steps_per_epoch=self._steps_per_epoch,
            global_batch=self._global_batch,
            steps_per_execution=self._steps,
            best=self.best.value if self.best is not None else None,
            best_loss=self.best.loss if self.best is not None else None,
            patience=self.stopping.state() if self.stopping is not None else {},
            learning_rate=self._learning_rate,
            callbacks=tuple(self.own.states()) if self.own is not None else (),
            schedule_epochs=self.schedule_epochs,
            arrays=tuple(
                SavedArray(group, path, array.dtype.str, array.shape)
                for (group, path, _), array in zip(named, arrays, strict=True)
            ),
        )
        self._newest = (self._step, self._phase)
        self._saved_at = self._clock()
        self._cost_s = self._saved_at - began
        write = partial(self._write, header, arrays)
        self._writer = threading.Thread(target=write, name="tpu-console-checkpoint", daemon=True)
        self._writer.start()

    def _write(self, header: Header, arrays: Sequence[NDArray[Any]]) -> None:
        began, failure = self._clock(), ""
        weights = [array for saved, array in zip(header.arrays, arrays, strict=True) if saved.group == "trainable"]
        try:
            if all(np.isfinite(array).all() for array in weights):
                # After a power loss, the journal must not lack an epoch that the checkpoint has.
                self._recorder.journal.flush()
                write_checkpoint(self._recorder.run, header, arrays)
            else:
                failure = f"No checkpoint is saved, because weights are NaN or infinite. {_KEPT}"
        except OSError as error:
            failure = f"A checkpoint could not be written: {error.strerror}. Training continues. {_KEPT}"
        if failure and not self._failure:
            self._recorder.notice(failure)
        self._failure = failure
        took_s = self._clock() - began
        # This thread's own work may slow training, too, if training uses every core.
        cost_s = self._cost_s + time.thread_time()
        self._pause_s = max(cost_s / _COST_SHARE, 10 * took_s)
        if self._recorder.deadline is not None:
            self._recorder.deadline.note("save", took_s)

    def _restore(self, header: Header, arrays: Arrays) -> None:
        groups = _variables(self.trained)
        for group in ("trainable", "non_trainable", "optimizer"):
            check_same(header, group, groups[group])
            for variable, value in zip(groups[group], arrays.get(group, ()), strict=True):
                variable.assign(value)
        if self._learning_rate is not None and header.learning_rate not in {None, self._learning_rate}:
            # The configuration has changed; otherwise a rate that was set in training is kept.
            self.trained.optimizer.learning_rate = self._learning_rate
        if header.epoch_step and [a.shape for a in header.arrays if a.group == "metrics"] == [
            tuple(v.shape) for v in groups["metrics"]
        ]:
            self._metrics = arrays.get("metrics", ())
        if self.stopping is not None:
            self.stopping.restore(header.patience, [*arrays["best"]] if "best" in arrays else None)
        if self.best is not None and header.best is not None:
            self.best.value, self.best.loss = header.best, header.best_loss
        if header.steps_per_epoch != self._steps_per_epoch:
            # The learning rate continues at the same point of its schedule.
            optimizer = self.trained.optimizer
            iterations = getattr(optimizer, "inner_optimizer", optimizer).iterations
            done = int(keras.ops.convert_to_numpy(iterations))
            iterations.assign(done * self._steps_per_epoch // header.steps_per_epoch)


class ValidatedEpochs(list[int]):
    """The epochs after which `fit` validates: every n-th, if `Checkpoints` allows it."""

    def __init__(self, checkpoints: Checkpoints, every: int) -> None:
        super().__init__()
        self._checkpoints, self._every = checkpoints, every

    def __contains__(self, epoch: object) -> bool:
        return int(str(epoch)) % self._every == 0 and self._checkpoints.allows_validation()


def check_same(header: Header, group: str, variables: Sequence[Any]) -> None:
    """Raise `DataError` with the first difference if a model's variables are not those of a checkpoint."""
    saved = [array for array in header.arrays if array.group == group]
    differences = [
        f"{variable.path} has shape {tuple(variable.shape)}, and {array.shape} in the checkpoint"
        for array, variable in zip(saved, variables, strict=False)
        if array.shape != tuple(variable.shape)
    ]
    if len(saved) != len(variables):
        differences.append(f"there are {len(variables)} {group} variables, and {len(saved)} in the checkpoint")
    if differences:
        what = f"The checkpoint is of another model: {differences[0]}."
        raise DataError(what, remedy="Resume without that change, or start a new run.")


def _constant_rate(model: Any) -> float | None:
    """Return a compiled model's learning rate; None if it follows a schedule."""
    rate = model.optimizer.learning_rate
    return float(keras.ops.convert_to_numpy(rate)) if isinstance(rate, keras.Variable) else None


def _variables(model: Any) -> dict[str, Sequence[Any]]:
    """Return a compiled model's variables, ordered as the arguments of JAX's train function."""
    return {
        "trainable": model.trainable_variables,
        "non_trainable": model.non_trainable_variables,
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }


class OwnCallbacks(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Keeps the state of the configuration's callbacks from one `fit` of a run to the next, and in checkpoints.

    Keras has no call for that. These are their attributes with plain values, which is all that Keras's own have. It
    comes after them, because they reset their state in `on_train_begin`.
    """

    async_safe = True

    def __init__(self, recorder: Recorder, callbacks: Sequence[Any], saved: Sequence[Mapping[str, Any]] | None) -> None:
        super().__init__()
        self._callbacks = callbacks
        self._states = saved if saved is not None and len(saved) == len(callbacks) else None
        if saved is None or not callbacks:
            return
        lost = [
            f"{type(own).__name__} ({name})"
            for own in callbacks
            for name, value in _state(own).items()
            if value is not None and _plain(value) is None and not callable(value)
        ]
        if self._states is None:
            recorder.notice("The callbacks start over: the checkpoint was saved with other callbacks.")
        elif lost:
            recorder.notice(f"Not in the checkpoint, so it starts over: {'; '.join(lost)}.")

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each callback."""
        states = ({name: _plain(value) for name, value in _state(own).items()} for own in self._callbacks)
        return [{name: value for name, value in state.items() if value is not None} for state in states]

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the states."""
        for own, state in zip(self._callbacks, self._states or (), strict=False):
            for name in state.keys() - _not_state(own):  # a checkpoint may come from anywhere
                if (now := getattr(own, name, None)) is None or _plain(now) is not None:
                    setattr(own, name, state[name])

    def on_train_end(self, logs: Any = None) -> None:
        """Keep the states for the next `fit` of the run."""
        self._states = self.states()


def _not_state(callback: Any) -> set[str]:
    """Return attributes that Keras sets, and arguments such as the path of a file, which are in the configuration."""
    return {"_model", "params", "_params", *inspect.signature(type(callback)).parameters}


def _state(callback: Any) -> dict[str, Any]:
    left_out = _not_state(callback)
    return {name: value for name, value in vars(callback).items() if name not in left_out}


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it; None if it is no plain value, or is None."""
    if isinstance(value, np.generic):
        value = value.item()
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return None
