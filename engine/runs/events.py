"""The events that the engine writes to a run's journal.

Every event is an immutable struct; units are in the names. `engine.runs.journal` adds the version, the type and the
time. Readers ignore unknown fields and skip unknown types, so both can be added without a new version.
"""

from __future__ import annotations  # docs/reference.py shows them as they are written

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from ..sanitize import MOST_METRICS, MOST_REPLICAS, Count, Measure
from .metrics import Metric  # noqa: TC001  journals are read by the types of the fields

Logs = Annotated[dict[str, float], Meta(max_length=2 * MOST_METRICS)]
"""Values of metrics by name; any number, because training may diverge."""


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


class Replica(Struct, frozen=True, gc=False):
    """One copy of the model."""

    index: Count  # its number, from 0
    device: str  # the runtime's name of the device, such as ``/device:GPU:0``
    kind: str  # type of the device, such as ``NVIDIA H200``, ``TPU v5 lite`` or ``CPU, simulated``
    host: str  # name of the machine
    coordinates: str = ""  # position of the chip in the TPU's mesh, such as ``1,0,0``; empty if there is none
    core: Count | None = None  # number of the core on its chip; None if unknown
    process: Count = 0  # the host's number, from 0


class ReplicaMemory(Struct, frozen=True, gc=False):
    """Memory of one replica's device."""

    index: Count  # the replica's number
    used_bytes: Count | None  # in use now; None if unknown
    peak_bytes: Count | None  # the most so far; None if unknown
    limit_bytes: Count | None  # the device's memory; None if unknown
    why_not: str = ""  # why a figure is missing; empty if none is
    duty_percent: Measure | None = None  # share of the last seconds in which the device computed; None if unknown
    duty_why_not: str = ""  # why it is missing; empty if it is not


class Sample(Struct, frozen=True, gc=False):
    """One sentence of the validation data and its translation by the model."""

    source: str  # the sentence
    expected: str  # its translation in the data
    predicted: str  # the model's translation, in lower case and without punctuation


class Event(Struct, frozen=True, tag=True, gc=False):
    """What happened to a run; a line of its journal has the name of the subclass."""


class RunStarted(Event, frozen=True):
    """The first event of every run."""

    label: str  # the preset's name, or the name a notebook gave
    source: str  # what trains: ``host`` (a process), ``in-process`` (the console), ``notebook`` or ``imported``
    pid: Count  # process that trains
    host: str  # name of the machine
    config: dict[str, Any] = field(default_factory=dict)  # the run's configuration; empty for a notebook's run
    folder: str = ""  # the working folder, where relative paths start; empty if unknown


class RunResumed(Event, frozen=True):
    """The run continues from a checkpoint, usually in a new process."""

    epoch: Count  # epochs that had ended
    epoch_step: Count  # steps done in the epoch after them
    step: Count  # steps done in the run; 0 if there was no checkpoint
    elapsed_s: Measure  # seconds since `fit` began, without pauses
    pid: Count  # process that trains
    host: str  # name of the machine
    config: dict[str, Any] = field(default_factory=dict)  # the run's configuration as plain values
    why: str = ""  # why the run itself went back, in the same process; empty if it was resumed
    folder: str = ""  # the working folder, where relative paths start; empty if it is still the same


class PhaseStarted(Event, frozen=True):
    """A phase began, and the previous one ended."""

    phase: str  # the phase; a plain string, so that an older reader shows a newer one
    detail: str = ""  # such as the file being downloaded


class AcceleratorReady(Event, frozen=True):
    """The devices are connected and the distribution strategy exists."""

    accelerator: str  # ``cpu``, ``gpu``, ``tpu`` or ``sim:N``
    reason: str  # why this accelerator
    strategy: str  # name of the distribution strategy
    replicas: Annotated[tuple[Replica, ...], Meta(max_length=MOST_REPLICAS)]  # one entry per replica, of all hosts
    versions: dict[str, str]  # framework versions by package name
    backend: str = "tensorflow"  # Keras's backend, ``tensorflow`` or ``jax``
    backend_reason: str = ""  # why this backend
    topology: str = ""  # the TPU's mesh, tasks and devices; empty without a TPU


class DataReady(Event, frozen=True):
    """The input pipeline is built."""

    train_examples: Count | None  # examples to train on; None if unknown
    validation_examples: Count | None  # examples to validate on; None if unknown, 0 without validation
    input_shape: tuple[Count | None, ...]  # shape of one example
    classes: Count  # number of classes
    remainder: Count = 0  # examples that each epoch drops
    cache: str = ""  # where decoded examples are cached, and why
    augmentation: str = ""  # where images are augmented, and why; empty without augmentation
    augments_in_model: bool = False  # whether layers of the model augment them
    shuffle_buffer: Count | None = None  # examples in the shuffle buffer; None if unknown


