"""Trains the model of one run: build → compile → fit → save. It imports Keras, so choose the backend before."""

import json
import math
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from msgspec.structs import replace

from ..accelerators.framework import Accelerator
from ..config.catalog import is_user_reference
from ..config.run_config import RunConfig
from ..data.examples import label_of
from ..errors import ConsoleError, DataError, DiskFullError, UserCodeError
from ..input.augment import with_augmentation
from ..input.pipeline import Pipeline, largest_pixel
from ..machine.environment import find_resources
from ..machine.sources import this_machine
from ..models import build as models
from ..models import compile as compiling
from ..models import outputs as model_outputs
from ..models.outputs import Activation, ClassOutput
from ..monitoring.input_rate import InputRate, input_remedy, metered
from ..preflight.likely import best_case_of, efficiency_of
from ..runs.checkpoint import Header
from ..runs.control import StoppedError
from ..runs.events import Phase, RunFinished, RunOutcome
from ..runs.facts import summary_of, write_history
from ..runs.heartbeat import REMOVED
from ..runs.metrics import monitor_of
from ..runs.recorder import Recorder
from ..runs.run_directory import is_removed
from ..runs.timing import Stopwatch
from ..storage.files import sync, write_whole
from .bridge import BridgeCallback, watch
from .checkpoints import Arrays, Checkpoints, OwnCallbacks, ValidatedEpochs, placed
from .class_scoring import report_classes
from .outputs import BestCheckpoint, Patience, epoch_end_callbacks, save_model
from .profiling import Profiler
from .steering import SteeringCallback

# Steps per execution: enough to hide Python's time, few enough for curves to move and stops to be quick.
TARGET_S = 0.3
_LONGEST_S = 3.0  # only reached when an epoch's length has no divisor nearer to the target
_FEWEST_STEPS, _TIMED_STEPS = 2, 20
_TIMED_S = 0.1
_LARGEST_STATE = 1 << 28  # values, a gigabyte of float32


