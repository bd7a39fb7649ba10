"""The tables that every configuration has."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from .pieces import piece
from .values import Count, DropRate, Fraction, NaturalNumber, NonNegativeNumber, PositiveNumber, Section, Switch

# Keras's classes by the names that a configuration uses.
LOSSES = {
    "binary_crossentropy": "BinaryCrossentropy",
    "binary_focal_crossentropy": "BinaryFocalCrossentropy",
    "categorical_crossentropy": "CategoricalCrossentropy",
    "categorical_focal_crossentropy": "CategoricalFocalCrossentropy",
    "cosine_similarity": "CosineSimilarity",
    "dice": "Dice",
    "hinge": "Hinge",
    "huber": "Huber",
    "kl_divergence": "KLDivergence",
    "log_cosh": "LogCosh",
    "mean_absolute_error": "MeanAbsoluteError",
    "mean_absolute_percentage_error": "MeanAbsolutePercentageError",
    "mean_squared_error": "MeanSquaredError",
    "mean_squared_logarithmic_error": "MeanSquaredLogarithmicError",
    "poisson": "Poisson",
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
    "squared_hinge": "SquaredHinge",
    "tversky": "Tversky",
}
METRICS = {
    "accuracy": "Accuracy",
    "auc": "AUC",
    "binary_accuracy": "BinaryAccuracy",
    "binary_iou": "BinaryIoU",
    "categorical_accuracy": "CategoricalAccuracy",
    "cosine_similarity": "CosineSimilarity",
    "f1_score": "F1Score",
    "false_negatives": "FalseNegatives",
    "false_positives": "FalsePositives",
    "fbeta_score": "FBetaScore",
    "kl_divergence": "KLDivergence",
    "mean_absolute_error": "MeanAbsoluteError",
    "mean_absolute_percentage_error": "MeanAbsolutePercentageError",
    "mean_iou": "MeanIoU",
    "mean_squared_error": "MeanSquaredError",
    "mean_squared_logarithmic_error": "MeanSquaredLogarithmicError",
    "one_hot_mean_iou": "OneHotMeanIoU",
    "pearson_correlation": "PearsonCorrelation",
    "precision": "Precision",
    "precision_at_recall": "PrecisionAtRecall",
    "r2_score": "R2Score",
    "recall": "Recall",
    "recall_at_precision": "RecallAtPrecision",
    "root_mean_squared_error": "RootMeanSquaredError",
    "sparse_categorical_accuracy": "SparseCategoricalAccuracy",
    "sparse_top_k_categorical_accuracy": "SparseTopKCategoricalAccuracy",
    "top_k_categorical_accuracy": "TopKCategoricalAccuracy",
    "true_negatives": "TrueNegatives",
    "true_positives": "TruePositives",
}
OPTIMIZERS = {
    "adam": "Adam",
    "adamw": "AdamW",
    "sgd": "SGD",
    "rmsprop": "RMSprop",
    "adadelta": "Adadelta",
    "adafactor": "Adafactor",
    "adagrad": "Adagrad",
    "adamax": "Adamax",
    "ftrl": "Ftrl",
    "lamb": "Lamb",
    "lion": "Lion",
    "nadam": "Nadam",
}
SCHEDULES = {
    "constant": "",
    "cosine": "",
    "linear": "",
    "exponential": "",
    "cosine_decay_restarts": "CosineDecayRestarts",
    "inverse_time_decay": "InverseTimeDecay",
    "piecewise_constant_decay": "PiecewiseConstantDecay",
    "polynomial_decay": "PolynomialDecay",
}
SINKS = ("wandb", "mlflow")
CALLBACKS = {
    "reduce_lr_on_plateau": "ReduceLROnPlateau",
    "csv_logger": "CSVLogger",
    "model_checkpoint": "ModelCheckpoint",
    "swap_ema_weights": "SwapEMAWeights",
    "terminate_on_nan": "TerminateOnNaN",
}


_WITHOUT_LAYER = {
    "mixup": "it also changes labels, which layers of a model do not see",
    "cutmix": "it also changes labels, which layers of a model do not see",
    "crop": "Keras has no layer that crops and then scales back to the full size",
}


def _web_address(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
        _ = parts.port  # raises ValueError if it is no number
    except ValueError:
        is_address = False
    if value and not (is_address and value.isprintable() and " " not in value):
        raise ValueError("must be an address such as https://example.com/hook, without a user name")
    return value


class DataOptions(Section):
    """How examples are read and split.

    Args:
        pixels: ``unit`` scales pixel values to 0–1, ``raw`` keeps them as they are.
        validation_fraction: Share of each class held out for validation, if the dataset has no validation set.
        train_limit: Train only on the first so many examples; 0 means all.
        cache: Where decoded examples are kept after the first epoch; ``auto`` uses memory if they fit into half of
            the free memory, otherwise a file in the run's folder, and keeps none if their number is unknown.
        shuffle_buffer: Size of the shuffle buffer in examples; 0 means the whole training set, at most 100,000 or what
            fits in memory.
        options: Options of the dataset, or keyword arguments of your function.
    """

    pixels: Literal["unit", "raw"] = "unit"
    validation_fraction: Fraction = 0.2
    train_limit: NaturalNumber = 0
    cache: Literal["auto", "memory", "disk", "off"] = "auto"
    shuffle_buffer: NaturalNumber = 0
    options: dict[str, Any] = {}  # noqa: RUF012  pydantic copies defaults


class Hosts(Section):
    """The machines that train together; their configurations differ only in the index.

    Args:
        count: Number of machines; ``auto`` reads it from the variables of a TPU pod or GKE, otherwise 1.
        index: Number of this machine, from 0; ``auto`` reads it from the same variables.
        coordinator: ``address:port`` at which the others reach host 0; may be empty if the variables contain it.
        wait_s: Seconds to wait for the other machines at the start.
    """

    count: Count | Literal["auto"] = "auto"
    index: NaturalNumber | Literal["auto"] = "auto"
    coordinator: str = ""
    wait_s: Count = 300

    @property
    def is_several(self) -> bool:
        """Whether several machines were asked for."""
        return self.count != "auto" and self.count > 1


class OptimizerOptions(Section):
    """The optimizer and its learning rate.

    Args:
        name: A Keras optimizer, such as ``adam(beta_2=0.99)``, or your class or function, which is called with
            ``learning_rate`` and the options.
        learning_rate: The peak learning rate, before scaling.
        schedule: ``constant``, a decay over the whole run to `final_fraction` of the peak, a Keras schedule with
            options, or yours, which may take ``learning_rate`` and ``steps``.
        final_fraction: Final learning rate of ``cosine``, ``linear`` and ``exponential``, as a share of the peak.
        warmup_epochs: Epochs in which the learning rate rises linearly from zero.
        scale_with_replicas: Multiply the learning rate by the number of replicas (linear scaling, Goyal et al. 2017).
        weight_decay: Decoupled weight decay; 0 means none.
        momentum: Momentum of ``sgd`` and ``rmsprop``.
        clip_norm: Largest norm of each gradient; 0 means no clipping.
    """

    name: Annotated[str, piece(OPTIMIZERS)] = "adam"
    learning_rate: PositiveNumber = 1e-3
    schedule: Annotated[str, piece(SCHEDULES)] = "constant"
    final_fraction: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.01
    warmup_epochs: NonNegativeNumber = 0.0
    scale_with_replicas: Switch = False
    weight_decay: NonNegativeNumber = 0.0
    momentum: DropRate = 0.0
    clip_norm: NonNegativeNumber = 0.0


class Augmentation(Section):
    """Random changes to training images, made after the cache so that they differ in every epoch.

    Args:
        flip: Directions in which images are flipped at random.
        rotation: Largest rotation in either direction, in degrees.
        translation: Largest shift in either direction, as a share of the side.
        zoom: Largest zoom in or out, as a share.
        crop: Largest share of each side that a random crop removes; the rest is scaled back to the full size.
        contrast: Largest change in contrast, as a share.
        brightness: Largest change in brightness, as a share of the value range.
        color: Largest change in saturation, as a share; hue changes by up to a tenth of it.
        erasing: Probability that a random rectangle is erased (random erasing, Zhong et al. 2017).
        mixup: Alpha of mixup, which mixes pairs of images and their labels (Zhang et al. 2017); 0 means none.
        cutmix: Alpha of CutMix, which pastes a patch of another image and mixes labels (Yun et al. 2019); 0 means none.
        placement: In the input ``pipeline``, in the ``model``, or ``auto`` for what suits the accelerator.
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
        """Whether images are changed at all."""
        return self != Augmentation(placement=self.placement)

    @property
    def mixes_labels(self) -> bool:
        """Whether labels become shares of several classes."""
        return bool(self.mixup or self.cutmix)

    @property
    def without_layer(self) -> dict[str, str]:
        """The requested changes that no Keras layer can make, each with the reason."""
        return {name: why for name, why in _WITHOUT_LAYER.items() if getattr(self, name)}