class ModelBuilt(Event, frozen=True):
    """The model exists."""

    name: str  # the model's name
    parameters: Count  # all weights
    trainable_parameters: Count  # trainable weights
    weight_bytes: Count  # size of all weights
    layers: Count  # number of layers
    is_compiled: bool = False  # whether the user's function has compiled it


class FitStarted(Event, frozen=True):
    """`fit` begins."""

    epochs: Count  # epochs to train
    steps_per_epoch: Count | None  # steps per epoch; None if unknown
    global_batch: Count | None  # examples per step over all replicas; None if unknown
    replica_batch: Count | None  # examples per step and replica; None if unknown
    steps_per_execution: Count  # steps per execution
    execution_reason: str = ""  # why so many
    monitor: str = ""  # the metric that decides which epoch is best; empty if there is none
    metrics: tuple[Metric, ...] = ()  # what is known of the metrics; empty in older journals
    best_step_ms: Measure | None = None  # the preflight's best time of a step; None if it has none
    # The same of its slowest layers; the rest of the step has an empty name, and the optimizer its own.
    best_layers_ms: dict[str, float] = field(default_factory=dict)


class Progress(Event, frozen=True):
    """The progress of training, at most ten times per second."""

    epoch: Count  # the epoch, from 1
    epoch_step: Count  # steps done in this epoch
    step: Count  # steps done in the run
    elapsed_s: Measure  # seconds since `fit` began, without pauses
    logs: Logs  # metrics as Keras reports them: means over the epoch so far


class ValidationProgress(Event, frozen=True):
    """How far validation is, at most twice per second."""

    epoch: Count  # the epoch, from 1
    batches: Count  # batches done
    batches_total: Count | None = None  # batches of the whole pass; None in the first one


class EpochEnded(Event, frozen=True):
    """An epoch is complete, validation included."""

    epoch: Count  # the epoch, from 1
    step: Count  # steps done in the run
    epoch_steps: Count  # steps of this epoch
    elapsed_s: Measure  # seconds since `fit` began, without pauses
    seconds: Measure  # wall time of the whole epoch, without pauses
    compile_s: Measure  # seconds of it until the first execution returned; 0 after the first epoch
    validation_s: Measure  # seconds of it spent validating
    step_ms: Measure | None  # milliseconds per step, without compilation and validation; None if unknown
    examples_per_s: Measure | None  # over all replicas; None if unknown; ``images_per_s`` in older journals
    learning_rate: float | None  # at the end of the epoch; None if the optimizer has none
    logs: Logs  # metrics of the epoch, validation metrics under ``val_…``


class Translated(Event, frozen=True):
    """A few validation sentences were translated, the same ones after every epoch."""

    epoch: Count  # the epoch, from 1
    samples: tuple[Sample, ...]  # the sentences


class MemorySampled(Event, frozen=True):
    """Device memory."""

    replicas: Annotated[tuple[ReplicaMemory, ...], Meta(max_length=MOST_REPLICAS)]  # one entry per replica


class HostSampled(Event, frozen=True):
    """The load of one host, once per second."""

    process: Count  # the host's number, from 0
    host: str  # name of the machine
    elapsed_s: Measure | None  # seconds since `fit` began; None before
    cpu_percent: Measure | None  # how busy the cores are that this host may use, 0 to 100; None if unknown
    ram_bytes: Count | None  # memory in use; None if unknown
    ram_limit_bytes: Count | None  # memory of the host; None if unknown
    disk_read_bytes_per_s: Measure | None  # bytes read from disks; None if unknown
    # Of this host's replicas since its last sample; None if unknown; ``images_per_s`` in older journals.
    examples_per_s: Measure | None = None
    why_not: dict[str, str] = field(default_factory=dict)  # why a figure is missing, by its name


class InputMeasured(Event, frozen=True):
    """How long training waited for its input since the last such event."""

    epoch: Count  # the epoch, from 1
    step: Count  # steps done in the run
    elapsed_s: Measure  # seconds since `fit` began, without pauses
    batches: Count  # batches that training took
    wait_s: Measure  # seconds that it waited for them
    span_s: Measure  # seconds in which it took them, waiting included
    limit: str  # what limits the run: ``input``, ``accelerator`` or ``balanced``
    remedy: str = ""  # what would make the input faster; empty if it is not the limit


