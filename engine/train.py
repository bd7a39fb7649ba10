"""Trains one configuration: connect → load → build → compile → fit → save, each phase told as it begins.

Everything happens in the calling thread: Keras's dtype policy, seed and distribution scope belong to a thread.
"""

from __future__ import annotations

import json
import os
import socket
import traceback
from typing import TYPE_CHECKING, Any

from engine.caching import discard_cache, discard_left_caches
from engine.channel import Channel
from engine.errors import DataError
from engine.events import DataReady, Phase, RunFinished, RunStarted
from engine.failures import explain
from engine.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.accelerators import Accelerator
    from engine.config import RunConfig
    from engine.examples import Examples
    from engine.journal import JournalWriter
    from engine.pipeline import Pipeline
    from engine.rundir import RunDirectory
    from engine.scores import ClassReport
    from engine.stopping import StopToken


class StoppedError(Exception):
    """The run was asked to stop before training began."""


def train_and_report(
    run: RunDirectory, config: RunConfig, journal: JournalWriter, stop_token: StopToken, *, source: str
) -> bool:
    """Train, and write how it ended as the run's last event.

    Args:
        run: A prepared run directory.
        config: What to train.
        journal: Its journal.
        stop_token: How the run is told to stop.
        source: ``host`` or ``in-process``.

    Returns:
        Whether the run finished; False when it failed.
    """
    channel = Channel(run, journal, stop_token)
    values = config.model_dump(mode="json")
    channel.emit(RunStarted(config.name, source, os.getpid(), socket.gethostname(), values))
    try:
        channel.emit(_train(channel, config))
    except StoppedError:
        channel.emit(RunFinished("stopped", f"{stop_token.reason}, before training began", {}))
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it is, the person must hear of it
        with run.log.open("a", encoding="utf-8") as log:
            traceback.print_exception(error, file=log)
        channel.emit(explain(error, run.log.name))
        return False
    finally:
        discard_cache(run)
        journal.flush()
    return True


def _train(channel: Channel, config: RunConfig) -> RunFinished:
    _enter(channel, Phase.IMPORTING, "TensorFlow and Keras")
    import keras

    from engine import accelerators, datasets, pipeline
    from engine.memory import MemorySampler

    _enter(channel, Phase.CONNECTING)
    accelerator = accelerators.connect(config.accelerator)
    channel.emit(accelerator.event())
    keras.config.set_dtype_policy(config.precision)
    keras.utils.set_random_seed(config.seed)

    _enter(channel, Phase.LOADING, config.dataset)
    examples = datasets.load_examples(config, lambda detail: channel.enter(Phase.LOADING, detail))
    for notice in examples.notices:
        channel.notice(notice)
    if examples.record:
        channel.run.write_private(channel.run.inputs, json.dumps(examples.record))
    discard_left_caches(channel.run.path.parent)
    data = pipeline.build_pipeline(
        examples, config, len(accelerator.replicas), accelerator.name, cache_folder=channel.run.cache
    )
    for notice in data.notices:
        channel.notice(notice)
    channel.emit(
        DataReady(
            examples.train_count,
            examples.validation_count,
            examples.signature.shape,
            examples.signature.classes,
            data.remainder,
            data.cache.reason,
            data.placement.reason,
        )
    )
    if config.early_stopping.patience and config.early_stopping.monitor.startswith("val_") and not data.validation:
        raise DataError(
            f"early_stopping.monitor is {config.early_stopping.monitor}, but {config.dataset} has no validation data.",
            remedy="Set early_stopping.monitor=loss, or return validation data.",
        )
    with MemorySampler(channel, accelerator), accelerator.scope():
        return _fit_and_save(channel, config, accelerator, examples, data)


