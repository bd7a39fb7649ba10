"""The tables that every configuration has."""

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from .values import (
    Count,
    DropRate,
    Fraction,
    NaturalNumber,
    NonNegativeNumber,
    PositiveNumber,
    Section,
    Switch,
    chosen,
    listed,
    one_of,
    parse_piece,
    parsed_by,
    piece,
)

_SPELLED = {"adamw": "AdamW", "auc": "AUC", "csv": "CSV", "ema": "EMA", "fbeta": "FBeta", "iou": "IoU", "kl": "KL"}
_SPELLED |= {"lr": "LR", "nan": "NaN", "rmsprop": "RMSprop", "sgd": "SGD"}


def _classes(names: str) -> dict[str, str]:
    """Return the names of Keras's classes by the names that a configuration uses, such as LogCosh by ``log_cosh``."""
    return {name: "".join(_SPELLED.get(word, word.capitalize()) for word in name.split("_")) for name in names.split()}


LOSSES = _classes("""
binary_crossentropy binary_focal_crossentropy categorical_crossentropy categorical_focal_crossentropy
cosine_similarity dice hinge huber kl_divergence log_cosh mean_absolute_error mean_absolute_percentage_error
mean_squared_error mean_squared_logarithmic_error poisson sparse_categorical_crossentropy squared_hinge
tversky
""")
METRICS = _classes("""
accuracy auc binary_accuracy binary_iou categorical_accuracy cosine_similarity f1_score false_negatives
false_positives fbeta_score kl_divergence mean_absolute_error mean_absolute_percentage_error mean_iou
mean_squared_error mean_squared_logarithmic_error one_hot_mean_iou pearson_correlation precision
precision_at_recall r2_score recall recall_at_precision root_mean_squared_error sparse_categorical_accuracy
sparse_top_k_categorical_accuracy top_k_categorical_accuracy true_negatives true_positives
""")
OPTIMIZERS = _classes("adam adamw sgd rmsprop adadelta adafactor adagrad adamax ftrl lamb lion nadam")
DECAYS = ("cosine", "linear", "exponential")
SCHEDULES = dict.fromkeys(("constant", *DECAYS), "")
SCHEDULES |= _classes("cosine_decay_restarts inverse_time_decay piecewise_constant_decay polynomial_decay")
SINKS = ("tensorboard", "wandb", "mlflow")
ALERTS = ("spike", "plateau", "overfitting", "slow_epoch", "input", "disk", "compilation")
CALLBACKS = _classes("reduce_lr_on_plateau csv_logger model_checkpoint swap_ema_weights terminate_on_nan")
# What Keras has as a callback and a configuration as settings.
SETTINGS_INSTEAD = {
    "early_stopping": "the table [early_stopping], such as early_stopping.patience=3",
    "tensor_board": 'sinks=["tensorboard"]',
    "learning_rate_scheduler": "optimizer.schedule",
}


_WITHOUT_LAYER = dict.fromkeys(("mixup", "cutmix"), "it also changes labels, which layers of a model do not see")
_WITHOUT_LAYER["crop"] = "Keras has no layer that crops and then scales back to the full size"


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


def sink_project(sink: str) -> tuple[str, str]:
    """Return a tracker's name and its project, as in ``wandb(project="digits")``; raise `ValueError` for another."""
    found = parse_piece(sink)
    chosen(found.name, SINKS)
    project = found.options.get("project", "tpu-console")
    if found.options.keys() - ({"project"} if found.name != "tensorboard" else set()) or not isinstance(project, str):
        raise ValueError(f"'{sink}' has other options than project=NAME, which wandb and mlflow have")
    return found.name, project


def decay_of(schedule: str) -> tuple[str, float]:
    """Return a schedule's name, and the share of the peak at which it ends; raise `ValueError` if that is no share."""
    found = parse_piece(schedule)
    if found.name not in DECAYS:
        return found.name, 1.0
    final = found.options.get("final_fraction", 0.01)
    if found.options.keys() - {"final_fraction"} or not isinstance(final, float | int) or not 0 < final <= 1:
        raise ValueError(f"'{schedule}' may have one option: final_fraction, a number above 0 and at most 1")
    return found.name, final


