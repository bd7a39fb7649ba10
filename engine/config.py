"""The run configuration: one frozen, typed object, read from TOML and written back to it.

`RunConfig` describes everything a run depends on. It is parsed once; unknown keys are errors that name the
nearest valid one, and every problem of a file is reported together (`engine.errors.ConfigError`).
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from engine.catalog import DATASETS, MODELS, is_user_reference
from engine.errors import ConfigError, Problem, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

LOSSES = (
    "binary_crossentropy",
    "categorical_crossentropy",
    "huber",
    "kl_divergence",
    "mean_absolute_error",
    "mean_squared_error",
    "poisson",
    "sparse_categorical_crossentropy",
)
METRICS = (
    "accuracy",
    "auc",
    "binary_accuracy",
    "categorical_accuracy",
    "mean_absolute_error",
    "mean_squared_error",
    "sparse_categorical_accuracy",
    "sparse_top_k_categorical_accuracy",
    "top_k_categorical_accuracy",
)

_ACCELERATOR = re.compile(r"auto|cpu|gpu|sim:[1-9][0-9]?")
_DOTTED_NAME = re.compile(r"[A-Za-z_][\w.]*")


def _one_of(choices: Iterable[str]) -> AfterValidator:
    valid = frozenset(choices)

    def check(value: str) -> str:
        if value not in valid:
            raise ValueError(f"unknown name '{value}'; {did_you_mean(value, valid)}")
        return value

    return AfterValidator(check)


def _builtin_or_own(choices: Iterable[str]) -> AfterValidator:
    valid = frozenset(choices)

    def check(value: str) -> str:
        if not is_user_reference(value):
            if value not in valid:
                raise ValueError(
                    f"unknown name '{value}'; {did_you_mean(value, valid)} "
                    "One of your own is written package.module:function or path/to/file.py:function"
                )
            return value
        place, _, function = value.rpartition(":")
        if not function.isidentifier() or not (place.endswith(".py") or _DOTTED_NAME.fullmatch(place)):
            raise ValueError(f"'{value}' is not package.module:function or path/to/file.py:function")
        return value

    return AfterValidator(check)


Count = Annotated[int, Field(strict=True, gt=0)]
NaturalNumber = Annotated[int, Field(strict=True, ge=0)]
Fraction = Annotated[float, Field(strict=True, gt=0, lt=1)]
DropRate = Annotated[float, Field(strict=True, ge=0, lt=1)]
PositiveNumber = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NonNegativeNumber = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Switch = Annotated[bool, Field(strict=True)]


class _Section(BaseModel):
    # An infinite number in the options of a function of one's own stays one: TOML has it.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, ser_json_inf_nan="constants")


class DataOptions(_Section):
    """How the examples are read and split.

    Args:
        pixels: ``unit`` divides pixel values by their largest one, ``raw`` leaves them as they are.
        validation_fraction: Share held out for validation, class by class, where the dataset has no
            validation set of its own.
        train_limit: Train on the first so many examples only; 0 means all.
        cache: Keep decoded examples in memory after the first epoch.
        shuffle_buffer: Examples the shuffle draws from; 0 means the whole training set up to 100,000.
        options: Keyword arguments for a dataset function of the person's own.
    """

    pixels: Literal["unit", "raw"] = "unit"
    validation_fraction: Fraction = 0.2
    train_limit: NaturalNumber = 0
    cache: Switch = True
    shuffle_buffer: NaturalNumber = 0
    options: dict[str, Any] = {}


class CnnOptions(_Section):
    """Options of the built-in `cnn`.

    Args:
        filters: Filters of each convolution block; each block ends in a pooling of 2.
        convolutions: Convolutions in each block.
        kernel_size: Side of the square kernel.
        padding: ``same`` keeps height and width, ``valid`` loses the border.
        batch_norm: Normalise after each convolution.
        hidden: Units of the dense layers before the classifier.
        dropout: Dropped share before the classifier.
    """

    filters: Annotated[tuple[Count, ...], Field(min_length=1)] = (32, 64)
    convolutions: Count = 1
    kernel_size: Count = 3
    padding: Literal["valid", "same"] = "valid"
    batch_norm: Switch = False
    hidden: tuple[Count, ...] = ()
    dropout: DropRate = 0.0


class MlpOptions(_Section):
    """Options of the built-in `mlp`.

    Args:
        hidden: Units of each hidden layer.
        dropout: Dropped share after each hidden layer.
    """

    hidden: Annotated[tuple[Count, ...], Field(min_length=1)] = (128,)
    dropout: DropRate = 0.0


MODEL_OPTIONS: dict[str, type[_Section]] = {"cnn": CnnOptions, "mlp": MlpOptions}


class OptimizerOptions(_Section):
    """The optimizer and how its learning rate moves.

    Args:
        name: A Keras optimizer.
        learning_rate: How far one step moves the weights, at its peak and before any scaling.
        schedule: ``constant``, or a decay over the whole run down to `final_fraction` of the peak.
        final_fraction: Where ``cosine``, ``linear`` and ``exponential`` end, as a share of the peak.
        warmup_epochs: Epochs over which the rate rises linearly from zero.
        scale_with_replicas: Multiply the rate by the number of replicas (linear scaling, Goyal et al. 2017).
        weight_decay: Decoupled weight decay; 0 means none.
        momentum: For ``sgd`` and ``rmsprop``.
        clip_norm: Clip each gradient to this norm; 0 means no clipping.
    """

    name: Literal["adam", "adamw", "sgd", "rmsprop", "adagrad", "adamax", "nadam", "lion"] = "adam"
    learning_rate: PositiveNumber = 1e-3
    schedule: Literal["constant", "cosine", "linear", "exponential"] = "constant"
    final_fraction: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.01
    warmup_epochs: NonNegativeNumber = 0.0
    scale_with_replicas: Switch = False
    weight_decay: NonNegativeNumber = 0.0
    momentum: DropRate = 0.0
    clip_norm: NonNegativeNumber = 0.0


class Augmentation(_Section):
    """Random changes to training images, applied after the cache, so that every epoch sees new ones.

    Args:
        flip: Mirror at random.
        rotation: Largest rotation either way, in degrees.
        translation: Largest shift either way, as a share of the side.
        zoom: Largest zoom either way, as a share.
        contrast: Largest change of contrast, as a share.
        brightness: Largest change of brightness, as a share of the value range.
    """

    flip: Literal["none", "horizontal", "vertical", "both"] = "none"
    rotation: Annotated[float, Field(strict=True, ge=0, le=180)] = 0.0
    translation: DropRate = 0.0
    zoom: DropRate = 0.0
    contrast: DropRate = 0.0
    brightness: DropRate = 0.0

    @property
    def is_active(self) -> bool:
        """Whether anything is changed at all."""
        return self != Augmentation()


class EarlyStopping(_Section):
    """When to stop before the last epoch.

    Args:
        patience: Epochs without improvement to wait for; 0 means never stop early.
        monitor: The metric to watch.
        min_delta: The least change that counts as improvement.
        restore_best_weights: Put the best epoch's weights back at the end.
    """

    patience: NaturalNumber = 0
    monitor: str = "val_loss"
    min_delta: NonNegativeNumber = 0.0
    restore_best_weights: Switch = True


class Checkpointing(_Section):
    """Which weights are kept on the way.

    Args:
        enabled: Keep the best epoch's model in ``checkpoints/best.keras``.
        monitor: The metric that says which is best; ``auto`` is the first validation metric.
    """

    enabled: Switch = True
    monitor: str = "auto"


class TensorBoard(_Section):
    """TensorBoard event files.

    Args:
        enabled: Write them, once an epoch, under ``tensorboard/``.
    """

    enabled: Switch = True


class RunConfig(_Section):
    """Everything a run depends on.

    Args:
        name: The preset's name, and the label of its runs.
        dataset: A built-in dataset, or a function of one's own: ``package.module:function``, ``file.py:function``.
        data: How the examples are read and split.
        model: A built-in model, or a function of one's own that returns an uncompiled Keras model.
        model_options: Options of that model; keyword arguments for one's own function.
        batch_size: Images each replica takes a step; multiples of 8 or 128 suit a TPU.
        epochs: Passes over the training data.
        steps_per_epoch: Steps an epoch, or ``all`` for the whole dataset.
        validation_freq: Validate after every so many epochs.
        loss: What training makes smaller: a Keras loss.
        metrics: What is measured beside the loss: Keras metrics, with commas between.
        optimizer: The optimizer and its learning rate.
        augmentation: Random changes to training images.
        accelerator: Where to train; ``auto`` takes a GPU where there is one, ``sim:N`` simulates N replicas.
        precision: Number format; mixed_bfloat16 is faster on TPUs and newer GPUs.
        steps_per_execution: Steps sent to the device at once, or ``auto``.
        early_stopping: When to stop before the last epoch.
        checkpoint: Which weights are kept on the way.
        tensorboard: TensorBoard event files.
        seed: Seed of weights, shuffling and augmentation.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "custom"
    dataset: Annotated[str, _builtin_or_own(DATASETS)]
    model: Annotated[str, _builtin_or_own(MODELS)]
    batch_size: Count
    epochs: Count
    steps_per_epoch: Count | Literal["all"] = "all"
    validation_freq: Count = 1
    loss: Annotated[str, _one_of(LOSSES)] = "sparse_categorical_crossentropy"
    metrics: tuple[Annotated[str, _one_of(METRICS)], ...] = ("accuracy",)
    accelerator: str = "auto"
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    steps_per_execution: Count | Literal["auto"] = "auto"
    seed: NaturalNumber = 0
    data: DataOptions = DataOptions()
    model_options: dict[str, Any] = {}
    optimizer: OptimizerOptions = OptimizerOptions()
    augmentation: Augmentation = Augmentation()
    early_stopping: EarlyStopping = EarlyStopping()
    checkpoint: Checkpointing = Checkpointing()
    tensorboard: TensorBoard = TensorBoard()

    @field_validator("accelerator")
    @classmethod
    def _known_accelerator(cls, value: str) -> str:
        if not _ACCELERATOR.fullmatch(value):
            raise ValueError(f"unknown accelerator '{value}'; valid: auto, cpu, gpu, sim:N with N from 1 to 99")
        return value

    @property
    def simulated_replicas(self) -> int:
        """The N of ``sim:N``, or 0."""
        return int(self.accelerator.removeprefix("sim:")) if self.accelerator.startswith("sim:") else 0