class FineTuning(Section):
    """A second phase that also trains layers of a pretrained base, with a lower learning rate.

    Args:
        after_epochs: Epochs of the first phase, unless early stopping ends it sooner; 0 means no second phase.
        from_layer: First layer of the base to train; negative numbers count from the end.
        learning_rate: The peak learning rate of this phase.
    """

    after_epochs: NaturalNumber = 0
    from_layer: Annotated[int, Field(strict=True)] = 0
    learning_rate: PositiveNumber = 1e-5


class EarlyStopping(Section):
    """When to stop before the last epoch.

    Args:
        patience: Epochs without improvement before stopping; 0 means never stop early.
        monitor: The metric to watch.
        min_delta: Smallest change that counts as an improvement.
        restore_best_weights: Restore the weights of the best epoch at the end.
    """

    patience: NaturalNumber = 0
    monitor: str = "val_loss"
    min_delta: NonNegativeNumber = 0.0
    restore_best_weights: Switch = True


class Checkpointing(Section):
    """What is saved during training.

    Args:
        enabled: Save the model of the best epoch as ``checkpoints/best.keras``.
        monitor: The metric that decides which epoch is best; ``auto`` is the first validation metric.
        every_minutes: Longest time between two checkpoints for `tpu-console resume`, which are also saved after each
            epoch; 0 saves none.
    """

    enabled: Switch = True
    monitor: str = "auto"
    every_minutes: NonNegativeNumber = 10.0