class HostLost(Event, frozen=True):
    """A host of the run is gone; only in older journals."""

    process: Count  # the host's number, from 0
    host: str  # name of the machine
    silent_s: Measure  # seconds since its last sign of life


class CheckpointSaved(Event, frozen=True):
    """A better model was saved."""

    epoch: Count  # the epoch, from 1
    path: str  # path relative to the run directory
    monitor: str  # the metric that improved
    value: float  # its value


class Noticed(Event, frozen=True):
    """A message to the user that does not stop the run."""

    message: str  # one or two sentences


class StopRequested(Event, frozen=True):
    """Someone asked the run to stop and save."""

    reason: str  # who asked and how, such as ``asked from the console``
    after: str = StopAfter.STEP  # what it finishes first: ``step`` or ``epoch``


class Steered(Event, frozen=True):
    """The answer to a request to steer the run."""

    action: str  # ``pause``, ``continue``, ``epochs``, ``learning_rate``, ``checkpoint`` or ``stop_after_epoch``
    by: str  # who asked and how, such as ``requested with tpu-console pause``
    epoch: Count  # the epoch, from 1; 0 before the first
    step: Count  # steps done in the run
    elapsed_s: Measure  # seconds since `fit` began, without pauses
    before: Measure | None = None  # the value before; None if there is none
    after: Measure | None = None  # the new value; None if there is none
    refused: str = ""  # why nothing was changed; empty if it was done
    request: str = ""  # the request's number


class Profiled(Event, frozen=True):
    """A few steps were traced; every figure is a mean of them, in seconds per step."""

    epoch: Count  # the epoch, from 1
    step: Count  # steps done in the run
    elapsed_s: Measure  # seconds since `fit` began, without pauses
    steps: Count  # steps that were traced
    step_s: Measure  # seconds of one
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
    float32_s: Measure | None = None
    matrix_unit: Measure | None = None  # share of its peak while computing, from 0 to 1; None if unknown
    bandwidth: Measure | None = None  # the same of the device's memory


class Compiled(Event, frozen=True):
    """A step was compiled, which happens once for each shape of a batch."""

    epoch: Count  # the epoch, from 1; 0 before the first
    step: Count  # steps done in the run
    elapsed_s: Measure  # seconds since `fit` began, without pauses
    seconds: Measure  # until the execution that began with it returned
    is_validation: bool  # whether it was the step of validation
    is_cached: bool | None  # whether the program came from the cache on the disk; None if there is none
    part: str  # the part of a batch that was different: ``inputs``, ``labels 2``; empty if none was
    batch: str  # that part, such as ``float32[64,28,28,1]``; the first part of the batch if none was
    before: str  # what it was when the step was compiled before; empty if none was different
    steps: Count = 1  # steps per execution


class Alerted(Event, frozen=True):
    """Something about the run needs attention."""

    # ``nan``, ``spike``, ``plateau``, ``overfitting``, ``slow_epoch``, ``input``, ``disk`` or ``compilation``.
    kind: str
    message: str  # what happened; in older journals also what to do
    epoch: Count  # the epoch, from 1; 0 before the first
    step: Count  # steps done in the run
    stops: bool = False  # whether the run stops because of it
    remedy: str = ""  # what to do while it trains

    @property
    def text(self) -> str:
        """What happened and what to do."""
        return f"{self.message} {self.remedy}".rstrip()


class BudgetSet(Event, frozen=True):
    """The run has a time budget."""

    seconds: Measure  # the budget
    ends_at: Measure  # Unix time at which it ends
    limit: str  # the configuration's `budget`, such as ``8h30m`` or ``kaggle``


class MirrorReported(Event, frozen=True):
    """How much of the run its mirror holds."""

    place: str  # the run's folder at the mirror
    epoch: Count  # epochs that had ended at the newest checkpoint there; 0 without one
    problem: str = ""  # why the mirror could not be written; empty if it was
    left: tuple[str, ...] = ()  # files that are not copied yet, at the end of the run
    is_given_up: bool = False  # whether nothing more is copied


class RunFinished(Event, frozen=True):
    """The last event of a run that was saved, or that somebody killed."""

    outcome: str  # ``completed``, ``early`` (early stopping) or ``stopped`` (asked to)
    reason: str  # one sentence
    summary: dict[str, Any]  # what ``summary.json`` holds


class RunFailed(Event, frozen=True):
    """The last event of a run that failed."""

    what: str  # what happened, in one sentence
    why: str  # the cause; empty if unknown
    remedy: str  # what to do next
    log: str  # path of the log with the details, relative to the run directory


DURABLE = (EpochEnded, RunFinished, RunFailed)  # must survive a power failure: each is followed by an fsync