def parse_config(values: Mapping[str, Any], source: str = "") -> RunConfig:
    """Check plain values and make a configuration of them.

    Args:
        values: Nested plain values, as TOML gives them.
        source: The file or option they come from, for the error.

    Returns:
        The configuration.

    Raises:
        ConfigError: With every problem found.
    """
    problems: list[Problem] = []
    config: RunConfig | None = None
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        problems += _problems(error, RunConfig)
    options = MODEL_OPTIONS.get(str(values.get("model")))
    given = values.get("model_options", {})
    if options is not None and isinstance(given, dict):
        try:
            options.model_validate(given)
        except ValidationError as error:
            problems += _problems(error, options, "model_options.")
    if config is not None:
        problems += _cross_problems(config)
    if problems or config is None:
        raise ConfigError(problems, source)
    return config


def _cross_problems(config: RunConfig) -> list[Problem]:
    """Check what depends on several keys, so that a run does not find out after its first epoch."""
    measured = ["loss", *config.metrics]
    names = [*measured, *(f"val_{name}" for name in measured)]
    watched = {"early_stopping.monitor": config.early_stopping.monitor}
    if config.checkpoint.monitor != "auto":
        watched["checkpoint.monitor"] = config.checkpoint.monitor
    problems = []
    if config.optimizer.warmup_epochs and config.optimizer.schedule in {"linear", "exponential"}:
        message = f"works with the schedules constant and cosine, not with {config.optimizer.schedule}"
        problems.append(Problem("optimizer.warmup_epochs", message))
    return problems + [
        Problem(key, f"'{name}' is not measured by this run; {did_you_mean(name, names)}")
        for key, name in watched.items()
        if name not in names
    ]


