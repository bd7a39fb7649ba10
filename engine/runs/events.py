"""The events that the engine writes to a run's journal.

Every event is a frozen dataclass; units are in the names. `engine.runs.journal` adds the version, the type and the
time. Readers ignore unknown fields and skip unknown types, so both can be added without a new version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .metrics import Metric  # noqa: TC001  journals are read by the types of the fields


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


# The phases before training, of which each comes once unless a model is fine-tuned, and those that epochs are made of.
PREPARATION = (Phase.IMPORTING, Phase.CONNECTING, Phase.LOADING, Phase.BUILDING, Phase.COMPILING)
OF_EPOCHS = (Phase.TRAINING, Phase.VALIDATING, Phase.CHECKPOINTING)


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
    """What a run can be asked while it trains."""

    STOP = "stop"
    STOP_AFTER_EPOCH = "stop_after_epoch"
    END_NOW = "end_now"
    ROLL_BACK = "roll_back"
    PAUSE = "pause"
    CONTINUE = "continue"
    EPOCHS = "epochs"
    LEARNING_RATE = "learning_rate"
    CHECKPOINT = "checkpoint"
    PROFILE = "profile"


class Spent(StrEnum):
    """What the time of a step goes to."""

    COMPUTING = "computing"
    EXCHANGE = "exchange between replicas"
    TRANSFER = "transfer to the device"
    INPUT = "waiting for input"
    CALLBACKS = "your callbacks"
    HOST = "Python between steps"


class AlertKind(StrEnum):
    """What an alert is about."""

    NAN = "nan"
    SPIKE = "spike"
    PLATEAU = "plateau"
    OVERFITTING = "overfitting"
    SLOW_EPOCH = "slow_epoch"
    INPUT = "input"
    DISK = "disk"
    COMPILATION = "compilation"


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of the model."""

    index: int  # its number, from 0
    device: str  # the runtime's name of the device, such as ``/device:GPU:0``
    kind: str  # type of the device, such as ``NVIDIA H200``, ``TPU v5 lite`` or ``CPU, simulated``
    host: str  # name of the machine
    coordinates: str = ""  # position of the chip in the TPU's mesh, such as ``1,0,0``; empty if there is none
    core: int | None = None  # number of the core on its chip; None if unknown
    process: int = 0  # the host's number, from 0


@dataclass(frozen=True, slots=True)
class ReplicaMemory:
    """Memory of one replica's device."""

    index: int  # the replica's number
    used_bytes: int | None  # in use now; None if unknown
    peak_bytes: int | None  # the most so far; None if unknown
    limit_bytes: int | None  # the device's memory; None if unknown
    why_not: str = ""  # why a figure is missing; empty if none is
    duty_percent: float | None = None  # share of the last seconds in which the device computed; None if unknown
    duty_why_not: str = ""  # why it is missing; empty if it is not


@dataclass(frozen=True, slots=True)
class Sample:
    """One sentence of the validation data and its translation by the model."""

    source: str  # the sentence
    expected: str  # its translation in the data
    predicted: str  # the model's translation, in lower case and without punctuation


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a run; a line of its journal has the name of the subclass."""


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The first event of every run."""

    label: str  # the preset's name, or the name a notebook gave
    source: str  # what trains: ``host`` (a process), ``in-process`` (the console), ``notebook`` or ``imported``
    pid: int  # process that trains
    host: str  # name of the machine
    config: dict[str, Any] = field(default_factory=dict)  # the run's configuration; empty for a notebook's run
    folder: str = ""  # the working folder, where relative paths start; empty if unknown


@dataclass(frozen=True, slots=True)
class RunResumed(Event):
    """The run continues from a checkpoint, usually in a new process."""

    epoch: int  # epochs that had ended
    epoch_step: int  # steps done in the epoch after them
    step: int  # steps done in the run; 0 if there was no checkpoint
    elapsed_s: float  # seconds since `fit` began, without pauses
    pid: int  # process that trains
    host: str  # name of the machine
    config: dict[str, Any] = field(default_factory=dict)  # the run's configuration as plain values
    why: str = ""  # why the run itself went back, in the same process; empty if it was resumed
    folder: str = ""  # the working folder, where relative paths start; empty if it is still the same