class Fitting:
    """Trains the model of a run, which may go on from a saved checkpoint, in its caller's thread and scope."""

    def __init__(
        self,
        recorder: Recorder,
        config: RunConfig,
        accelerator: Accelerator,
        data: Pipeline,
        saved: tuple[Header, Arrays] | None,
    ) -> None:
        self._recorder, self._config, self._accelerator, self._data = recorder, config, accelerator, data
        self._saved = (placed(saved[0], data), saved[1]) if saved is not None else None
        self._resumed = self._saved[0] if self._saved is not None else None

    def run(self, stopwatch: Stopwatch) -> RunFinished:
        """Train and save the model; record how long the run took."""
        recorder, data = self._recorder, self._data
        self._model = model = self._build()
        self._config, self._activation, classes, found = check_model(recorder, self._config, data, model)
        if record := {**data.examples.record, **found}:
            write_whole(recorder.run.inputs, json.dumps(record), is_synced=False)
        recorder.emit(models.model_built(model))  # a subclass of keras.Model has variables once the check has called it
        has_labels = isinstance(data.train.element_spec, tuple) and len(data.train.element_spec) > 1
        self._config = compiling.with_measured_metrics(self._config, model, has_labels=has_labels)
        if self._resumed is not None and (others := compiling.own_optimizers(model)):
            recorder.notice(f"Not in the checkpoint, so it starts over: the state of {' and '.join(others)}.")
        is_whole = self._fit()
        if is_removed(recorder.run):
            raise ConsoleError(f"The run ended, because {REMOVED}.")
        outcome, reason = RunOutcome.EARLY, "a callback stopped training"
        if recorder.control.reason is not None:
            outcome, reason = RunOutcome.STOPPED, recorder.control.reason
        elif self._has_stopped_early():
            options = self._config.early_stopping
            reason = f"{options.monitor} did not improve for {options.patience} epochs"
        elif is_whole:
            outcome, reason = RunOutcome.COMPLETED, "all epochs are done"
        if recorder.is_leader:
            self._save_model()
        restored = 0 if self._stopping is None else self._stopping.restored_epoch
        # All hosts make this pass.
        scores = report_classes(recorder, model, data.validation, data.examples, classes, restored)
        if not recorder.is_leader:
            return RunFinished(outcome, f"{reason}; host 0 has the run", {})
        state = recorder.state()
        try:
            write_history(recorder.run, state.epochs)
        except OSError as error:
            recorder.notice(f"history.csv is not written: {error.strerror}. Every epoch is also in events.jsonl.")
        stopwatch.record(state)
        best = efficiency_of(state)
        return RunFinished(
            outcome, reason, summary_of(state, outcome, reason, scores, best.summary if best is not None else None)
        )

    def _build(self) -> Any:
        recorder, config, data = self._recorder, self._config, self._data
        recorder.begin(Phase.BUILDING, config.model)
        try:
            model = models.build_model(config, data.examples.signature, recorder.run.hub)
        except UserCodeError:
            model_outputs.refuse_texts(label_of(data.train))  # which have no number of classes
            raise
        if self._resumed is None:
            spec = data.train.element_spec
            models.load_start(model, config, spec[0] if isinstance(spec, tuple) else spec)
        if data.placement.in_model:
            model = with_augmentation(model, config.augmentation, largest_pixel(data.examples, config), config.seed)
        return model

    def _fit(self) -> bool:
        """Train, in two phases if the model is fine-tuned; return whether all epochs are done."""
        config, recorder, at = self._config, self._recorder, self._resumed
        _, self._meter = metered(self._data.train)
        if self._meter is not None:
            cores = find_resources(this_machine()).cores
            remedy = partial(input_remedy, config, self._data, self._accelerator.name, cores)
            InputRate(recorder, self._meter, remedy, alerts="input" in config.alerts.kinds)
        self._make_callbacks()
        checkpoints, steering = self._checkpoints, self._steering
        # Epochs that were added while the run trained do not change the learning rate's schedule, unlike epochs that
        # are given to `resume`.
        if at is not None and at.schedule_epochs not in {0, config.epochs}:
            fit = recorder.state().fit
            if fit is not None and fit.epochs == config.epochs:
                checkpoints.schedule_epochs = at.schedule_epochs
                if config.optimizer.decay[0] != "constant":
                    recorder.notice(f"The learning rate keeps its schedule of {at.schedule_epochs:,} epochs.")
        phases = models.training_phases(config, checkpoints.schedule_epochs)
        for number, phase in enumerate(phases):
            if phase.is_fine_tuning:
                if recorder.should_stop():
                    break
                recorder.notice(models.unfreeze(self._model, self._config))
            if at is None or number >= at.phase:
                self._fit_phase(number, phase, is_last=phase is phases[-1])
        steering.close()
        return checkpoints.epoch >= steering.epochs

    def _fit_phase(self, number: int, phase: models.TrainingPhase, *, is_last: bool) -> None:
        data, checkpoints, steering = self._data, self._checkpoints, self._steering
        self._compile(phase.config, self._resumed)
        if self._recorder.should_stop() and not phase.is_fine_tuning:
            raise StoppedError
        checkpoints.attach(self._model, number)
        if self._recorder.team is not None:
            self._recorder.team.attach(self._model)
        # It stopped early before the run was resumed.
        is_over = self._resumed is not None and number == self._resumed.phase and self._has_stopped_early()
        goes_on = True
        while goes_on:
            last_epoch = checkpoints.epoch if is_over else steering.epochs if is_last else phase.last_epoch
            with closing(checkpoints):  # a run that fails right after an epoch keeps its checkpoint
                train = data.train_from(checkpoints.batches)
                self._model.fit(
                    train if self._meter is None else metered(train, self._meter)[0],
                    initial_epoch=checkpoints.epoch,
                    epochs=last_epoch,
                    steps_per_epoch=data.steps_per_epoch,
                    validation_data=data.validation,
                    validation_freq=ValidatedEpochs(checkpoints, self._config.validation_freq),
                    callbacks=self._callbacks,
                    shuffle=False,
                    verbose=0,
                )
            goes_on = steering.goes_on(checkpoints.epoch) and is_last and not is_over
            if steering.goes_back and (back := steering.go_back(self._config, is_fine_tuning=phase.is_fine_tuning)):
                (self._config, at), goes_on = back, True
                self._compile(models.training_phases(self._config, checkpoints.schedule_epochs)[number].config, at)
                checkpoints.attach(self._model, number)

    def _has_stopped_early(self) -> bool:
        return self._stopping is not None and bool(self._stopping.stopped_epoch)

    def _make_callbacks(self) -> None:
        """Make the callbacks that report, save and steer training, in the order of their calls."""
        recorder, config, data, saved = self._recorder, self._config, self._data, self._saved
        monitor = monitor_of(config, has_validation=data.validation is not None)
        self._stopping = Patience(**config.early_stopping.model_dump()) if config.early_stopping.patience else None
        self._bridge = bridge = BridgeCallback(
            recorder,
            global_batch=data.global_batch,
            replica_batch=config.batch_size,
            monitor=monitor,
            epochs=config.epochs,
            resumed=self._resumed,
        )
        if best := best_case_of(replace(recorder.state(), fit=None)):  # it may go on with another TPU
            _, bridge.best_step_ms, bridge.best_layers_ms = best
        saving = epoch_end_callbacks(recorder, config, monitor, data.examples.record)
        self._checkpoints = checkpoints = Checkpoints(recorder, config, data, bridge, self._stopping, saved)
        checkpoints.best = next((callback for callback in saving if isinstance(callback, BestCheckpoint)), None)
        own = compiling.make_callbacks(config)
        profiler = Profiler(recorder, bridge, own, self._meter)
        self._steering = SteeringCallback(recorder, bridge, checkpoints, profiler, config)
        self._callbacks = [checkpoints, self._steering, bridge, *filter(None, [self._stopping]), *saving, *own]
        if own:
            checkpoints.own = OwnCallbacks(recorder, own, saved[0].callbacks if saved is not None else None)
            self._callbacks.append(checkpoints.own)

    def _compile(self, config: RunConfig, at: Header | None) -> None:
        """Compile the model for a phase, which may go on from a checkpoint; choose `steps_per_execution`."""
        self._recorder.enter(Phase.COMPILING)
        model, data, accelerator = self._model, self._data, self._accelerator
        framework, replicas = accelerator.framework, len(accelerator.replicas)
        allows_xla = framework.allows_xla(in_scope=accelerator.in_scope)
        in_trace = framework.fits_in_trace(in_scope=accelerator.in_scope)
        sizes = data.examples.signature, replicas, data.steps_per_epoch
        compiling.compile_model(model, config, *sizes, allows_xla=allows_xla, activation=self._activation)
        batches, built = data.calibration(), len(model.weights)
        if hasattr(model, "preprocess_samples"):  # a KerasHub task preprocesses them in `fit`
            batches = batches.map(model.preprocess_samples)
        variables = compiling.build_ahead(model, batches, config.batch_size, in_trace=in_trace, is_new=at is None)
        if len(model.weights) != built:  # its training step calls layers that nothing has called before
            self._recorder.emit(models.model_built(model))
        watch(model, self._bridge.compiled)
        asked, kept = config.steps_per_execution, at.steps_per_execution if at is not None else 1
        if is_kept := asked == "auto" and kept > 1:
            asked = kept
        one_step = framework.one_step_reason(replicas)
        steps, reason = choose_execution(model, asked, data.steps_per_epoch, batches, variables, one_step)
        model.steps_per_execution = steps
        self._bridge.execution_reason = "auto: as before the run was resumed" if is_kept else reason

    def _save_model(self) -> None:
        recorder = self._recorder
        recorder.enter(Phase.SAVING)
        for needed in (recorder.run.config, recorder.run.inputs):  # `predict` needs them, too
            with suppress(OSError):
                sync(needed)
        try:
            if partly := save_model(self._model, recorder.run.model):
                recorder.notice(partly)
        except DiskFullError as error:
            state = recorder.state()
            kept = f"All {len(state.epochs)} epochs are recorded, but the trained model is lost."
            if state.checkpoint is not None:
                kept = f"The best model is kept in {state.checkpoint.path} (epoch {state.checkpoint.epoch})."
            again = f"Free space on that disk, then: tpu-console resume {recorder.run.run_id}"
            raise DiskFullError(error.what, why=error.why, remedy=f"{kept} {again}") from error