def valid_keys(section: type[BaseModel] = RunConfig, prefix: str = "") -> dict[str, Any]:
    """List every dotted key that can be set, with its default (None where there is none).

    The keys of `model_options` depend on the model and are listed for each built-in one.
    """
    keys: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        default = field.default
        if isinstance(default, BaseModel):
            keys |= valid_keys(type(default), f"{prefix}{name}.")
        else:
            keys[prefix + name] = None if field.is_required() else default
    if section is RunConfig:
        for options in MODEL_OPTIONS.values():
            keys |= valid_keys(options, "model_options.")
    return keys


def _problems(error: ValidationError, section: type[BaseModel], prefix: str = "") -> list[Problem]:
    """Turn pydantic's findings into sentences, one a key."""
    found: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        parts = [str(part) for part in detail["loc"]]
        # A union such as "a count or 'auto'" reports each alternative under its own name; the key is enough.
        key = prefix + ".".join(p for p in parts if "[" not in p and p not in {"constrained-int", "int"})
        if detail["type"] == "extra_forbidden":
            choices = valid_keys(section, prefix)
            found[key] = f"unknown key; {did_you_mean(key, choices)}"
        elif detail["type"] == "missing":
            found[key] = "is required"
        else:
            message = detail["msg"].removeprefix("Value error, ")
            if key in found and message not in found[key]:
                message = f"{found[key]}, or {message[0].lower()}{message[1:]}"
            elif detail["type"] != "value_error":
                message = f"{message} (got {detail['input']!r})"
            found[key] = message[0].lower() + message[1:]
    return [Problem(key, message) for key, message in found.items()]


