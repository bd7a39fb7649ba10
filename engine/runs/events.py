"""The events that the engine writes to a run's journal.

Every event is a frozen dataclass; units are in the names. `engine.runs.journal` adds the version, the type and the
time. Readers ignore unknown fields and skip unknown types, so both can be added without a new version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """What a run is doing; phases follow one another and are timed separately."""

    IMPORTING = "importing"
    CONNECTING = "connecting"
    LOADING = "loading data"
    BUILDING = "building"
    COMPILING = "compiling"
    TRAINING = "training"
    VALIDATING = "validating"
    CHECKPOINTING = "checkpointing"
    PAUSED = "paused"
    SAVING = "saving"


PREPARATION = (Phase.IMPORTING, Phase.CONNECTING, Phase.LOADING, Phase.BUILDING, Phase.COMPILING)
"""The phases before training; each comes once, unless a model is fine-tuned."""


class RunSource(StrEnum):
    """What trains a run and writes its journal."""

    PROCESS = "host"
    IN_PROCESS = "in-process"
    NOTEBOOK = "notebook"
    IMPORTED = "imported"


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


class StopAfter(StrEnum):
    """What a run finishes before it stops."""

    STEP = "step"
    EPOCH = "epoch"


class Steering(StrEnum):
    """How a run can be steered while it trains."""

    PAUSE = "pause"
    CONTINUE = "continue"
    EPOCHS = "epochs"
    LEARNING_RATE = "learning_rate"
    CHECKPOINT = "checkpoint"


class AlertKind(StrEnum):
    """What an alert is about."""

    NAN = "nan"
    SPIKE = "spike"
    PLATEAU = "plateau"
    OVERFITTING = "overfitting"
    SLOW_EPOCH = "slow_epoch"
    INPUT = "input"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of the model.

    Args:
        index: Its number, from 0.
        device: The runtime's name of the device, such as ``/device:GPU:0``.
        kind: Type of the device, such as ``NVIDIA H200``, ``TPU v5 lite`` or ``CPU, simulated``.
        host: Name of the machine.
        coordinates: Position of the chip in the TPU's mesh, such as ``1,0,0``; empty if there is none.
        core: Number of the core on its chip; None if unknown.
        process: The host's number, from 0.
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
        used_bytes: In use now; None if unknown.
        peak_bytes: The most so far; None if unknown.
        limit_bytes: The device's memory; None if unknown.
        why_not: Why a figure is missing; empty if none is.
        duty_percent: Share of the last seconds in which the device computed, in percent; None if unknown.
        duty_why_not: Why it is missing; empty if it is not.
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
    """One sentence of the validation data and its translation by the model.

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
        source: What trains: ``host`` (a process of its own), ``in-process`` (the console), ``notebook`` or
            ``imported`` (from another tool).
        pid: Process that trains.
        host: Name of the machine.
        config: The run's configuration as plain values; empty for a notebook's run.
    """

    label: str
    source: str
    pid: int
    host: str
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunResumed:
    """The run continues from a checkpoint, usually in a new process.

    Args:
        epoch: Epochs that had ended.
        epoch_step: Steps done in the epoch after them.
        step: Steps done in the run; 0 if there was no checkpoint.
        elapsed_s: Seconds since `fit` began, without pauses.
        pid: Process that trains.
        host: Name of the machine.
        config: The run's configuration as plain values.
        why: Why the run itself went back, in the same process; empty if it was resumed.
    """

    epoch: int
    epoch_step: int
    step: int
    elapsed_s: float
    pid: int
    host: str
    config: dict[str, Any] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """A phase began, and the previous one ended.

    Args:
        phase: The phase; an older reader shows a newer one as it is.
        detail: Such as the file being downloaded.
    """

    phase: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class AcceleratorReady:
    """The devices are connected and the distribution strategy exists.

    Args:
        accelerator: ``cpu``, ``gpu``, ``tpu`` or ``sim:N``.
        reason: Why this accelerator, in one sentence.
        strategy: Name of the distribution strategy.
        replicas: One entry per replica, of all hosts.
        versions: Framework versions by package name.
        backend: Keras's backend, ``tensorflow`` or ``jax``.
        backend_reason: Why this backend, in a few words.
        topology: The TPU's mesh, tasks and devices in a few words; empty without a TPU.
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
        train_examples: Examples to train on; None if unknown.
        validation_examples: Examples to validate on; None if unknown, 0 without validation.
        input_shape: Shape of one example.
        classes: Number of classes.
        remainder: Examples that each epoch drops, because the last batch is not full.
        cache: Where decoded examples are cached, and why.
        augmentation: Where images are augmented, and why; empty without augmentation.
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
        trainable_parameters: Trainable weights.
        weight_bytes: Size of all weights.
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
        steps_per_epoch: Steps per epoch; None if unknown.
        global_batch: Examples per step over all replicas; None if unknown.
        replica_batch: Examples per step and replica; None if unknown.
        steps_per_execution: Steps per execution.
        execution_reason: Why so many.
        monitor: The metric that decides which epoch is best; empty if there is none.
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
    """The progress of training; written at most ten times per second.

    Args:
        epoch: The epoch, from 1.
        epoch_step: Steps done in this epoch.
        step: Steps done in the run.
        elapsed_s: Seconds since `fit` began, without pauses.
        logs: Metrics as Keras reports them: means over the epoch so far.
    """

    epoch: int
    epoch_step: int
    step: int
    elapsed_s: float
    logs: dict[str, float]