class TensorBoard(Section):
    """TensorBoard event files.

    Args:
        enabled: Write them once per epoch to ``tensorboard/``.
    """

    enabled: Switch = True


class Alerts(Section):
    """What needs attention while a run trains.

    Args:
        nan: What to do when the loss becomes NaN or infinite; ``rollback`` goes back to the last checkpoint with a
            quarter of the learning rate, three times at most, and then stops.
        spike: The loss jumps to three times that of the last epochs.
        plateau: No epoch was better for ten epochs.
        overfitting: The validation loss gets worse while the training loss improves.
        slow_epoch: An epoch takes twice as long as the others of this run.
        input: Training waits for data.
        disk: The disk of the run is filling up.
        bell: The console's terminal rings and shows a notification, if it can.
        webhook: Address to which each alert is posted as JSON; empty for none. It is not written to the journal.
        webhook_per_minute: Most posts per minute.
    """

    nan: Literal["stop", "rollback", "warn", "off"] = "stop"
    spike: Switch = True
    plateau: Switch = True
    overfitting: Switch = True
    slow_epoch: Switch = True
    input: Switch = True
    disk: Switch = True
    bell: Switch = True
    webhook: Annotated[str, AfterValidator(_web_address)] = ""
    webhook_per_minute: Annotated[int, Field(strict=True, gt=0, le=600)] = 10

    @property
    def kinds(self) -> frozenset[str]:
        """The alerts that are on."""
        switches = ("spike", "plateau", "overfitting", "slow_epoch", "input", "disk")
        return frozenset([*(name for name in switches if getattr(self, name)), *(["nan"] if self.nan != "off" else [])])

    @property
    def webhook_host(self) -> str:
        """The address without what may be secret in it."""
        parts = urlsplit(self.webhook)
        return f"{parts.scheme}://{parts.hostname}/…" if self.webhook else ""


LARGEST_SHUFFLE = 100_000  # largest shuffle buffer in examples, unless the configuration sets one