def to_toml(config: RunConfig) -> str:
    """Write a configuration as TOML that `load_config` reads back to an equal one."""
    return tomli_w.dumps(config.model_dump(mode="json"))


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: The file cannot be read or is not TOML; the problem names the line.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([Problem("", f"cannot be read: {error.strerror}")], str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem("", f"is not UTF-8 text: {error.reason}")], str(path)) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([Problem("", f"is not valid TOML: {error}")], str(path)) from error


def flat_values(config: RunConfig) -> dict[str, Any]:
    """Return a configuration's plain values by dotted key."""
    return _flat(config.model_dump(mode="json"), "")


def _flat(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def load_config(path: Path) -> RunConfig:
    """Read a configuration file, such as a run's ``config.toml``.

    Raises:
        ConfigError: With every problem found.
    """
    return parse_config(read_toml(path), str(path))


def with_changes(config: RunConfig, changes: Sequence[tuple[str, Any]], source: str = "") -> RunConfig:
    """Return the configuration with some dotted keys changed, checked anew.

    Args:
        config: What to start from.
        changes: Pairs of dotted key and plain value; the last one wins.
        source: Where the changes come from, for the error.

    Raises:
        ConfigError: With every problem found.
    """
    values = config.model_dump(mode="json")
    if any(key == "model" and value != config.model for key, value in changes):
        values["model_options"] = {}
    problems = [problem for key, value in changes if (problem := _set(values, key, value)) is not None]
    if problems:
        raise ConfigError(problems, source)
    return parse_config(values, source)


def parse_assignment(text: str) -> tuple[str, Any]:
    """Read one ``key=value`` of ``--set``; the value is TOML, or else a plain string.

    Raises:
        ConfigError: There is no ``=``.
    """
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError([Problem(text, "is not key=value, such as epochs=5")], "--set")
    try:
        return key, tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return key, raw.strip()


def _set(values: dict[str, Any], dotted: str, value: object) -> Problem | None:
    """Set one dotted key in nested plain values; say so when it runs through something that has no parts."""
    *sections, last = dotted.split(".")
    for name in sections:
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            return Problem(dotted, f"'{name}' has no parts; {did_you_mean(dotted, valid_keys())}")
        values = inner
    values[last] = value
    return None
