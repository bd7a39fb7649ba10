"""The parts of a run's configuration that every run has: frozen, typed tables."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from .values import Count, DropRate, Fraction, NaturalNumber, NonNegativeNumber, PositiveNumber, Section, Switch

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
    "root_mean_squared_error",
    "sparse_categorical_accuracy",
    "sparse_top_k_categorical_accuracy",
    "top_k_categorical_accuracy",
)


_WITHOUT_LAYER = {
    "mixup": "it changes labels as well, which a model never sees before its loss",
    "cutmix": "it changes labels as well, which a model never sees before its loss",
    "crop": "Keras has no layer that crops and scales back to the full size",
}


class DataOptions(Section):
    """How the examples are read and split.

    Args:
        pixels: ``unit`` divides pixel values by their largest one, ``raw`` leaves them as they are.
        validation_fraction: Share held out for validation, class by class, where the dataset has no
            validation set of its own.
        train_limit: Train on the first so many examples only; 0 means all.
        cache: Where decoded examples are kept after the first epoch; ``auto`` takes memory while they fit into half
            of what is free, a file beside the run otherwise, and keeps none where their number is not known.
        shuffle_buffer: Examples the shuffle draws from; 0 means the whole training set up to 100,000, or fewer where
            memory has no room for them.
        options: What the dataset has to be told; keyword arguments for a function of the person's own.
    """

    pixels: Literal["unit", "raw"] = "unit"
    validation_fraction: Fraction = 0.2
    train_limit: NaturalNumber = 0
    cache: Literal["auto", "memory", "disk", "off"] = "auto"
    shuffle_buffer: NaturalNumber = 0
    options: dict[str, Any] = {}  # noqa: RUF012  pydantic copies defaults


class Hosts(Section):
    """The machines that train together, each with the same configuration but for its index.

    Args:
        count: How many; ``auto`` takes what a TPU pod's or GKE's variables say, and one elsewhere.
        index: This machine's number, from 0; ``auto`` likewise.
        coordinator: ``address:port`` of host 0, which all others can reach; empty where the variables tell it.
        wait_s: Seconds to wait for the others at the start.
    """

    count: Count | Literal["auto"] = "auto"
    index: NaturalNumber | Literal["auto"] = "auto"
    coordinator: str = ""
    wait_s: Count = 300

    @property
    def is_several(self) -> bool:
        """Whether more than one machine was asked for."""
        return self.count != "auto" and self.count > 1


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
        crop: Largest share of each side that a random crop leaves out; the rest is scaled back to the full size.
        contrast: Largest change of contrast, as a share.
        brightness: Largest change of brightness, as a share of the value range.
        color: Largest change of saturation, as a share, and of hue, as a tenth of it.
        erasing: Chance that a random rectangle is blanked out (random erasing, Zhong et al. 2017).
        mixup: Strength of mixing pairs of images and their labels (mixup's alpha, Zhang et al. 2017).
        cutmix: Strength of pasting a patch of another image and its label (CutMix's alpha, Yun et al. 2019).
        placement: Where it happens: in the input ``pipeline``, in the ``model``, or where the accelerator wants it.
    """

    flip: Literal["none", "horizontal", "vertical", "both"] = "none"
    rotation: Annotated[float, Field(strict=True, ge=0, le=180)] = 0.0
    translation: DropRate = 0.0
    zoom: DropRate = 0.0
    crop: DropRate = 0.0
    contrast: DropRate = 0.0
    brightness: DropRate = 0.0
    color: DropRate = 0.0
    erasing: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.0
    mixup: NonNegativeNumber = 0.0
    cutmix: NonNegativeNumber = 0.0
    placement: Literal["auto", "pipeline", "model"] = "auto"

    @property
    def is_active(self) -> bool:
        """Whether anything is changed at all."""
        return self != Augmentation(placement=self.placement)

    @property
    def mixes_labels(self) -> bool:
        """Whether labels become shares of several classes."""
        return bool(self.mixup or self.cutmix)

    @property
    def without_layer(self) -> dict[str, str]:
        """Those of the changes asked for that no Keras layer makes, each with why it cannot be in the model."""
        return {name: why for name, why in _WITHOUT_LAYER.items() if getattr(self, name)}


class FineTuning(Section):
    """A second phase that also trains layers of a pretrained base, more gently.

    Args:
        after_epochs: Epochs before it, unless patience runs out earlier; 0 means that there is no second phase.
        from_layer: The base's layers from this number on are trained; negative ones count from the end.
        learning_rate: How far a step moves the weights in this phase, at its peak.
    """

    after_epochs: NaturalNumber = 0
    from_layer: Annotated[int, Field(strict=True)] = 0
    learning_rate: PositiveNumber = 1e-5


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


LARGEST_SHUFFLE = 100_000
"""Examples the shuffle draws from when the configuration does not say."""
