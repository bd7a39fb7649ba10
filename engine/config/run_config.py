"""The run configuration: one frozen, typed object, read from TOML and written back to it.

`RunConfig` describes everything a run depends on. It is parsed once; unknown keys are errors that name the
nearest valid one, and every problem of a file is reported together (`engine.errors.ConfigError`).
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, Field, ValidationError, field_validator

from ..errors import ConfigError, Problem, did_you_mean
from ..sanitize import DEEPEST, unsafe_character
from ..storage.files import read_text
from .catalog import DATASET_NAMES, DATASETS, MODELS
from .checks import cross_problems
from .data_options import DATA_OPTIONS
from .model_options import MODEL_OPTIONS
from .options import (
    LOSSES,
    METRICS,
    Augmentation,
    Checkpointing,
    DataOptions,
    EarlyStopping,
    FineTuning,
    Hosts,
    OptimizerOptions,
    TensorBoard,
)
from .values import Count, DropRate, NaturalNumber, Section, builtin_or_own, one_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# Keras has layers of these names.
_RESIZING = {
    f"augmentation.{name}" for name in ("height", "width", "random_height", "random_width", "resize", "resizing")
}
_RESIZES = (
    "would change the images' height or width, and a program for a TPU is compiled for one size; "
    "augmentation.zoom and augmentation.crop keep the size"
)
_LARGEST = 256 << 10  # bytes of a file; deeper or longer ones only cost time
_LONGEST_KEY = 200
_MOST_PARTS = 1000
_ACCELERATOR = re.compile(r"auto|cpu|gpu|tpu(:\S+)?|sim:[1-9][0-9]?")


class RunConfig(Section):
    """Everything a run depends on.

    Args:
        name: The preset's name, and the label of its runs.
        dataset: A built-in dataset, a format of one's own files, or a function of one's own:
            ``package.module:function``, ``file.py:function``.
        data: How the examples are read and split.
        model: A built-in model, or a function of one's own that returns an uncompiled Keras model.
        model_options: Options of that model; keyword arguments for one's own function.
        batch_size: Images each replica takes a step; multiples of 8 or 128 suit a TPU.
        epochs: Passes over the training data.
        steps_per_epoch: Steps an epoch, or ``all`` for the whole dataset.
        validation_freq: Validate after every so many epochs.
        loss: What training makes smaller: a Keras loss.
        label_smoothing: Share of each label that is spread over all classes (Szegedy et al. 2015).
        class_weight: ``balanced`` counts the examples of rare classes for more.
        metrics: What is measured beside the loss: Keras metrics, with commas between.
        optimizer: The optimizer and its learning rate.
        augmentation: Random changes to training images.
        accelerator: Where to train; ``auto`` takes a TPU or GPU where there is one, ``sim:N`` simulates N replicas,
            ``tpu:ADDRESS`` is a TPU that another machine serves.
        backend: What Keras computes with; ``auto`` takes JAX for a TPU where it is ready, TensorFlow elsewhere.
        hosts: The machines that train together.
        precision: Number format; mixed_bfloat16 is faster on TPUs and newer GPUs.
        steps_per_execution: Steps sent to the device at once, or ``auto``.
        fine_tuning: A second phase that also trains layers of a pretrained base.
        early_stopping: When to stop before the last epoch.
        checkpoint: Which weights are kept on the way.
        tensorboard: TensorBoard event files.
        seed: Seed of weights, shuffling and augmentation.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "custom"
    dataset: Annotated[str, builtin_or_own(DATASET_NAMES)]
    model: Annotated[str, builtin_or_own(MODELS)]
    batch_size: Count
    epochs: Count
    steps_per_epoch: Count | Literal["all"] = "all"
    validation_freq: Count = 1
    loss: Annotated[str, one_of(LOSSES)] = "sparse_categorical_crossentropy"
    label_smoothing: DropRate = 0.0
    class_weight: Literal["none", "balanced"] = "none"
    metrics: tuple[Annotated[str, one_of(METRICS)], ...] = ("accuracy",)
    accelerator: str = "auto"
    backend: Literal["auto", "tensorflow", "jax"] = "auto"
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    steps_per_execution: Count | Literal["auto"] = "auto"
    seed: NaturalNumber = 0
    data: DataOptions = DataOptions()
    model_options: dict[str, Any] = {}  # noqa: RUF012  pydantic copies defaults
    optimizer: OptimizerOptions = OptimizerOptions()
    augmentation: Augmentation = Augmentation()
    fine_tuning: FineTuning = FineTuning()
    early_stopping: EarlyStopping = EarlyStopping()
    checkpoint: Checkpointing = Checkpointing()
    tensorboard: TensorBoard = TensorBoard()
    hosts: Hosts = Hosts()

    @field_validator("accelerator")
    @classmethod
    def _known_accelerator(cls, value: str) -> str:
        if not _ACCELERATOR.fullmatch(value):
            raise ValueError(
                f"'{value}' is not one to train on; valid: auto, cpu, gpu, tpu, tpu:ADDRESS, sim:N with N from 1 to 99"
            )
        return value

    @property
    def effective_loss(self) -> str:
        """The loss that is trained with: labels that are mixed or smoothed are a share for each class."""
        is_soft = bool(self.label_smoothing) or self.augmentation.mixes_labels
        return self.loss.removeprefix("sparse_") if is_soft else self.loss

    @property
    def simulated_replicas(self) -> int:
        """The N of ``sim:N``, or 0."""
        return int(self.accelerator.removeprefix("sim:")) if self.accelerator.startswith("sim:") else 0

    @property
    def wants_tpu(self) -> bool:
        """Whether a TPU was asked for by name."""
        return self.accelerator.partition(":")[0] == "tpu"

    @property
    def tpu_address(self) -> str:
        """The address of ``tpu:ADDRESS``, or empty."""
        return self.accelerator.partition(":")[2] if self.wants_tpu else ""

    @property
    def needs_tensorflow(self) -> str:
        """Why no other backend can train this, in a few words; empty when any can."""
        return "a SavedModel of TensorFlow Hub is a TensorFlow program" if self.model == "hub" else ""


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
    problems = _text_problems(values)
    if problems:
        raise ConfigError(problems, source)
    config: RunConfig | None = None
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        problems += _problems(error, RunConfig)
    data = values.get("data", {})
    own_options = data.get("options", {}) if isinstance(data, dict) else {}
    problems += _option_problems(MODEL_OPTIONS, values.get("model"), values.get("model_options", {}), "model_options.")
    problems += _option_problems(DATA_OPTIONS, values.get("dataset"), own_options, "data.options.")
    if config is not None:
        problems += cross_problems(config)
    if problems or config is None:
        raise ConfigError(problems, source)
    return config