@dataclass(frozen=True, slots=True)
class PhaseStarted(Event):
    """A phase began, and the previous one ended."""

    phase: str  # the phase; a plain string, so that an older reader shows a newer one
    detail: str = ""  # such as the file being downloaded


@dataclass(frozen=True, slots=True)
class AcceleratorReady(Event):
    """The devices are connected and the distribution strategy exists."""

    accelerator: str  # ``cpu``, ``gpu``, ``tpu`` or ``sim:N``
    reason: str  # why this accelerator
    strategy: str  # name of the distribution strategy
    replicas: tuple[Replica, ...]  # one entry per replica, of all hosts
    versions: dict[str, str]  # framework versions by package name
    backend: str = "tensorflow"  # Keras's backend, ``tensorflow`` or ``jax``
    backend_reason: str = ""  # why this backend
    topology: str = ""  # the TPU's mesh, tasks and devices; empty without a TPU


@dataclass(frozen=True, slots=True)
class DataReady(Event):
    """The input pipeline is built."""

    train_examples: int | None  # examples to train on; None if unknown
    validation_examples: int | None  # examples to validate on; None if unknown, 0 without validation
    input_shape: tuple[int | None, ...]  # shape of one example
    classes: int  # number of classes
    remainder: int = 0  # examples that each epoch drops
    cache: str = ""  # where decoded examples are cached, and why
    augmentation: str = ""  # where images are augmented, and why; empty without augmentation
    augments_in_model: bool = False  # whether layers of the model augment them
    shuffle_buffer: int | None = None  # examples in the shuffle buffer; None if unknown


@dataclass(frozen=True, slots=True)
class ModelBuilt(Event):
    """The model exists."""

    name: str  # the model's name
    parameters: int  # all weights
    trainable_parameters: int  # trainable weights
    weight_bytes: int  # size of all weights
    layers: int  # number of layers
    is_compiled: bool = False  # whether the user's function has compiled it


@dataclass(frozen=True, slots=True)
class FitStarted(Event):
    """`fit` begins."""

    epochs: int  # epochs to train
    steps_per_epoch: int | None  # steps per epoch; None if unknown
    global_batch: int | None  # examples per step over all replicas; None if unknown
    replica_batch: int | None  # examples per step and replica; None if unknown
    steps_per_execution: int  # steps per execution
    execution_reason: str = ""  # why so many
    monitor: str = ""  # the metric that decides which epoch is best; empty if there is none
    metrics: tuple[Metric, ...] = ()  # what is known of the metrics; empty in older journals
    best_step_ms: float | None = None  # the least time of a step by the preflight; None if there was none for this TPU
    # The same of its slowest layers; the rest of the step has an empty name, and the optimizer its own.
    best_layers_ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress(Event):
    """The progress of training, at most ten times per second."""

    epoch: int  # the epoch, from 1
    epoch_step: int  # steps done in this epoch
    step: int  # steps done in the run
    elapsed_s: float  # seconds since `fit` began, without pauses
    logs: dict[str, float]  # metrics as Keras reports them: means over the epoch so far


@dataclass(frozen=True, slots=True)
class ValidationProgress(Event):
    """How far validation is, at most twice per second."""

    epoch: int  # the epoch, from 1
    batches: int  # batches done
    batches_total: int | None = None  # batches of the whole pass; None in the first one