class DataOptions(Section):
    """How examples are read and split."""

    pixels: Annotated[Literal["unit", "raw"], "`unit` scales pixel values to 0–1, `raw` keeps them."] = "unit"
    validation_fraction: Annotated[Fraction, "Share of each class held out if the data has no validation set."] = 0.2
    train_limit: Annotated[NaturalNumber, "Train only on the first so many examples; 0 means all."] = 0
    cache: Annotated[
        Literal["auto", "memory", "disk", "off"],
        "Where decoded examples are kept after the first epoch; `auto` uses memory if half of what is free "
        "is enough, otherwise the disk.",
    ] = "auto"
    shuffle_buffer: Annotated[NaturalNumber, "Examples to shuffle; 0 is all, up to 100,000 or what fits in memory."] = 0
    options: Annotated[dict[str, Any], "Options of the dataset, or keyword arguments of your function."] = {}  # noqa: RUF012  pydantic copies defaults


class Hosts(Section):
    """Machines that train together; only the index differs."""

    count: Annotated[
        Count | Literal["auto"], "Number of machines; `auto` reads the variables of a TPU pod or GKE, otherwise 1."
    ] = "auto"
    index: Annotated[NaturalNumber | Literal["auto"], "Number of this machine, from 0; `auto` as for `count`."] = "auto"
    coordinator: Annotated[str, "`address:port` of host 0; may be empty if those variables contain it."] = ""

    @property
    def is_several(self) -> bool:
        """Whether several machines were asked for."""
        return self.count != "auto" and self.count > 1


class OptimizerOptions(Section):
    """The optimizer and its learning rate."""

    name: Annotated[str, piece(OPTIMIZERS), "A Keras optimizer, as in `sgd(momentum=0.9)`, or yours."] = "adam"
    learning_rate: Annotated[PositiveNumber, "The peak learning rate, before scaling."] = 1e-3
    schedule: Annotated[
        str,
        piece(SCHEDULES),
        parsed_by(decay_of),
        "`constant`, a decay over the whole run (`cosine`, `linear` or `exponential`) to a hundredth of the peak or "
        "another share of it, as in `cosine(final_fraction=0.1)`, a Keras schedule with options, or yours.",
    ] = "constant"
    warmup_epochs: Annotated[NonNegativeNumber, "Epochs in which the learning rate rises linearly from zero."] = 0.0
    scale_with_replicas: Annotated[Switch, "Scale the learning rate by the replica count (Goyal et al. 2017)."] = False
    weight_decay: Annotated[NonNegativeNumber, "Decoupled weight decay; 0 means none."] = 0.0

    @property
    def decay(self) -> tuple[str, float]:
        """The schedule's name, and the share of the peak at which a decay over the whole run ends."""
        return decay_of(self.schedule)


class Augmentation(Section):
    """Random changes to training images, different in every epoch."""

    flip: Annotated[Literal["none", "horizontal", "vertical", "both"], "Directions of random flips."] = "none"
    rotation: Annotated[float, Field(strict=True, ge=0, le=180), "Largest rotation either way, in degrees."] = 0.0
    translation: Annotated[DropRate, "Largest shift in either direction, as a share of the side."] = 0.0
    zoom: Annotated[DropRate, "Largest zoom in or out, as a share."] = 0.0
    crop: Annotated[DropRate, "Largest share of each side that a random crop removes; the rest is scaled up."] = 0.0
    contrast: Annotated[DropRate, "Largest change in contrast, as a share."] = 0.0
    brightness: Annotated[DropRate, "Largest change in brightness, as a share of the value range."] = 0.0
    color: Annotated[DropRate, "Largest change in saturation, as a share; hue changes by up to a tenth of it."] = 0.0
    erasing: Annotated[
        float, Field(strict=True, ge=0, le=1), "Probability that a random rectangle is erased (Zhong et al. 2017)."
    ] = 0.0
    mixup: Annotated[NonNegativeNumber, "Alpha of mixup, a blend of two images (Zhang et al. 2017); 0 is off."] = 0.0
    cutmix: Annotated[NonNegativeNumber, "Alpha of CutMix, a patch of another image (Yun et al. 2019); 0 is off."] = 0.0
    placement: Annotated[
        Literal["auto", "pipeline", "model"], "In the input `pipeline`, in the `model`, or what suits the accelerator."
    ] = "auto"

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

    @property
    def moving(self) -> list[str]:
        """The requested changes that move pixels, for which XLA rejects Keras's layers or makes them slow."""
        return [name for name in ("rotation", "translation", "zoom") if getattr(self, name)]