def _text_problems(value: Any, key: str = "", levels: int = DEEPEST) -> list[Problem]:
    """Find texts that are not safe to show, and values that are nested too deeply to be settings.

    A setting is used as it is, as a path for one, so it is refused and not cleaned.
    """
    if isinstance(value, str):
        found = unsafe_character(value)
        return [Problem(key, f"has the control or invisible character {found}; remove it")] if found else []
    if not isinstance(value, dict | list | tuple):
        return []
    if not levels:
        return [Problem(key[:_LONGEST_KEY], "is nested too deeply")]
    if isinstance(value, dict):
        parts = [(f"{key}.{name}" if key else str(name), inner) for name, inner in value.items()]
        bad = [Problem(name, "has a control or invisible character in its name") for name in value if _is_unsafe(name)]
    else:
        parts, bad = [(key, inner) for inner in value], []
    return [*bad, *(problem for name, inner in parts for problem in _text_problems(inner, name, levels - 1))]


def _is_unsafe(name: object) -> bool:
    return bool(unsafe_character(str(name)))


def _option_problems(
    sections: Mapping[str, type[BaseModel]], name: object, given: object, prefix: str
) -> list[Problem]:
    """Check the options that depend on the chosen model or dataset."""
    section = sections.get(str(name))
    if not isinstance(given, dict) or (section is None and str(name) not in DATASETS):
        return []
    if section is None:
        return [Problem(f"{prefix}{key}", f"{name} has no options") for key in given]
    try:
        section.model_validate(given)
    except ValidationError as error:
        return _problems(error, section, prefix)
    return []


def valid_keys(section: type[BaseModel] = RunConfig, prefix: str = "") -> dict[str, Any]:
    """List every dotted key that can be set, with its default (None where there is none).

    The keys of `model_options` and `data.options` depend on the model and the dataset, and are listed for each
    built-in one.
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
        for options in DATA_OPTIONS.values():
            keys |= valid_keys(options, "data.options.")
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
            resizing = key in _RESIZING
            found[key] = _RESIZES if resizing else f"unknown key; {did_you_mean(key, choices)}"
        elif detail["type"] == "missing":
            found[key] = "is required"
        else:
            message = detail["msg"].removeprefix("Value error, ")
            if key in found and message not in found[key]:
                message = f"{found[key]}, or {message[0].lower()}{message[1:]}"
            elif detail["type"] != "value_error":
                message = f"{message} (got {_short(detail['input'])})"
            found[key] = message[0].lower() + message[1:]
    return [Problem(key, message) for key, message in found.items()]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}…"


def to_toml(config: RunConfig) -> str:
    """Write a configuration as TOML that `load_config` reads back to an equal one."""
    return tomli_w.dumps(config.model_dump(mode="json"))


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: The file cannot be read or is not TOML; the problem names the line.
    """
    try:
        return _parsed_toml(read_text(path, _LARGEST))
    except OSError as error:
        raise ConfigError([Problem("", f"cannot be read: {error.strerror}")], str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem("", f"is not UTF-8 text: {error.reason}")], str(path)) from error
    except ValueError as error:  # also a whole number with thousands of digits
        raise ConfigError([Problem("", f"is not valid TOML: {error}")], str(path)) from error


def _parsed_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: It is not TOML, or Python cannot parse it in reasonable time and depth.
    """
    if any(_has_endless_key(line) for line in text.splitlines()):
        raise ValueError(f"a key has more than {_MOST_PARTS:,} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("too many nested brackets") from None


def _has_endless_key(line: str) -> bool:
    """Return whether a key may have so many parts that the standard library takes minutes to read it."""
    keys = line if line.lstrip().startswith("[") else line.rpartition("=")[0]
    return keys.count(".") > _MOST_PARTS


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
    if any(key == "dataset" and value != config.dataset for key, value in changes):
        values["data"]["options"] = {}
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
        return key, _parsed_toml(f"value = {raw}")["value"]
    except ValueError:
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
