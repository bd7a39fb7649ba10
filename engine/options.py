"""The parts of a run's configuration: frozen, typed tables, and the values each key may take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from engine.catalog import is_user_reference
from engine.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

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

_DOTTED_NAME = re.compile(r"[A-Za-z_][\w.]*")


def one_of(choices: Iterable[str]) -> AfterValidator:
    """Return a check that a text is one of some names; its error names the nearest."""
    valid = frozenset(choices)

    def check(value: str) -> str:
        if value not in valid:
            raise ValueError(f"unknown name '{value}'; {did_you_mean(value, valid)}")
        return value

    return AfterValidator(check)


def builtin_or_own(choices: Iterable[str]) -> AfterValidator:
    """Return a check that a text is one of some names, or a reference to a function of the person's own."""
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


class Section(BaseModel):
    """A table of the configuration: frozen, and without keys that it does not know."""

    # An infinite number in the options of a function of one's own stays one: TOML has it.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, ser_json_inf_nan="constants")


class DataOptions(Section):
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


class CnnOptions(Section):
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


class MlpOptions(Section):
    """Options of the built-in `mlp`.

    Args:
        hidden: Units of each hidden layer.
        dropout: Dropped share after each hidden layer.
    """

    hidden: Annotated[tuple[Count, ...], Field(min_length=1)] = (128,)
    dropout: DropRate = 0.0


MODEL_OPTIONS: dict[str, type[Section]] = {"cnn": CnnOptions, "mlp": MlpOptions}


class OptimizerOptions(Section):
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


class Augmentation(Section):
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


class EarlyStopping(Section):
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


class Checkpointing(Section):
    """Which weights are kept on the way.

    Args:
        enabled: Keep the best epoch's model in ``checkpoints/best.keras``.
        monitor: The metric that says which is best; ``auto`` is the first validation metric.
    """

    enabled: Switch = True
    monitor: str = "auto"


class TensorBoard(Section):
    """TensorBoard event files.

    Args:
        enabled: Write them, once an epoch, under ``tensorboard/``.
    """

    enabled: Switch = True
