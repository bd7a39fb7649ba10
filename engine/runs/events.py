"""The closed set of events the engine writes to a run's journal.

Every event is a frozen dataclass; units are in the names. The journal's envelope (`engine.runs.journal`) adds the
version, the type and the time. A reader ignores fields it does not know and skips types it does not know, so
new ones may be added without a new version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """What a run is doing; phases follow one another and are timed apart."""

    IMPORTING = "importing"
    CONNECTING = "connecting"
    LOADING = "loading data"
    BUILDING = "building"
    COMPILING = "compiling"
    TRAINING = "training"
    VALIDATING = "validating"
    CHECKPOINTING = "checkpointing"
    SAVING = "saving"


class RunSource(StrEnum):
    """What trains a run and writes its journal."""

    PROCESS = "host"
    IN_PROCESS = "in-process"
    NOTEBOOK = "notebook"


class Bottleneck(StrEnum):
    """What limits the speed of training."""

    INPUT = "input"
    ACCELERATOR = "accelerator"
    BALANCED = "balanced"


class RunOutcome(StrEnum):
    """How a run that was saved ended."""

    COMPLETED = "completed"
    EARLY = "early"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of the model.

    Args:
        index: Its number, from 0.
        device: The runtime's name of the device, such as ``/device:GPU:0``.
        kind: What the device is, such as ``NVIDIA H200``, ``TPU v5 lite`` or ``CPU, simulated``.
        host: Name of the machine.
        coordinates: Where the chip sits in the TPU's mesh, such as ``1,0,0``; empty where there is none.
        core: Number of the core on its chip; None where the runtime does not tell.
        process: Number of the host process that drives it, from 0.
    """

    index: int
    device: str
    kind: str
    host: str
    coordinates: str = ""
    core: int | None = None
    process: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaMemory:
    """Memory of one replica's device.

    Args:
        index: The replica's number.
        used_bytes: In use now, or None where the runtime does not tell.
        peak_bytes: The most so far, or None.
        limit_bytes: What there is, or None.
        why_not: Why a figure is missing; empty when none is.
        duty_percent: Share of the last seconds in which the device computed, in percent; None where not told.
        duty_why_not: Why it is missing; empty when it is not.
    """

    index: int
    used_bytes: int | None
    peak_bytes: int | None
    limit_bytes: int | None
    why_not: str = ""
    duty_percent: float | None = None
    duty_why_not: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sentence of the validation data and what the model makes of it.

    Args:
        source: The sentence.
        expected: Its translation in the data.
        predicted: The model's translation, in lower case and without punctuation.
    """

    source: str
    expected: str
    predicted: str


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The first event of every run.

    Args:
        label: The preset's name, or the name a notebook gave.
        source: What trains: ``host`` (a process of its own), ``in-process`` (the console) or ``notebook``.
        pid: Process that trains.
        host: Machine it trains on.
        config: The run's configuration as plain values; empty for a notebook's run.
    """

    label: str
    source: str
    pid: int
    host: str
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """A phase began, and the one before it ended.

    Args:
        phase: A value of `Phase`; a plain string, so that an older reader shows a newer phase.
        detail: What exactly, such as a file being fetched.
    """

    phase: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class AcceleratorReady:
    """Devices are connected and the distribution strategy is made.

    Args:
        accelerator: ``cpu``, ``gpu``, ``tpu`` or ``sim:N``.
        reason: Why this one, in one sentence.
        strategy: Name of the distribution strategy.
        replicas: One entry a replica, of all hosts.
        versions: Framework versions by package name.
        backend: Keras's backend, ``tensorflow`` or ``jax``.
        backend_reason: Why this one, in a few words.
        topology: The TPU's mesh, tasks and devices in a few words; empty where there is none.
    """

    accelerator: str
    reason: str
    strategy: str
    replicas: tuple[Replica, ...]
    versions: dict[str, str]
    backend: str = "tensorflow"
    backend_reason: str = ""
    topology: str = ""


@dataclass(frozen=True, slots=True)
class DataReady:
    """The input pipeline is built.

    Args:
        train_examples: Examples to train on; None when a person's own dataset does not tell.
        validation_examples: Examples to validate on; None likewise, 0 when there is no validation.
        input_shape: Shape of one example.
        classes: Number of classes.
        remainder: Examples an epoch leaves out because the last batch would not be full.
        cache: Where decoded examples are kept after the first epoch, and why.
        augmentation: Where images are changed at random, and why; empty when they are not.
    """

    train_examples: int | None
    validation_examples: int | None
    input_shape: tuple[int | None, ...]
    classes: int
    remainder: int = 0
    cache: str = ""
    augmentation: str = ""


@dataclass(frozen=True, slots=True)
class ModelBuilt:
    """The model exists.

    Args:
        name: The model's name.
        parameters: All weights.
        trainable_parameters: Weights that training moves.
        weight_bytes: Bytes of all weights.
        layers: Number of layers.
    """

    name: str
    parameters: int
    trainable_parameters: int
    weight_bytes: int
    layers: int


