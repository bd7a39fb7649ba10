"""Trains one configuration: connect → load → build → compile → fit → save.

Everything happens in the calling thread: Keras's dtype policy, seed and distribution scope belong to a thread.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..accelerators.backend import choose_backend, connect, is_installed, prepare
from ..accelerators.hosts.membership import check_can_join, find_membership
from ..config.run_config import compared_values, journal_values
from ..config.trust import check_started
from ..config.values import budget_seconds, parse_accelerator
from ..errors import ConsoleError, DataError, DiskFullError, UserCodeError
from ..machine.devices import detect_hardware
from ..machine.install import install_line
from ..machine.sources import this_machine
from ..planning.plan import devices_of
from ..runs.checkpoint import read_checkpoint
from ..runs.control import StoppedError
from ..runs.deadline import Deadline, counts_from, this_session
from ..runs.events import (
    DataReady,
    EpochEnded,
    InputMeasured,
    Phase,
    Progress,
    RunFailed,
    RunFinished,
    RunOutcome,
    RunResumed,
    RunStarted,
    ValidationProgress,
)
from ..runs.facts import conclude
from ..runs.failures import explain, log_text
from ..runs.heartbeat import REMOVED
from ..runs.history import write_history
from ..runs.leftovers import discard_cache
from ..runs.recorder import Recorder
from ..runs.run_directory import is_removed
from ..runs.run_history import Stopwatch
from ..storage.files import open_private, write_soon
from .summary import state_of, summary_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..accelerators.accelerator import Accelerator
    from ..accelerators.backend import BackendChoice
    from ..accelerators.hosts.membership import Membership
    from ..config.run_config import RunConfig
    from ..data.examples import Examples
    from ..input.pipeline import Pipeline
    from ..mirror.background import Mirror
    from ..models.outputs import Activation
    from ..runs.checkpoint import Header
    from ..runs.class_report import ClassReport
    from ..runs.control import Control
    from ..runs.events import RunSource
    from ..runs.journal import JournalWriter
    from ..runs.run_directory import RunDirectory
    from .bridge import BridgeCallback
    from .checkpoints import Arrays, Checkpoints
    from .steering import SteeringCallback


def train_and_report(
    run: RunDirectory,
    config: RunConfig,
    journal: JournalWriter,
    control: Control,
    *,
    source: RunSource,
    resumes: str | None = None,
) -> bool:
    """Train in a prepared run directory, write how it ended as the run's last event, and return whether it finished.

    `resumes` is the name of the checkpoint with which the run goes on; empty if it has none, None for a new run.
    """
    recorder = Recorder(run, journal, control)
    values = journal_values(config)
    folder = ""
    with suppress(OSError):  # it was removed
        folder = str(Path.cwd())
    started = RunStarted(config.name, source, os.getpid(), socket.gethostname(), values, folder)
    end: RunFinished | RunFailed
    try:
        saved = _begin(recorder, started, resumes)
        end = _train(recorder, config, source, saved)
    except StoppedError as stopped:
        reason = control.reason or str(stopped)
        end = RunFinished(RunOutcome.STOPPED, f"{reason}, before training began", {})
    except (Exception, SystemExit) as error:  # noqa: BLE001  every failure becomes the run's last event
        _log_traceback(run, error)
        end = explain(error, run.log.name)
        if recorder.team is not None:
            recorder.team.fail(error, end)
    try:
        if recorder.mirror is not None:
            recorder.mirror.close(end)
    finally:
        recorder.emit(end)
        discard_cache(run)
        journal.flush()
        conclude(run)
    if recorder.mirror is not None:
        recorder.mirror.finish()
    return isinstance(end, RunFinished)


def _begin(recorder: Recorder, started: RunStarted, resumes: str | None) -> tuple[Header, Arrays] | None:
    """Write the first event of a run or of its continuation; return the checkpoint, if there is one."""
    if resumes is None:
        recorder.emit(started)
        return None
    saved = read_checkpoint(recorder.run.checkpoints / resumes) if resumes else None
    at = saved[0] if saved else None
    recorder.emit(
        RunResumed(
            epoch=at.epoch if at else 0,
            epoch_step=at.epoch_step if at else 0,
            step=at.step if at else 0,
            elapsed_s=at.elapsed_s if at else 0.0,
            pid=started.pid,
            host=started.host,
            config=started.config,
            folder=started.folder,
        )
    )
    return saved


def _log_traceback(run: RunDirectory, error: BaseException) -> None:
    # On a full disk the traceback is lost, but the last event still says what happened.
    with suppress(OSError), open(run.log, "a", encoding="utf-8", opener=open_private) as log:
        log.write(log_text(error))


def _train(
    recorder: Recorder, config: RunConfig, source: RunSource, saved: tuple[Header, Arrays] | None
) -> RunFinished:
    check_started(recorder.run.run_id, config)  # whoever started this process
    hardware = detect_hardware()
    backend_choice = choose_backend(config, hardware)
    stopwatch = Stopwatch(config, backend_choice.backend, devices_of(config, hardware, backend_choice))
    if seconds := budget_seconds(config.budget, on_tpu=parse_accelerator(backend_choice.accelerator).is_tpu):
        session = this_session()
        began = counts_from(config.budget, seconds, state_of(recorder).budget, session, time.time())
        recorder.keep_to(Deadline(config.budget, seconds, began, session=session.name))
    if (membership := find_membership(config, this_machine())) is not None:
        check_can_join(membership, backend_choice, source)
    _enter(recorder, Phase.IMPORTING, f"Keras on {backend_choice.framework.title}")
    prepare(config, backend_choice)
    import keras

    from ..monitoring.sampler import Sampler

    start = f"at step {saved[0].step:,}" if saved is not None else ""
    accelerator = _connect(recorder, config, backend_choice, membership, start)
    keras.config.set_dtype_policy(config.precision)
    keras.utils.set_random_seed(config.seed)
    from ..models.pieces import custom_objects

    data = _load(recorder, config, accelerator)
    config = config.model_copy(update={"batch_size": data.global_batch // len(accelerator.replicas)})
    if config.mirror:
        recorder.mirror = _mirror(recorder, config, membership)
    if config.sinks and (recorder.team is None or recorder.team.is_leader):
        from ..sinks.start import start_sinks

        start_sinks(recorder, config)
    objects = keras.saving.CustomObjectScope(custom_objects(config))
    reading = data.reading(partial(_enter, recorder, Phase.LOADING))
    sampler = Sampler(recorder, accelerator, saved[0].elapsed_s if saved is not None else 0.0)
    with objects, reading, _alerts(recorder, config), sampler, accelerator.scope():
        finished = _fit_and_save(recorder, config, accelerator, data, stopwatch, saved)
    if recorder.team is not None:
        recorder.team.finish()
    return finished


def _mirror(recorder: Recorder, config: RunConfig, membership: Membership | None) -> Mirror:
    """Copy the run to its mirror from now on; each of several hosts has its own folder there."""
    from ..mirror.background import Mirror

    name = recorder.run.path.name
    host = f"-host{membership.index}" if membership is not None and membership.index else ""
    return Mirror(recorder, f"{config.mirror.rstrip('/')}/{name.removesuffix(host)}{host}")


def _alerts(recorder: Recorder, config: RunConfig) -> AbstractContextManager[object]:
    """Watch for problems; of several hosts, only the leader does."""
    from ..monitoring.alerts import AlertWatch
    from ..monitoring.webhook import Webhook

    if recorder.team is not None and not recorder.team.is_leader:
        return nullcontext()
    options, webhook = config.alerts, None
    if options.webhook:
        webhook = Webhook(options.webhook, recorder.run.run_id, recorder.notice)
    return AlertWatch(recorder, options, webhook, state_of(recorder))


def _connect(
    recorder: Recorder, config: RunConfig, backend_choice: BackendChoice, membership: Membership | None, start: str
) -> Accelerator:
    """Join the other hosts, if any, and connect the devices."""
    _enter(recorder, Phase.CONNECTING)
    if membership is not None:
        _join(recorder, config, membership, start)
    accelerator = connect(config, backend_choice)
    if recorder.team is not None:
        accelerator = accelerator.with_hosts(recorder.team.names)
    recorder.emit(accelerator.event(backend_choice.why))
    return accelerator


def _load(recorder: Recorder, config: RunConfig, accelerator: Accelerator) -> Pipeline:
    """Load the examples and build their pipeline; report their sizes and notices."""
    from ..data.kinds.table import load_examples
    from ..input import pipeline

    def loading(detail: str) -> None:
        _enter(recorder, Phase.LOADING, detail)

    loading(config.dataset)
    examples = load_examples(config, loading)
    for notice in examples.notices:
        recorder.notice(notice)
    data = pipeline.build_pipeline(
        examples,
        config,
        len(accelerator.replicas),
        accelerator.name,
        cache_folder=recorder.run.cache,
        share=accelerator.share,
        on_decoding=loading,
    )
    for notice in data.notices:
        recorder.notice(notice)
    examples = data.examples
    if examples.record:
        write_soon(recorder.run.inputs, json.dumps(examples.record))
    recorder.emit(
        DataReady(
            examples.train_count,
            examples.validation_count,
            examples.signature.shape,
            examples.signature.classes,
            data.remainder,
            data.cache.reason,
            data.placement.reason,
            data.placement.in_model,
            data.shuffle_buffer,
        )
    )
    if config.early_stopping.patience and config.early_stopping.monitor.startswith("val_") and not data.validation:
        raise DataError(
            f"early_stopping.monitor is {config.early_stopping.monitor}, but {config.dataset} has no validation data.",
            remedy="Set early_stopping.monitor=loss, or return validation data.",
        )
    return data


def _join(recorder: Recorder, config: RunConfig, membership: Membership, start: str) -> None:
    from ..accelerators.hosts.team import join

    if membership.index:
        recorder.leaves_out = (Progress, ValidationProgress, EpochEnded, InputMeasured)
    recorder.team = join(membership, config, recorder, start)


def _fit_and_save(
    recorder: Recorder,
    config: RunConfig,
    accelerator: Accelerator,
    data: Pipeline,
    stopwatch: Stopwatch,
    saved: tuple[Header, Arrays] | None,
) -> RunFinished:
    from ..models.build import model_built
    from ..models.compile import own_optimizers, with_measured_metrics
    from .checked_model import check_model
    from .class_scoring import report_classes

    model = _build(recorder, config, data, is_new=saved is None)
    config, activation, classes = check_model(recorder, config, data, model)
    recorder.emit(model_built(model))  # a subclass of keras.Model has variables once the check has called it
    has_labels = isinstance(data.train.element_spec, tuple) and len(data.train.element_spec) > 1
    config = with_measured_metrics(config, model, has_labels=has_labels)
    if saved is not None and (others := own_optimizers(model)):
        recorder.notice(f"Not in the checkpoint, so it starts over: the state of {' and '.join(others)}.")
    stopping = _early_stopping(config)
    is_whole = _fit(recorder, config, accelerator, data, model, stopping, saved, activation)
    if is_removed(recorder.run):
        raise ConsoleError(f"The run ended, because {REMOVED}.")
    outcome, reason = _how_it_ended(recorder, stopping, is_whole=is_whole)
    if recorder.team is not None and not recorder.team.is_leader:
        # A pass that all hosts make together.
        report_classes(recorder, model, data.validation, data.examples, classes)
        return RunFinished(outcome, f"{reason}; host 0 has the run", {})
    _save_model(recorder, model)
    scores = report_classes(recorder, model, data.validation, data.examples, classes)
    return _finish(recorder, stopwatch, outcome, reason, scores)


def _fit(
    recorder: Recorder,
    config: RunConfig,
    accelerator: Accelerator,
    data: Pipeline,
    model: Any,
    stopping: Any,
    saved: tuple[Header, Arrays] | None,
    activation: Activation,
) -> bool:
    """Train the model, in two phases if it is fine-tuned; return whether all epochs are done."""
    from ..models.fine_tuning import training_phases, unfreeze
    from ..monitoring.input_rate import metered
    from .checkpoints import placed
    from .steering import Rollback

    if saved is not None:
        saved = placed(saved[0], data), saved[1]
    bridge, checkpoints, steering, callbacks = _callbacks(recorder, config, data, stopping, saved)
    rollback = Rollback(recorder, bridge, checkpoints, steering)
    meter = _input_meter(recorder, config, accelerator, data)
    begun_phase = saved[0].phase if saved is not None else 0
    checkpoints.schedule_epochs = _schedule_epochs(recorder, config, saved and saved[0])
    phases = training_phases(config, checkpoints.schedule_epochs)
    for number, phase in enumerate(phases):
        if phase.is_fine_tuning:
            if recorder.should_stop():
                break
            recorder.notice(unfreeze(model, config))
        if number < begun_phase:
            continue
        bridge.execution_reason = _compile(
            recorder, model, phase.config, accelerator, data, saved and saved[0], activation
        )
        if recorder.should_stop() and not phase.is_fine_tuning:
            raise StoppedError
        checkpoints.attach(model, number)
        if recorder.team is not None:
            recorder.team.attach(model)
        is_last = phase is phases[-1]
        is_over = stopping is not None and stopping.stopped_epoch and number == begun_phase and saved is not None
        goes_on = True
        while goes_on:
            last_epoch = steering.epochs if is_last else phase.last_epoch
            train = data.train_from(checkpoints.batches)
            epochs = checkpoints.epoch if is_over else last_epoch
            with closing(checkpoints):  # a run that fails right after an epoch keeps its checkpoint
                model.fit(
                    train if meter is None else metered(train, meter)[0],
                    initial_epoch=checkpoints.epoch,
                    epochs=epochs,
                    steps_per_epoch=data.steps_per_epoch,
                    validation_data=data.validation,
                    validation_freq=checkpoints.validated_epochs(config.validation_freq),
                    callbacks=callbacks,
                    shuffle=False,
                    verbose=0,
                )
            goes_on = steering.goes_on(checkpoints.epoch) and is_last and not is_over
            if steering.goes_back and (back := rollback.go_back(config, is_fine_tuning=phase.is_fine_tuning)):
                (config, at), goes_on = back, True
                lowered = training_phases(config, checkpoints.schedule_epochs)[number]
                bridge.execution_reason = _compile(recorder, model, lowered.config, accelerator, data, at, activation)
                checkpoints.attach(model, number)
    steering.close()
    return checkpoints.epoch >= steering.epochs


def _schedule_epochs(recorder: Recorder, config: RunConfig, saved: Header | None) -> int:
    """Return the epochs that the learning rate's schedule is made for.

    Epochs that were added while the run trained do not change it. Epochs that are given to `resume` do.
    """
    fit = state_of(recorder).fit if saved is not None and saved.schedule_epochs else None
    if saved is None or fit is None or fit.epochs != config.epochs or saved.schedule_epochs == config.epochs:
        return config.epochs
    if config.optimizer.schedule != "constant":
        recorder.notice(f"The learning rate keeps its schedule of {saved.schedule_epochs:,} epochs.")
    return saved.schedule_epochs


def _input_meter(recorder: Recorder, config: RunConfig, accelerator: Accelerator, data: Pipeline) -> Any:
    """Begin to measure how long training waits for its input; None if that cannot be measured."""
    from ..monitoring.input_rate import InputRate, input_facts, input_remedy, metered

    _, meter = metered(data.train)
    if meter is not None:
        remedy = partial(input_remedy, input_facts(config, data, accelerator))
        InputRate(recorder, meter, remedy, alerts="input" in config.alerts.kinds)
    return meter


def _callbacks(
    recorder: Recorder, config: RunConfig, data: Pipeline, stopping: Any, saved: tuple[Header, Arrays] | None
) -> tuple[BridgeCallback, Checkpoints, SteeringCallback, list[Any]]:
    """Return the callbacks that report, save and steer training, and the list of all in the order of their calls."""
    from ..models.pieces import make_callbacks
    from .bridge import BridgeCallback
    from .checkpoints import Checkpoints
    from .own_callbacks import OwnCallbacks
    from .steering import SteeringCallback

    monitor = _monitor(config, has_validation=data.validation is not None)
    bridge = BridgeCallback(
        recorder,
        global_batch=data.global_batch,
        replica_batch=config.batch_size,
        monitor=monitor,
        epochs=config.epochs,
        resumed=saved[0] if saved is not None else None,
    )
    saving = _epoch_end_callbacks(recorder, config, monitor, data.examples)
    checkpoints = Checkpoints(recorder, config, data, bridge, stopping, saved)
    checkpoints.best = next((callback for callback in saving if hasattr(callback, "value")), None)
    steering = SteeringCallback(recorder, bridge, checkpoints, config)
    own = make_callbacks(config)
    callbacks = [checkpoints, steering, bridge, *([stopping] if stopping else []), *saving, *own]
    if own:
        checkpoints.own = OwnCallbacks(recorder, own, saved[0].callbacks if saved is not None else None)
        callbacks.append(checkpoints.own)
    return bridge, checkpoints, steering, callbacks


def _build(recorder: Recorder, config: RunConfig, data: Pipeline, *, is_new: bool) -> Any:
    from ..data.examples import label_of
    from ..input.pipeline import largest_pixel
    from ..input.placement import with_augmentation
    from ..models import build as models
    from ..models.label_checks import refuse_texts

    _enter(recorder, Phase.BUILDING, config.model)
    try:
        model = models.build_model(config, data.examples.signature, recorder.run.hub)
    except UserCodeError:
        refuse_texts(label_of(data.train))  # which have no number of classes
        raise
    if is_new:
        spec = data.train.element_spec
        models.load_start(model, config, spec[0] if isinstance(spec, tuple) else spec)
    if data.placement.in_model:
        model = with_augmentation(model, config.augmentation, largest_pixel(data.examples, config), config.seed)
    return model


def _compile(
    recorder: Recorder,
    model: Any,
    config: RunConfig,
    accelerator: Accelerator,
    data: Pipeline,
    saved: Header | None,
    activation: Activation,
) -> str:
    """Compile the model for a phase and choose `steps_per_execution`; return the reason for it.

    The activation turns the model's outputs into probabilities; empty if they are probabilities.
    """
    from ..models.build import model_built
    from ..models.compile import build_ahead, compile_model
    from . import steps_per_execution as execution

    recorder.enter(Phase.COMPILING)
    framework = accelerator.framework
    compile_model(
        model,
        config,
        data.examples.signature,
        len(accelerator.replicas),
        data.steps_per_epoch,
        allows_xla=framework.allows_xla(in_scope=accelerator.in_scope),
        activation=activation,
    )
    in_trace = framework.fits_in_trace(in_scope=accelerator.in_scope)
    batches, known = _as_trained(model, data.calibration()), len(model.weights)
    variables = build_ahead(model, batches, config.batch_size, in_trace=in_trace, is_new=saved is None)
    if len(model.weights) != known:  # its training step calls layers that nothing has called before
        recorder.emit(model_built(model))
    is_known = saved is not None and saved.steps_per_execution > 1 and config.steps_per_execution == "auto"
    chosen = execution.choose_execution(
        model,
        saved.steps_per_execution if saved is not None and is_known else config.steps_per_execution,
        data.steps_per_epoch,
        batches,
        variables,
        framework.one_step_reason(len(accelerator.replicas)),
    )
    model.steps_per_execution = chosen.steps
    return "auto: as before the run was resumed" if is_known else chosen.reason


def _as_trained(model: Any, batches: Any) -> Any:
    """Return batches as a training step gets them: a KerasHub task preprocesses them in `fit`."""
    return batches.map(model.preprocess_samples) if hasattr(model, "preprocess_samples") else batches


def _epoch_end_callbacks(recorder: Recorder, config: RunConfig, monitor: str, examples: Examples) -> list[Any]:
    """Return the callbacks that write files or report samples at an epoch's end."""
    from . import outputs
    from . import translations as samples

    if recorder.team is not None and not recorder.team.is_leader:
        return []
    callbacks: list[Any] = [outputs.BestCheckpoint(recorder, monitor)] if config.checkpoint.enabled else []
    if "tensorboard" in config.sinks and is_installed("tensorboard"):
        callbacks.append(outputs.EpochSummaries(recorder, compared_values(config)))
    elif "tensorboard" in config.sinks:
        recorder.notice(f"TensorBoard is not installed: no files for it. To install it: {install_line('tensorboard')}")
    if recorder.team is not None:
        callbacks.append(outputs.NewestCheckpoint(recorder))
    if "samples" in examples.record and recorder.team is not None:
        recorder.notice("There are no sample translations: one host alone cannot run a model spread over all hosts.")
    elif "samples" in examples.record:
        callbacks.append(samples.TranslationSamples(recorder, examples.record))
    return callbacks


