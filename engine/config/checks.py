"""Checks of a configuration that depend on several keys at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..accelerators.table import FRAMEWORKS
from ..errors import Problem, did_you_mean
from ..models.table import MODELS
from .catalog import is_user_reference
from .pieces import parse_piece, split_output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .run_config import RunConfig


def cross_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield all problems of keys that do not fit together."""
    if config.optimizer.warmup_epochs and config.optimizer.schedule not in {"constant", "cosine"}:
        message = f"works only with the schedules constant and cosine, not {config.optimizer.schedule}"
        yield Problem("optimizer.warmup_epochs", message)
    yield from _label_problems(config)
    yield from _placement_problems(config)
    yield from _fine_tuning_problems(config)
    yield from _backend_problems(config)
    rates = [name for name in config.callbacks if parse_piece(name).name == "reduce_lr_on_plateau"]
    if rates and (config.optimizer.schedule != "constant" or config.optimizer.warmup_epochs):
        yield Problem("callbacks", "reduce_lr_on_plateau needs a constant learning rate, without schedule or warm-up")
    measured = ["loss", *config.metric_names]
    names = [*measured, *(f"val_{name}" for name in measured)]
    watched = {"early_stopping.monitor": config.early_stopping.monitor, "checkpoint.monitor": config.checkpoint.monitor}
    for key, name in watched.items():
        # A custom model may have more metrics; its run warns if this one is missing.
        is_open = is_user_reference(config.model) or any(
            parse_piece(split_output(metric)[1]).is_own for metric in config.metrics
        )
        if name not in names and (key, name) != ("checkpoint.monitor", "auto") and not is_open:
            yield Problem(key, f"'{name}' is not a metric of this run; {did_you_mean(name, names)}")


def _label_problems(config: RunConfig) -> Iterator[Problem]:
    """Check that loss and metrics fit labels that are mixed or smoothed."""
    fitting = ("binary_crossentropy", "categorical_crossentropy")
    if config.label_smoothing and config.effective_loss not in fitting:
        yield Problem("label_smoothing", f"works only with crossentropy losses, not {config.loss}")
    if not is_user_reference(config.model):
        named = {"loss": [*config.losses], "metrics": [split_output(metric)[0] for metric in config.metrics]}
        for key, outputs in (named | {"loss_weights": [*config.loss_weights]}).items():
            if name := next(filter(None, outputs), ""):
                yield Problem(key, f"names the output '{name}', but {config.model} has a single one, without a name")
    if "" not in config.losses and config.augmentation.mixes_labels:
        yield Problem("augmentation", "mixup and cutmix work only with one loss, not with one for each output")
    if unknown := [name for name in config.loss_weights if name not in config.losses and "" not in config.losses]:
        yield Problem("loss_weights", f"'{unknown[0]}' has no loss; {did_you_mean(unknown[0], config.losses)}")
    sparse = [name for name in config.metrics if name.startswith("sparse_")]
    if sparse and config.effective_loss != config.loss_name:
        cause = "label_smoothing" if config.label_smoothing else "augmentation.mixup and cutmix"
        message = f"'{sparse[0]}' does not work with {cause}, because labels are then shares; use "
        yield Problem("metrics", f"{message}'{sparse[0].removeprefix('sparse_')}'")


def _placement_problems(config: RunConfig) -> Iterator[Problem]:
    """Check that layers exist for augmentation in the model."""
    if config.augmentation.placement == "model":
        for name, why in config.augmentation.without_layer.items():
            message = f"cannot be placed in the model: {why}; set augmentation.placement to pipeline or auto"
            yield Problem(f"augmentation.{name}", message)


def _fine_tuning_problems(config: RunConfig) -> Iterator[Problem]:
    key, first = "fine_tuning.after_epochs", config.fine_tuning.after_epochs
    if not first:
        return
    pretrained = [name for name, model in MODELS.items() if model.is_pretrained]
    if config.model not in pretrained:
        yield Problem(key, f"needs a pretrained model ({' or '.join(pretrained)}), not {config.model}")
    elif config.model_options.get("trainable", "none") not in ("none", False):
        yield Problem(key, "needs a base that is frozen at first; remove model_options.trainable")
    if config.model == "hub" and config.fine_tuning.from_layer:
        message = "a SavedModel is trained as a whole; its layers cannot be chosen"
        yield Problem("fine_tuning.from_layer", message)
    if first >= config.epochs:
        yield Problem(key, f"is {first}, but the run has only {config.epochs} epochs")


def _backend_problems(config: RunConfig) -> Iterator[Problem]:
    """Check that the backend and the hosts fit the rest."""
    needed, why = config.only_backend
    asked = FRAMEWORKS.get(config.backend)
    if asked is not None and needed not in {"", asked.name}:
        yield Problem("backend", f"cannot be {asked.name}: {why}")
    if asked is not None and config.requested.address and not asked.reaches_other_machines:
        yield Problem("backend", f"cannot be {asked.name}: only TensorFlow can use a TPU on another machine")
    hosts = config.hosts
    if hosts.count == "auto":
        return
    if hosts.index != "auto" and hosts.index >= hosts.count:
        yield Problem("hosts.index", f"is {hosts.index}, but {hosts.count} hosts are numbered 0 to {hosts.count - 1}")
    if hosts.is_several and asked is not None and not asked.joins_hosts:
        yield Problem("backend", f"cannot be {asked.name}: Keras trains on several hosts only with JAX")
    if hosts.is_several and needed and not FRAMEWORKS[needed].joins_hosts:
        yield Problem("hosts.count", f"cannot be {hosts.count}: {why}")
    if (count := config.requested.simulated) and count % hosts.count:
        message = f"{count} simulated replicas cannot be split evenly between {hosts.count} hosts"
        yield Problem("accelerator", message)
