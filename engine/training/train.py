"""Trains one configuration: connect → load → build → compile → fit → save; from building on in `fitting`.

Everything happens in the calling thread: Keras's dtype policy, seed and distribution scope belong to a thread.
"""

from __future__ import annotations

import os
import socket
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..accelerators.backend import BackendChoice, choose_backend, connect, importing, prepare
from ..accelerators.hosts import Membership, check_can_join, find_membership, join
from ..config.run_config import RunConfig, journal_values
from ..config.user_code import check_started
from ..config.values import budget_seconds, parse_accelerator
from ..errors import DataError
from ..machine.devices import detect_hardware
from ..machine.sources import this_machine
from ..planning import devices_of
from ..runs import events
from ..runs.checkpoint import Header, read_checkpoint
from ..runs.control import Control, StoppedError
from ..runs.events import Phase, RunFailed, RunFinished, RunSource
from ..runs.facts import conclude
from ..runs.failures import explain, log_text
from ..runs.recorder import Deadline, Recorder, counts_from
from ..runs.run_directory import RunDirectory, discard_cache
from ..runs.timing import Stopwatch
from ..storage.files import open_private

if TYPE_CHECKING:
    from ..accelerators.framework import Accelerator
    from ..input.pipeline import Pipeline
    from ..runs.journal import JournalWriter
    from .checkpoints import Arrays


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
    recorder, folder = Recorder(run, journal, control), ""
    with suppress(OSError):  # it was removed
        folder = str(Path.cwd())
    process = os.getpid(), socket.gethostname(), journal_values(config)
    end: RunFinished | RunFailed
    try:
        saved = read_checkpoint(run.checkpoints / resumes) if resumes else None
        if resumes is None:
            recorder.emit(events.RunStarted(config.name, source, *process, folder))
        else:
            at = saved[0].place if saved else (0, 0, 0, 0.0)
            recorder.emit(events.RunResumed(*at, *process, folder=folder))
        end = _train(recorder, config, source, saved)
    except StoppedError as stopped:
        reason = control.reason or str(stopped)
        end = RunFinished(events.RunOutcome.STOPPED, f"{reason}, before training began", {})
    except (Exception, SystemExit) as error:  # noqa: BLE001  every failure becomes the run's last event
        # On a full disk the traceback is lost, but the last event still says what happened.
        with suppress(OSError), open(run.log, "a", encoding="utf-8", opener=open_private) as log:
            log.write(log_text(error))
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


def _train(
    recorder: Recorder, config: RunConfig, source: RunSource, saved: tuple[Header, Arrays] | None
) -> RunFinished:
    run_id = recorder.run.run_id
    check_started(run_id, config)  # whoever started this process
    hardware = detect_hardware()
    backend_choice = choose_backend(config, hardware)
    stopwatch = Stopwatch(config, backend_choice.backend, devices_of(config, hardware, backend_choice)[0])
    if seconds := budget_seconds(config.budget, on_tpu=parse_accelerator(backend_choice.accelerator).is_tpu):
        recorder.keep_to(Deadline(config.budget, seconds, counts_from(config.budget)))
    if (membership := find_membership(config, this_machine())) is not None:
        check_can_join(membership, backend_choice, source)
    recorder.begin(Phase.IMPORTING, f"Keras on {backend_choice.framework.title}")
    prepare(config, backend_choice)
    with importing():
        import keras

    from ..models.compile import custom_objects
    from ..monitoring.alerts import AlertWatch, Webhook
    from ..monitoring.sampler import Sampler

    start = f"at step {saved[0].step:,}" if saved is not None else ""
    accelerator = _connect(recorder, config, backend_choice, membership, start)
    keras.config.set_dtype_policy(config.precision)
    keras.utils.set_random_seed(config.seed)
    with importing():  # and TensorFlow, which reads the data
        from .fitting import Fitting

    data = _load(recorder, config, accelerator)
    config = config.model_copy(update={"batch_size": data.global_batch // len(accelerator.replicas)})
    if config.mirror:
        from ..mirror.copier import Mirror

        name = recorder.run.path.name
        # Each of several hosts has its own folder there.
        host = f"-host{membership.index}" if membership is not None and membership.index else ""
        recorder.mirror = Mirror(recorder, f"{config.mirror.rstrip('/')}/{name.removesuffix(host)}{host}")
    if config.sinks and recorder.is_leader:
        from ..sinks import start_sinks

        start_sinks(recorder, config)
    objects = keras.saving.CustomObjectScope(custom_objects(config))
    reading = data.reading(partial(recorder.begin, Phase.LOADING))
    sampler = Sampler(recorder, accelerator, saved[0].elapsed_s if saved is not None else 0.0)
    alerts: AbstractContextManager[object] = nullcontext()
    if recorder.is_leader:  # of several hosts, only that one watches for problems
        webhook = Webhook(config.alerts.webhook, run_id, recorder.notice) if config.alerts.webhook else None
        alerts = AlertWatch(recorder, config.alerts, webhook, recorder.state())
    with objects, reading, alerts, sampler, accelerator.scope():
        finished = Fitting(recorder, config, accelerator, data, saved).run(stopwatch)
    if recorder.team is not None:
        recorder.team.finish()
    return finished


def _connect(
    recorder: Recorder, config: RunConfig, backend_choice: BackendChoice, membership: Membership | None, start: str
) -> Accelerator:
    """Join the other hosts, if any, and connect the devices."""
    recorder.begin(Phase.CONNECTING)
    if membership is not None:
        if membership.index:
            of_leader = events.Progress, events.ValidationProgress, events.EpochEnded, events.InputMeasured
            recorder.leaves_out = of_leader
        recorder.team = join(membership, config, recorder, start)
    accelerator = connect(config, backend_choice)
    if recorder.team is not None:
        accelerator = accelerator.with_hosts(recorder.team.names)
    recorder.emit(accelerator.event(backend_choice.why))
    return accelerator


def _load(recorder: Recorder, config: RunConfig, accelerator: Accelerator) -> Pipeline:
    """Load the examples and build their pipeline; report their sizes and notices."""
    from ..data.kinds.table import load_examples
    from ..input import pipeline

    def loading(detail: object) -> None:
        recorder.begin(Phase.LOADING, str(detail))

    loading(config.dataset)
    examples = load_examples(config, loading)
    if examples.without_damaged is not None and config.data.options.get("skip_bad"):
        examples = examples.without_damaged(loading)
    replicas, cache = len(accelerator.replicas), recorder.run.cache
    data = pipeline.build_pipeline(examples, config, replicas, accelerator.name, cache, share=accelerator.share)
    for notice in (*examples.notices, *data.notices):
        recorder.notice(notice)
    ready = events.DataReady(
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
    recorder.emit(ready)
    options = config.early_stopping
    if options.patience and options.monitor.startswith("val_") and not data.validation:
        what = f"early_stopping.monitor is {options.monitor}, but {config.dataset} has no validation data."
        raise DataError(what, remedy="Set early_stopping.monitor=loss, or return validation data.")
    return data