def check_model(
    recorder: Recorder, config: RunConfig, data: Pipeline, model: Any
) -> tuple[RunConfig, Activation, tuple[ClassOutput, ...] | None, dict[str, Any]]:
    """Check that a custom model, its labels and the loss fit.

    Returns the configuration for the model's outputs, what turns its logits into probabilities, the outputs that are
    classes, or None if the dataset says which, and what `predict` needs to know of them.
    """
    if not (is_user_reference(config.model) or is_user_reference(config.dataset)):
        return config, model_outputs.logits_activation(model, config, {}), None, {}
    spec, is_alone = data.train.element_spec, recorder.team is None
    models.refuse_loose_weights(model, spec[0] if isinstance(spec, tuple) else spec)
    inputs = labels = None
    if is_alone:
        batch = next(iter(data.calibration()))
        inputs, labels = batch[:2] if isinstance(batch, tuple) and len(batch) > 1 else (batch, None)
    elif isinstance(spec, tuple) and len(spec) > 1:
        # One host alone cannot run a model that is spread over all hosts: it needs no inputs, and labels of 0 will do.
        labels = tf.nest.map_structure(lambda one: np.zeros([8, *one.shape[1:]], one.dtype.as_numpy_dtype), spec[1])
    outputs = {}
    if compiling.is_compiled(model):
        recorder.notice(
            f"{config.model} compiled its model: its own optimizer, loss and metrics are used, not the configuration's."
        )
        with suppress(DataError):
            outputs = model_outputs.outputs_by_name(model, inputs)
    else:
        outputs = model_outputs.outputs_by_name(model, inputs)
        config = model_outputs.for_outputs(config, tuple(outputs))
        model_outputs.check_labels(config, model, outputs, labels if is_alone else None)
        if not is_alone and model_outputs.are_unknown(config, outputs):
            recorder.notice(
                "Whether the model gives logits cannot be checked with several hosts; it is taken to give "
                "probabilities. If it gives logits, set outputs=logits."
            )
    activation = model_outputs.logits_activation(model, config, outputs, compiling.own_losses(config))
    by_output = activation if isinstance(activation, dict) else {"": activation}
    if logits := [name for name, function in by_output.items() if function]:
        names = f" for {', '.join(logits)}" if "" not in logits else ""
        recorder.notice(
            f"The model gives logits{names}, not probabilities: the loss, the class report and `predict` convert them. "
            "If it gives probabilities, set outputs=probabilities."
        )
    classes = model_outputs.class_outputs(model, config, outputs, activation, labels)
    count = data.examples.signature.classes
    record = {"activation": activation, "class_outputs": [output.name for output in classes], "class_count": count}
    return config, activation, classes, record