@dataclass(frozen=True, slots=True)
class EpochEnded(Event):
    """An epoch is complete, validation included."""

    epoch: int  # the epoch, from 1
    step: int  # steps done in the run
    epoch_steps: int  # steps of this epoch
    elapsed_s: float  # seconds since `fit` began, without pauses
    seconds: float  # wall time of the whole epoch, without pauses
    compile_s: float  # seconds of it until the first execution returned; 0 after the first epoch
    validation_s: float  # seconds of it spent validating
    step_ms: float | None  # milliseconds per step, without compilation and validation; None if unknown
    examples_per_s: float | None  # over all replicas; None if unknown; ``images_per_s`` in older journals
    learning_rate: float | None  # at the end of the epoch; None if the optimizer has none
    logs: dict[str, float]  # metrics of the epoch, validation metrics under ``val_…``


@dataclass(frozen=True, slots=True)
class Translated(Event):
    """A few validation sentences were translated, the same ones after every epoch."""

    epoch: int  # the epoch, from 1
    samples: tuple[Sample, ...]  # the sentences


@dataclass(frozen=True, slots=True)
class MemorySampled(Event):
    """Device memory."""

    replicas: tuple[ReplicaMemory, ...]  # one entry per replica


@dataclass(frozen=True, slots=True)
class HostSampled(Event):
    """The load of one host, once per second."""

    process: int  # the host's number, from 0
    host: str  # name of the machine
    elapsed_s: float | None  # seconds since `fit` began; None before
    cpu_percent: float | None  # how busy the cores are that this host may use, 0 to 100; None if unknown
    ram_bytes: int | None  # memory in use; None if unknown
    ram_limit_bytes: int | None  # memory of the host; None if unknown
    disk_read_bytes_per_s: float | None  # bytes read from disks; None if unknown
    # Of this host's replicas since its last sample; None if unknown; ``images_per_s`` in older journals.
    examples_per_s: float | None = None
    why_not: dict[str, str] = field(default_factory=dict)  # why a figure is missing, by its name


@dataclass(frozen=True, slots=True)
class InputMeasured(Event):
    """How long training waited for its input since the last such event."""

    epoch: int  # the epoch, from 1
    step: int  # steps done in the run
    elapsed_s: float  # seconds since `fit` began, without pauses
    batches: int  # batches that training took
    wait_s: float  # seconds that it waited for them
    span_s: float  # seconds in which it took them, waiting included
    limit: str  # what limits the run: ``input``, ``accelerator`` or ``balanced``
    remedy: str = ""  # what would make the input faster; empty if it is not the limit


@dataclass(frozen=True, slots=True)
class HostLost(Event):
    """A host of the run is gone; only in older journals."""

    process: int  # the host's number, from 0
    host: str  # name of the machine
    silent_s: float  # seconds since its last sign of life


@dataclass(frozen=True, slots=True)
class CheckpointSaved(Event):
    """A better model was saved."""

    epoch: int  # the epoch, from 1
    path: str  # path relative to the run directory
    monitor: str  # the metric that improved
    value: float  # its value


@dataclass(frozen=True, slots=True)
class Noticed(Event):
    """A message to the user that does not stop the run."""

    message: str  # one or two sentences


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """Someone asked the run to stop and save."""

    reason: str  # who asked and how, such as ``asked from the console``
    after: str = StopAfter.STEP  # what it finishes first: ``step`` or ``epoch``


@dataclass(frozen=True, slots=True)
class Steered(Event):
    """The answer to a request to steer the run."""

    action: str  # ``pause``, ``continue``, ``epochs``, ``learning_rate``, ``checkpoint`` or ``stop_after_epoch``
    by: str  # who asked and how, such as ``requested with tpu-console pause``
    epoch: int  # the epoch, from 1; 0 before the first
    step: int  # steps done in the run
    elapsed_s: float  # seconds since `fit` began, without pauses
    before: float | None = None  # the value before; None if there is none
    after: float | None = None  # the new value; None if there is none
    refused: str = ""  # why nothing was changed; empty if it was done
    request: str = ""  # the request's number