def _how_it_ended(recorder: Recorder, stopping: Any, *, is_whole: bool) -> tuple[RunOutcome, str]:
    """Return how training ended, and why."""
    if (asked := recorder.control.reason) is not None:
        return RunOutcome.STOPPED, asked
    if stopping is not None and stopping.stopped_epoch:
        return RunOutcome.EARLY, f"{stopping.monitor} did not improve for {stopping.patience} epochs"
    if not is_whole:
        return RunOutcome.EARLY, "a callback stopped training"
    return RunOutcome.COMPLETED, "all epochs are done"


def _save_model(recorder: Recorder, model: Any) -> None:
    from . import outputs

    recorder.enter(Phase.SAVING)
    try:
        if partly := outputs.save_model(model, recorder.run.model):
            recorder.notice(partly)
    except DiskFullError as error:
        raise _not_saved(recorder, error) from error


def _finish(
    recorder: Recorder, stopwatch: Stopwatch, outcome: RunOutcome, reason: str, scores: ClassReport | None
) -> RunFinished:
    """Write the history, and record how long the run took."""
    state = state_of(recorder)
    summary = summary_of(state, outcome, reason, scores)
    try:
        write_history(recorder.run, state.epochs)
    except DiskFullError as error:
        recorder.notice(str(error))  # the model is saved, and the journal has everything else
    stopwatch.record(state)
    return RunFinished(outcome, reason, summary)