def steps_for(step_s: float, steps_per_epoch: int) -> tuple[int, str]:
    """Choose a divisor of the epoch's length by the time of one step: Keras always runs whole executions."""
    wanted = TARGET_S / max(step_s, 1e-6)
    divisors = [n for n in range(1, steps_per_epoch + 1) if steps_per_epoch % n == 0]
    allowed = [n for n in divisors if n * step_s <= _LONGEST_S] or [1]
    steps = min(allowed, key=lambda n: abs(math.log(n / wanted)))
    together = f", {steps} steps take {steps * step_s:.2f} s" if steps > 1 else ""
    return steps, f"auto: a step takes {step_s * 1e3:.1f} ms{together}"


def choose_execution(
    model: Any,
    asked: int | str,
    steps_per_epoch: int,
    batches: Any,
    variables: Sequence[Any],
    one_step_reason: str = "",
) -> tuple[int, str]:
    """Choose the steps per execution, and say why; for "auto", the compiled model is timed on a few steps and restored.

    `batches` is an endless dataset of training batches; `variables` are those that `build_ahead` returned.
    `one_step_reason` says why the framework runs a single step whatever is asked for.
    """
    if one_step_reason:
        ignored = asked not in {"auto", 1}
        return 1, f"{one_step_reason}, so {asked} is ignored" if ignored else f"auto: {one_step_reason}"
    if isinstance(asked, int):
        ran = -(-steps_per_epoch // asked) * asked
        if asked > steps_per_epoch:
            return steps_per_epoch, f"asked for {asked}, more than the {steps_per_epoch} steps of an epoch"
        uneven = f"; {steps_per_epoch} steps do not divide by {asked}, so Keras runs {ran} per epoch"
        return asked, f"asked for{uneven if ran != steps_per_epoch else ''}"
    if steps_per_epoch == 1:
        return 1, "auto: an epoch has a single step"
    if model.run_eagerly:
        return 1, "auto: the model runs eagerly"
    if sum(math.prod(variable.shape) for variable in variables) > _LARGEST_STATE:
        return 1, "auto: a step of a model this large takes long enough"
    steps, reason = steps_for(_time_step(model, batches, variables), steps_per_epoch)
    if steps > 1:
        model.train_function = None  # it was traced for one step at a time
    return steps, reason


def _time_step(model: Any, batches: Any, variables: Sequence[Any]) -> float:
    """Time real training steps, then restore every variable, so that the run starts unchanged."""

    def wait_for(logs: Any) -> None:  # until the device has computed them
        for value in keras.tree.flatten(logs):
            keras.ops.convert_to_numpy(value)

    before = [variable.numpy() for variable in variables]
    model.make_train_function()
    step = model.train_function
    iterator = iter(batches)
    wait_for(step(iterator))
    began, done = time.perf_counter(), 0
    while done < _FEWEST_STEPS or (done < _TIMED_STEPS and time.perf_counter() - began < _TIMED_S):
        logs = step(iterator)
        done += 1
    wait_for(logs)
    seconds = (time.perf_counter() - began) / done
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    model.reset_metrics()
    return seconds