@dataclass(frozen=True, slots=True)
class Profiled(Event):
    """A few steps were traced; every figure is a mean of them, in seconds per step."""

    epoch: int  # the epoch, from 1
    step: int  # steps done in the run
    elapsed_s: float  # seconds since `fit` began, without pauses
    steps: int  # steps that were traced
    step_s: float  # seconds of one
    spent: dict[str, float]  # of these: by what they went to; the names are those of `Spent`
    layers: dict[str, float]  # computing by Keras layer, the largest first; the rest of the step has an empty name
    operations: dict[str, float]  # the same by kind of operation, such as ``dot_general``
    callbacks: dict[str, float]  # the user's callbacks by class
    optimizer: str  # its name among the layers
    weights: dict[str, float]  # share of the model's weights by layer, from 0 to 1, the largest first
    trace: str  # path of the trace relative to the run directory; empty without one
    problem: str = ""  # why it could not be read; empty if it was
    request: str = ""  # the request's number
    # Of the computing: in float32, without the optimizer; 0 if most multiplications have another type, None if unknown.
    float32_s: float | None = None
    matrix_unit: float | None = None  # share of its peak while computing, from 0 to 1; None if unknown
    bandwidth: float | None = None  # the same of the device's memory


@dataclass(frozen=True, slots=True)
class Compiled(Event):
    """A step was compiled, which happens once for each shape of a batch."""

    epoch: int  # the epoch, from 1; 0 before the first
    step: int  # steps done in the run
    elapsed_s: float  # seconds since `fit` began, without pauses
    seconds: float  # until the execution that began with it returned
    is_validation: bool  # whether it was the step of validation
    is_cached: bool | None  # whether the program came from the cache on the disk; None if there is none
    part: str  # the part of a batch that was different: ``inputs``, ``labels 2``; empty if none was
    batch: str  # that part, such as ``float32[64,28,28,1]``; the first part of the batch if none was
    before: str  # what it was when the step was compiled before; empty if none was different
    steps: int = 1  # steps per execution


@dataclass(frozen=True, slots=True)
class Alerted(Event):
    """Something about the run needs attention."""

    # ``nan``, ``spike``, ``plateau``, ``overfitting``, ``slow_epoch``, ``input``, ``disk`` or ``compilation``.
    kind: str
    message: str  # what happened; in older journals also what to do
    epoch: int  # the epoch, from 1; 0 before the first
    step: int  # steps done in the run
    stops: bool = False  # whether the run stops because of it
    remedy: str = ""  # what to do while it trains

    @property
    def text(self) -> str:
        """What happened and what to do."""
        return f"{self.message} {self.remedy}".rstrip()


@dataclass(frozen=True, slots=True)
class BudgetSet(Event):
    """The run has a time budget."""

    seconds: float  # the budget
    ends_at: float  # Unix time at which it ends
    limit: str  # the configuration's `budget`, such as ``8h30m`` or ``kaggle``


@dataclass(frozen=True, slots=True)
class MirrorReported(Event):
    """How much of the run its mirror holds."""

    place: str  # the run's folder at the mirror
    epoch: int  # epochs that had ended at the newest checkpoint there; 0 without one
    problem: str = ""  # why the mirror could not be written; empty if it was
    left: tuple[str, ...] = ()  # files that are not copied yet, at the end of the run
    is_given_up: bool = False  # whether nothing more is copied


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The last event of a run that was saved, or that somebody killed."""

    outcome: str  # ``completed``, ``early`` (early stopping) or ``stopped`` (asked to)
    reason: str  # one sentence
    summary: dict[str, Any]  # what ``summary.json`` holds


@dataclass(frozen=True, slots=True)
class RunFailed(Event):
    """The last event of a run that failed."""

    what: str  # what happened, in one sentence
    why: str  # the cause; empty if unknown
    remedy: str  # what to do next
    log: str  # path of the log with the details, relative to the run directory


DURABLE = (EpochEnded, RunFinished, RunFailed)  # must survive a power failure: each is followed by an fsync
