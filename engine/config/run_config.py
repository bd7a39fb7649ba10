"""The run configuration: one frozen, typed object with everything that a run depends on."""

from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from ..data.kinds.table import dataset_names
from ..models.table import MODELS
from . import options
from .catalog import is_user_reference
from .values import (
    ClassWeights,
    Count,
    DropRate,
    NaturalNumber,
    NonNegativeNumber,
    RequestedAccelerator,
    Section,
    budget_seconds,
    builtin_or_own,
    check_mirror,
    check_reference,
    flattened,
    listed,
    parse_accelerator,
    parse_piece,
    parsed_by,
    piece,
    piece_or_several,
    split_output,
    split_pieces,
    weights_by_class,
)

_IMPORTANT = ("dataset", "model", "batch_size", "accelerator", "precision", "optimizer.name", "optimizer.learning_rate")


class RunConfig(Section):
    """Everything a run depends on."""

    name: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"), "The preset's name, and the label of its runs."
    ] = "custom"
    dataset: Annotated[
        str,
        builtin_or_own(dataset_names),
        "A built-in dataset, a format of your files, or your function, as `package.module:function` or "
        "`file.py:function`.",
    ]
    model: Annotated[str, builtin_or_own(MODELS.keys), "A built-in model, or your function returning a Keras model."]
    weights: Annotated[str, "A `.keras` or `.weights.h5` file whose weights the model starts with."] = ""
    batch_size: Annotated[
        NaturalNumber,
        "Examples per replica and step; multiples of 8 or 128 suit a TPU. With 0, the default for a dataset "
        "function of yours, its batches stay as they are, and single examples are put into batches of 32.",
    ] = 0
    epochs: Annotated[Count, "Passes over the training data."]
    steps_per_epoch: Annotated[Count | Literal["all"], "Steps per epoch, or `all` for the whole dataset."] = "all"
    validation_freq: Annotated[Count, "Validate every this many epochs."] = 1
    loss: Annotated[
        str,
        piece_or_several(options.LOSSES),
        "The Keras loss to minimize, or yours, with options in brackets: `file.py:function(option=1)`. For "
        "several outputs, one for all or one each: `price=mae, kind=sparse_categorical_crossentropy`.",
    ] = "sparse_categorical_crossentropy"
    loss_weights: Annotated[dict[str, NonNegativeNumber], "Weight of each output's loss, by the output's name."] = {}  # noqa: RUF012  pydantic copies defaults
    outputs: Annotated[
        Literal["auto", "probabilities", "logits"], "What the model gives to a crossentropy loss; `auto` detects it."
    ] = "auto"
    label_smoothing: Annotated[DropRate, "Share of a label spread over all classes (Szegedy et al. 2015)."] = 0.0
    class_weight: Annotated[
        Literal["none", "balanced"] | ClassWeights,
        BeforeValidator(weights_by_class),
        "`balanced` gives the examples of rare classes more weight; a table such as `{0 = 1.0, 1 = 5.0}` "
        "gives each class its weight, and others 1.",
    ] = "none"
    metrics: Annotated[
        tuple[Annotated[str, piece(options.METRICS, of_outputs=True)], ...],
        BeforeValidator(listed),
        'Keras metrics or yours, separated by commas, with options as in `f1_score(average="micro")`. For '
        "several outputs, `kind=accuracy` measures one of them.",
    ] = ("accuracy",)
    callbacks: Annotated[
        tuple[Annotated[str, piece(options.CALLBACKS, settings=options.SETTINGS_INSTEAD)], ...],
        BeforeValidator(listed),
        "Keras callbacks, as in `reduce_lr_on_plateau(patience=3)`, or yours, separated by commas.",
    ] = ()
    custom_objects: Annotated[
        tuple[Annotated[str, AfterValidator(check_reference)], ...],
        BeforeValidator(listed),
        "Your layers, losses and so on that saved models name, as `file.py:Name`.",
    ] = ()
    accelerator: Annotated[
        str,
        parsed_by(parse_accelerator),
        "Where to train; `auto` uses a TPU or GPU if there is one, `sim:N` simulates N replicas, "
        "`tpu:ADDRESS` uses another machine's TPU.",
    ] = "auto"
    backend: Annotated[
        Literal["auto", "tensorflow", "jax"], "Keras's backend; `auto` uses JAX on a TPU if it can, else TensorFlow."
    ] = "auto"
    precision: Annotated[
        Literal["float32", "mixed_bfloat16", "mixed_float16"],
        "Number format; `mixed_bfloat16` is faster on TPUs and newer GPUs.",
    ] = "float32"
    steps_per_execution: Annotated[Count | Literal["auto"], "Steps per execution on the device, or `auto`."] = "auto"
    seed: Annotated[NaturalNumber, "Seed of weights, shuffling and augmentation."] = 0
    budget: Annotated[
        str,
        parsed_by(budget_seconds),
        "Longest time of the run, such as `8h30m`, or `colab` or `kaggle` for the longest session there; it "
        "stops in time to be saved.",
    ] = ""
    mirror: Annotated[
        str,
        parsed_by(check_mirror),
        "A folder or bucket that the run is copied to while it trains, such as `gs://bucket/runs`. "
        "`tpu-console resume` can start from there.",
    ] = ""
    data: options.DataOptions = options.DataOptions.model_construct()
    model_options: Annotated[dict[str, Any], "Options of the model, or keyword arguments of your function."] = {}  # noqa: RUF012  pydantic copies defaults
    optimizer: options.OptimizerOptions = options.OptimizerOptions.model_construct()
    augmentation: options.Augmentation = options.Augmentation.model_construct()
    fine_tuning: options.FineTuning = options.FineTuning.model_construct()
    early_stopping: options.EarlyStopping = options.EarlyStopping.model_construct()
    checkpoint: options.Checkpointing = options.Checkpointing.model_construct()
    sinks: Annotated[
        tuple[Annotated[str, parsed_by(options.sink_project)], ...],
        BeforeValidator(listed),
        "Experiment trackers that record the run too, separated by commas: `tensorboard` writes files once "
        'per epoch, `wandb` and `mlflow` take a project, as in `wandb(project="digits")`.',
    ] = ("tensorboard",)
    hosts: options.Hosts = options.Hosts.model_construct()
    profile: options.Profiling = options.Profiling.model_construct()
    alerts: options.Alerts = options.Alerts.model_construct()

    @field_validator("batch_size", mode="before")
    @classmethod
    def _is_given(cls, value: object, fields: ValidationInfo) -> object:
        is_own = is_user_reference(str(fields.data.get("dataset")))
        if isinstance(value, int) and value < (0 if is_own else 1):
            kept = ", or 0 to keep the batches that your dataset function makes" if is_own else ""
            raise ValueError(f"should be at least 1{kept} (got {value})")
        return value

    @property
    def effective_loss(self) -> str:
        """The loss used for training, which fits mixed and smoothed labels: a share of each class."""
        is_soft = bool(self.label_smoothing) or self.augmentation.mixes_labels
        return self.loss_name.removeprefix("sparse_") if is_soft else self.loss_name

    @property
    def losses(self) -> dict[str, str]:
        """The loss of each output by the output's name, which is empty if there is one loss."""
        return dict(split_output(text) for text in split_pieces(self.loss))

    @property
    def loss_name(self) -> str:
        """The loss without its options; empty if outputs have losses of their own."""
        return parse_piece(self.loss).name if "" in self.losses else ""

    @property
    def takes_shares(self) -> bool:
        """Whether the loss takes a probability per class instead of class numbers."""
        return self.effective_loss in {"categorical_crossentropy", "categorical_focal_crossentropy"}

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names under which the metrics are logged."""
        named = map(split_output, self.metrics)
        return tuple(f"{output}_{parse_piece(text).label}".removeprefix("_") for output, text in named)

    @property
    def takes_probabilities(self) -> bool:
        """Whether a loss is a crossentropy, which takes probabilities or logits."""
        return any(map(probabilities_by, self.losses.values()))

    @property
    def requested(self) -> RequestedAccelerator:
        """The value of `accelerator`, parsed."""
        return parse_accelerator(self.accelerator)

    def steps_in_epoch(self, examples: int | None, replicas: int) -> int | None:
        """Return the steps of an epoch; None if that depends on an unknown number of examples."""
        if self.steps_per_epoch != "all":
            return self.steps_per_epoch
        return None if examples is None else examples // (self.batch_size * replicas)

    def scaled_learning_rate(self, replicas: int) -> float:
        """Return the peak learning rate, multiplied by the replicas if the configuration says so."""
        return self.optimizer.learning_rate * (replicas if self.optimizer.scale_with_replicas else 1)

    @property
    def only_backend(self) -> tuple[str, str]:
        """The backend that alone can train this, and why, in a few words; empty when any can."""
        return MODELS[self.model].only_backend if self.model in MODELS else ("", "")

    @property
    def tpu_backend(self) -> str:
        """The backend that makes the training step on a TPU; `auto` stands for JAX there."""
        return self.only_backend[0] or (self.backend if self.backend != "auto" else "jax")


def probabilities_by(loss: str) -> str:
    """Return the activation that turns logits into probabilities for a crossentropy; empty for other losses."""
    name = parse_piece(loss).name
    if not name.endswith("crossentropy") or is_user_reference(name):
        return ""
    return "sigmoid" if name.startswith("binary_") else "softmax"


def to_toml(config: RunConfig) -> str:
    """Write a configuration as TOML that `load_config` reads back to an equal one."""
    return tomli_w.dumps(config.model_dump(mode="json"))


def without_secrets(config: RunConfig) -> RunConfig:
    """Return a configuration that may be shown: with only the host of the webhook's address."""
    alerts = config.alerts.model_copy(update={"webhook": config.alerts.webhook_host})
    return config.model_copy(update={"alerts": alerts})


def journal_values(config: RunConfig) -> dict[str, Any]:
    """Return a configuration's plain values without secrets."""
    return without_secrets(config).model_dump(mode="json")


def flat_values(config: RunConfig) -> dict[str, Any]:
    """Return a configuration's plain values by dotted key."""
    return flattened(config.model_dump(mode="json"))


def compared_values(config: RunConfig) -> dict[str, str | float]:
    """Return what runs are compared by in TensorBoard: the values that are not the defaults, and the most important."""
    known = flattened(without_secrets(config).model_dump(mode="json"))
    given = flattened(config.model_dump(mode="json", exclude_defaults=True))
    names = [*_IMPORTANT, *given]
    return {name: known[name] if isinstance(known[name], str | int | float) else str(known[name]) for name in names}