class FineTuning(Section):
    """A second phase that also trains layers of a pretrained base, with a lower learning rate."""

    after_epochs: Annotated[NaturalNumber, "Epochs of the first phase at most; 0 means no second phase."] = 0
    from_layer: Annotated[int, Field(strict=True), "First layer of the base to train; -1 is the last."] = 0
    learning_rate: Annotated[PositiveNumber, "The peak learning rate of this phase."] = 1e-5


class EarlyStopping(Section):
    """When to stop before the last epoch."""

    patience: Annotated[NaturalNumber, "Epochs without improvement before stopping; 0 means never stop early."] = 0
    monitor: Annotated[str, "The metric to watch."] = "val_loss"
    min_delta: Annotated[NonNegativeNumber, "Smallest change that counts as an improvement."] = 0.0
    restore_best_weights: Annotated[Switch, "Restore the weights of the best epoch at the end."] = True


class Checkpointing(Section):
    """What is saved during training."""

    monitor: Annotated[
        str,
        "The metric that decides which epoch is best, whose model is saved as `checkpoints/best.keras`; `auto` is the "
        "first validation metric, `none` saves none.",
    ] = "auto"
    every_minutes: Annotated[
        NonNegativeNumber,
        "Minutes between checkpoints for `tpu-console resume`, besides those after each epoch; 0 saves none at all.",
    ] = 10.0


class Profiling(Section):
    """When a run traces a few of its steps; `tpu-console runs profile` does it at any time."""

    at: Annotated[NaturalNumber, "Trace steps after this one; 0 traces none."] = 0
    steps: Annotated[int, Field(strict=True, ge=1, le=100), "How many steps to trace, at most 100."] = 5
    before: Annotated[str, "A run, traced before a change, whose times are shown beside those of this one."] = ""


class Alerts(Section):
    """What needs attention while a run trains."""

    nan: Annotated[
        Literal["stop", "rollback", "warn", "off"],
        "What to do when the loss becomes NaN or infinite; `rollback` goes back to the last checkpoint with "
        "a quarter of the learning rate, three times at most.",
    ] = "stop"
    kinds: Annotated[
        tuple[Annotated[str, one_of(ALERTS)], ...],
        BeforeValidator(listed),
        "Other alerts: the loss jumps to three times that of the last epochs (`spike`), no epoch was better "
        "for ten epochs (`plateau`), the validation loss gets worse while the training loss improves "
        "(`overfitting`), an epoch takes twice as long as the others (`slow_epoch`), training waits for data "
        "(`input`), the disk of the run is filling up (`disk`), the training step is compiled again after "
        "the first epoch (`compilation`).",
    ] = ALERTS
    webhook: Annotated[
        str, AfterValidator(_web_address), "Address to which each alert is posted as JSON, ten per minute at most."
    ] = ""

    @property
    def webhook_host(self) -> str:
        """The address without the parts that may be secret."""
        parts = urlsplit(self.webhook)
        return f"{parts.scheme}://{parts.hostname}/…" if self.webhook else ""


LARGEST_SHUFFLE = 100_000  # largest shuffle buffer in examples, unless the configuration sets one