@dataclass(frozen=True, slots=True)
class FitStarted:
    """`fit` begins.

    Args:
        epochs: Epochs to train.
        steps_per_epoch: Steps an epoch; None when the data does not tell.
        global_batch: Examples a step over all replicas; None when unknown.
        replica_batch: Examples a step and replica; None when unknown.
        steps_per_execution: Steps sent to the device at once.
        execution_reason: Why so many.
        monitor: The metric that says which epoch is best; empty when there is none.
    """

    epochs: int
    steps_per_epoch: int | None
    global_batch: int | None
    replica_batch: int | None
    steps_per_execution: int
    execution_reason: str = ""
    monitor: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where training stands; written at most ten times a second.

    Args:
        epoch: Current epoch, from 1.
        epoch_step: Steps done in this epoch.
        step: Steps done in the run.
        elapsed_s: Seconds since `fit` began.
        logs: Metrics as Keras reports them: means over the epoch so far.
    """

    epoch: int
    epoch_step: int
    step: int
    elapsed_s: float
    logs: dict[str, float]


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """An epoch is complete, validation included.

    Args:
        epoch: The epoch, from 1.
        step: Steps done in the run.
        epoch_steps: Steps of this epoch.
        elapsed_s: Seconds since `fit` began.
        seconds: Wall time of the epoch, all included.
        compile_s: Seconds of it until the first execution returned (first epoch; else 0).
        validation_s: Seconds of it spent validating.
        step_ms: Milliseconds a step, without compilation and validation; None where nothing was left to time.
        examples_per_s: Examples a second over all replicas; None when the batch size is unknown. Older journals name
            it ``images_per_s``.
        learning_rate: At the end of the epoch; None when the optimizer has none.
        logs: Metrics of the epoch, validation metrics under ``val_…``.
    """

    epoch: int
    step: int
    epoch_steps: int
    elapsed_s: float
    seconds: float
    compile_s: float
    validation_s: float
    step_ms: float | None
    examples_per_s: float | None
    learning_rate: float | None
    logs: dict[str, float]


@dataclass(frozen=True, slots=True)
class Translated:
    """A few sentences of the validation data were translated, the same ones after every epoch.

    Args:
        epoch: The epoch that ended, from 1.
        samples: The sentences.
    """

    epoch: int
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class MemorySampled:
    """Device memory, sampled outside the training thread."""

    replicas: tuple[ReplicaMemory, ...]


@dataclass(frozen=True, slots=True)
class HostSampled:
    """What one host does, sampled once a second outside the training thread.

    Args:
        process: The host's number, from 0.
        host: Name of the machine.
        elapsed_s: Seconds since `fit` began; None before.
        cpu_percent: Share of the cores this host may use that is busy, 0 to 100, or None.
        ram_bytes: Memory in use, or None.
        ram_limit_bytes: Memory there is, or None.
        disk_read_bytes_per_s: What is read from disks, or None.
        examples_per_s: Examples a second that this host's replicas took since its last sample, or None. Older
            journals name it ``images_per_s``.
        why_not: Why a figure is missing, by its name.
    """

    process: int
    host: str
    elapsed_s: float | None
    cpu_percent: float | None
    ram_bytes: int | None
    ram_limit_bytes: int | None
    disk_read_bytes_per_s: float | None
    examples_per_s: float | None = None
    why_not: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InputMeasured:
    """How long training waited for its input lately, apart from the time it computed.

    Args:
        epoch: Current epoch, from 1.
        step: Steps done in the run.
        elapsed_s: Seconds since `fit` began.
        batches: Batches that were taken since the last such event.
        wait_s: Seconds that training waited for them.
        span_s: Seconds in which they were taken.
        limit: What limits the run: ``input``, ``accelerator`` or ``balanced``.
        remedy: What would make the input faster; empty if it is not the limit.
    """

    epoch: int
    step: int
    elapsed_s: float
    batches: int
    wait_s: float
    span_s: float
    limit: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class HostLost:
    """A host of the run is gone; the others cannot go on without it.

    Args:
        process: Its number, from 0.
        host: Name of the machine.
        silent_s: Seconds since it was heard last.
    """

    process: int
    host: str
    silent_s: float


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A better model was kept.

    Args:
        epoch: The epoch, from 1.
        path: Path relative to the run directory.
        monitor: The metric that improved.
        value: Its value.
    """

    epoch: int
    path: str
    monitor: str
    value: float


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something a person should know that does not stop the run.

    Args:
        message: One or two sentences.
    """

    message: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Someone asked the run to stop; it ends after the current execution and is saved.

    Args:
        reason: Who asked and how, such as ``asked from the console``.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last event of a run that was saved.

    Args:
        outcome: ``completed``, ``early`` (early stopping) or ``stopped`` (asked to).
        reason: One sentence.
        summary: What ``summary.json`` holds.
    """

    outcome: str
    reason: str
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The last event of a run that could not go on.

    Args:
        what: What happened, in one sentence.
        why: The cause, when known.
        remedy: What to do next.
        log: Path of the log with the details, relative to the run directory.
    """

    what: str
    why: str
    remedy: str
    log: str


Event = (
    RunStarted
    | PhaseStarted
    | AcceleratorReady
    | DataReady
    | ModelBuilt
    | FitStarted
    | Progress
    | EpochEnded
    | Translated
    | MemorySampled
    | HostSampled
    | InputMeasured
    | HostLost
    | CheckpointSaved
    | Noticed
    | StopRequested
    | RunFinished
    | RunFailed
)

DURABLE = (EpochEnded, RunFinished, RunFailed)
"""Events that must survive a power cut: they are followed by an fsync."""