def _not_saved(recorder: Recorder, error: DiskFullError) -> DiskFullError:
    """Return the error of a run whose final model could not be saved; it says what was saved before."""
    state = state_of(recorder)
    kept = f"All {len(state.epochs)} epochs are recorded, but the trained model is lost."
    if state.checkpoint is not None:
        kept = f"The best model is kept in {state.checkpoint.path} (epoch {state.checkpoint.epoch})."
    again = f"Free space on that disk, then: tpu-console resume {recorder.run.run_id}"
    return DiskFullError(error.what, why=error.why, remedy=f"{kept} {again}")


def _enter(recorder: Recorder, phase: Phase, detail: str = "") -> None:
    if recorder.should_stop():
        raise StoppedError
    recorder.enter(phase, detail)


def _monitor(config: RunConfig, *, has_validation: bool) -> str:
    """Return the metric that decides which epoch is best."""
    if config.checkpoint.monitor != "auto" and (has_validation or not config.checkpoint.monitor.startswith("val_")):
        return config.checkpoint.monitor
    metric = config.metric_names[0] if config.metrics else "loss"
    return f"val_{metric}" if has_validation else metric


def _early_stopping(config: RunConfig) -> Any:
    from ..models.fine_tuning import Patience

    options = config.early_stopping
    if not options.patience:
        return None
    return Patience(
        monitor=options.monitor,
        patience=options.patience,
        min_delta=options.min_delta,
        restore_best_weights=options.restore_best_weights,
    )