def _fit_and_save(
    channel: Channel, config: RunConfig, accelerator: Accelerator, examples: Examples, data: Pipeline
) -> RunFinished:
    from engine.bridge import BridgeCallback
    from engine.fine_tuning import training_phases, unfreeze
    from engine.report import report_classes

    model = _build(channel, config, examples, data)
    monitor = _monitor(config, has_validation=data.validation is not None)
    bridge = BridgeCallback(
        channel,
        global_batch=data.global_batch,
        replica_batch=config.batch_size,
        monitor=monitor,
        epochs=config.epochs,
    )
    stopping = _early_stopping(config)
    callbacks = [bridge, *([stopping] if stopping else []), *_keepers(channel, config, monitor, examples)]
    for phase in training_phases(config):
        if phase.is_fine_tuning:
            if channel.should_stop():
                break
            channel.notice(unfreeze(model, config))
        bridge.execution_reason = _compile(channel, model, phase.config, len(accelerator.replicas), examples, data)
        if channel.should_stop() and not phase.is_fine_tuning:
            raise StoppedError
        model.fit(
            data.train,
            initial_epoch=bridge.epochs_done,
            epochs=phase.last_epoch,
            steps_per_epoch=data.steps_per_epoch,
            validation_data=data.validation,
            validation_freq=config.validation_freq,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )
    return _save(channel, model, stopping, lambda: report_classes(channel, model, data.validation, examples, config))


def _build(channel: Channel, config: RunConfig, examples: Examples, data: Pipeline) -> Any:
    from engine import models
    from engine.augmentation.placement import with_augmentation
    from engine.pipeline import largest_pixel

    _enter(channel, Phase.BUILDING, config.model)
    model = models.build_model(config, examples.signature, channel.run.hub)
    if data.placement.in_model:
        model = with_augmentation(model, config.augmentation, largest_pixel(examples, config), config.seed)
    channel.emit(models.describe(model))
    return model


def _compile(channel: Channel, model: Any, config: RunConfig, replicas: int, examples: Examples, data: Pipeline) -> str:
    """Compile the model, and choose how many steps are sent at once; return why so many."""
    from engine import execution
    from engine.models.compiling import compile_model

    channel.enter(Phase.COMPILING)
    compile_model(model, config, examples.signature, replicas, data.steps_per_epoch)
    chosen = execution.choose_execution(
        model, config.steps_per_execution, replicas, data.steps_per_epoch, data.calibration
    )
    model.steps_per_execution = chosen.steps
    return chosen.reason


def _keepers(channel: Channel, config: RunConfig, monitor: str, examples: Examples) -> list[Any]:
    """Return the callbacks that write files or tell samples at an epoch's end."""
    from engine import outputs, samples

    keepers: list[Any] = [outputs.BestCheckpoint(channel, monitor)] if config.checkpoint.enabled else []
    if config.tensorboard.enabled:
        keepers.append(outputs.EpochSummaries(channel))
    if "samples" in examples.record:
        keepers.append(samples.TranslationSamples(channel, examples.record))
    return keepers


def _save(channel: Channel, model: Any, stopping: Any, score_classes: Callable[[], ClassReport | None]) -> RunFinished:
    from engine import outputs

    channel.enter(Phase.SAVING)
    outputs.save_model(model, channel.run.model)
    outcome, reason = "completed", "all epochs are done"
    if (asked := channel.stop_token.reason) is not None:
        outcome, reason = "stopped", asked
    elif stopping is not None and stopping.stopped_epoch:
        outcome = "early"
        reason = f"{stopping.monitor} did not improve for {stopping.patience} epochs"
    state, summary = summarise(channel, outcome, reason, score_classes())
    outputs.write_outputs(channel.run, state.epochs, summary)
    return RunFinished(outcome, reason, summary)


def _enter(channel: Channel, phase: Phase, detail: str = "") -> None:
    if channel.should_stop():
        raise StoppedError
    channel.enter(phase, detail)


def _monitor(config: RunConfig, *, has_validation: bool) -> str:
    """Return the metric that says which epoch is best."""
    if config.checkpoint.monitor != "auto" and (has_validation or not config.checkpoint.monitor.startswith("val_")):
        return config.checkpoint.monitor
    metric = config.metrics[0] if config.metrics else "loss"
    return f"val_{metric}" if has_validation else metric


def _early_stopping(config: RunConfig) -> Any:
    from engine.fine_tuning import Patience

    options = config.early_stopping
    if not options.patience:
        return None
    return Patience(
        monitor=options.monitor,
        patience=options.patience,
        min_delta=options.min_delta,
        restore_best_weights=options.restore_best_weights,
    )