@dataclass(frozen=True, slots=True)
class ValidationProgress:
    """How far validation is; written at most twice per second.

    Args:
        epoch: The epoch, from 1.
        batches: Batches done.
        batches_total: Batches of the whole pass; None in the first one.
    """

    epoch: int
    batches: int
    batches_total: int | None = None


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """An epoch is complete, validation included.

    Args:
        epoch: The epoch, from 1.
        step: Steps done in the run.
        epoch_steps: Steps of this epoch.
        elapsed_s: Seconds since `fit` began, without pauses.
        seconds: Wall time of the whole epoch, without pauses.
        compile_s: Seconds of it until the first execution returned; 0 after the first epoch.
        validation_s: Seconds of it spent validating.
        step_ms: Milliseconds per step, without compilation and validation; None if unknown.
        examples_per_s: Examples per second over all replicas; None if unknown. Older journals name it
            ``images_per_s``.
        learning_rate: At the end of the epoch; None if the optimizer has none.
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
    """A few validation sentences were translated, the same ones after every epoch.

    Args:
        epoch: The epoch, from 1.
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
    """The load of one host, sampled once per second outside the training thread.

    Args:
        process: The host's number, from 0.
        host: Name of the machine.
        elapsed_s: Seconds since `fit` began; None before.
        cpu_percent: How busy the cores are that this host may use, 0 to 100; None if unknown.
        ram_bytes: Memory in use; None if unknown.
        ram_limit_bytes: Memory of the host; None if unknown.
        disk_read_bytes_per_s: Bytes read from disks; None if unknown.
        examples_per_s: Examples per second of this host's replicas since its last sample; None if unknown. Older
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
    """How long training waited for its input since the last such event.

    Args:
        epoch: The epoch, from 1.
        step: Steps done in the run.
        elapsed_s: Seconds since `fit` began, without pauses.
        batches: Batches that training took.
        wait_s: Seconds that it waited for them.
        span_s: Seconds in which it took them, waiting included.
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
    """A host of the run is gone; the others cannot continue without it.

    Args:
        process: The host's number, from 0.
        host: Name of the machine.
        silent_s: Seconds since its last sign of life.
    """

    process: int
    host: str
    silent_s: float


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A better model was saved.

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
    """A message to the user that does not stop the run.

    Args:
        message: One or two sentences.
    """

    message: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Someone asked the run to stop and save.

    Args:
        reason: Who asked and how, such as ``asked from the console``.
        after: What it finishes first: ``step`` or ``epoch``.
    """

    reason: str
    after: str = StopAfter.STEP


@dataclass(frozen=True, slots=True)
class Steered:
    """The answer to a request to steer the run.

    Args:
        action: ``pause``, ``continue``, ``epochs``, ``learning_rate`` or ``checkpoint``.
        by: Who asked and how, such as ``requested with tpu-console pause``.
        epoch: The epoch, from 1; 0 before the first.
        step: Steps done in the run.
        elapsed_s: Seconds since `fit` began, without pauses.
        before: The value before; None if there is none.
        after: The new value; None if there is none.
        refused: Why nothing was changed; empty if it was done.
        request: The request's number.
    """

    action: str
    by: str
    epoch: int
    step: int
    elapsed_s: float
    before: float | None = None
    after: float | None = None
    refused: str = ""
    request: str = ""


@dataclass(frozen=True, slots=True)
class Alerted:
    """Something about the run needs attention.

    Args:
        kind: ``nan``, ``spike``, ``plateau``, ``overfitting``, ``slow_epoch``, ``input`` or ``disk``.
        message: What happened and what to do.
        epoch: The epoch, from 1; 0 before the first.
        step: Steps done in the run.
        stops: Whether the run stops because of it.
    """

    kind: str
    message: str
    epoch: int
    step: int
    stops: bool = False


@dataclass(frozen=True, slots=True)
class BudgetSet:
    """The run has a time budget; it stops and saves before the budget ends.

    Args:
        seconds: The budget.
        ends_at: Unix time at which it ends.
        limit: The configuration's `budget`, such as ``8h30m`` or ``kaggle``.
        session: Names the boot of the machine on which it counts; empty if unknown.
    """

    seconds: float
    ends_at: float
    limit: str
    session: str = ""


@dataclass(frozen=True, slots=True)
class MirrorReported:
    """How much of the run its mirror holds.

    Args:
        place: The run's folder at the mirror.
        epoch: Epochs that had ended at the newest checkpoint there; 0 without one.
        problem: Why the mirror could not be written; empty if it was.
        left: Files that are not copied yet, at the end of the run.
        is_given_up: Whether nothing more is copied.
    """

    place: str
    epoch: int
    problem: str = ""
    left: tuple[str, ...] = ()
    is_given_up: bool = False


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
    """The last event of a run that failed.

    Args:
        what: What happened, in one sentence.
        why: The cause; empty if unknown.
        remedy: What to do next.
        log: Path of the log with the details, relative to the run directory.
    """

    what: str
    why: str
    remedy: str
    log: str


Event = (
    RunStarted
    | RunResumed
    | PhaseStarted
    | AcceleratorReady
    | DataReady
    | ModelBuilt
    | FitStarted
    | Progress
    | ValidationProgress
    | EpochEnded
    | Translated
    | MemorySampled
    | HostSampled
    | InputMeasured
    | HostLost
    | CheckpointSaved
    | Noticed
    | StopRequested
    | Steered
    | Alerted
    | BudgetSet
    | MirrorReported
    | RunFinished
    | RunFailed
)

DURABLE = (EpochEnded, RunFinished, RunFailed)
"""Events that must survive a power failure: each is followed by an fsync."""
