"""Checks of a configuration that depend on several keys at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Problem, did_you_mean

if TYPE_CHECKING:
    from .run_config import RunConfig


def cross_problems(config: RunConfig) -> list[Problem]:
    """Return what does not go together, so that a run does not find out after its first epoch."""
    measured = ["loss", *config.metrics]
    names = [*measured, *(f"val_{name}" for name in measured)]
    watched = {"early_stopping.monitor": config.early_stopping.monitor}
    if config.checkpoint.monitor != "auto":
        watched["checkpoint.monitor"] = config.checkpoint.monitor
    problems = []
    if config.optimizer.warmup_epochs and config.optimizer.schedule in {"linear", "exponential"}:
        message = f"works with the schedules constant and cosine, not with {config.optimizer.schedule}"
        problems.append(Problem("optimizer.warmup_epochs", message))
    problems += _label_problems(config)
    problems += _placement_problems(config)
    problems += _fine_tuning_problems(config)
    problems += _backend_problems(config)
    return problems + [
        Problem(key, f"'{name}' is not measured by this run; {did_you_mean(name, names)}")
        for key, name in watched.items()
        if name not in names
    ]


def _label_problems(config: RunConfig) -> list[Problem]:
    """Check what becomes of labels that are mixed or smoothed."""
    problems = []
    if config.label_smoothing and not config.effective_loss.endswith(
        ("binary_crossentropy", "categorical_crossentropy")
    ):
        problems.append(Problem("label_smoothing", f"works with crossentropy losses, not with {config.loss}"))
    sparse = [name for name in config.metrics if name.startswith("sparse_")]
    if sparse and config.effective_loss != config.loss:
        cause = "label_smoothing" if config.label_smoothing else "augmentation.mixup and cutmix"
        message = f"'{sparse[0]}' needs class numbers, and {cause} make shares of them; use "
        problems.append(Problem("metrics", f"{message}'{sparse[0].removeprefix('sparse_')}'"))
    return problems


def _placement_problems(config: RunConfig) -> list[Problem]:
    """Check that what the model is to do to its images is something that a layer does."""
    if config.augmentation.placement != "model":
        return []
    return [
        Problem(
            f"augmentation.{name}",
            f"cannot be placed in the model: {why}; set augmentation.placement to pipeline or auto",
        )
        for name, why in config.augmentation.without_layer.items()
    ]


def _fine_tuning_problems(config: RunConfig) -> list[Problem]:
    key, first = "fine_tuning.after_epochs", config.fine_tuning.after_epochs
    if not first:
        return []
    problems = []
    if config.model not in {"application", "hub"}:
        problems.append(Problem(key, f"needs the model application or hub, which have a base; not {config.model}"))
    elif config.model_options.get("trainable", "none") not in ("none", False):
        problems.append(Problem(key, "needs a base that is frozen until then: leave model_options.trainable away"))
    if config.model == "hub" and config.fine_tuning.from_layer:
        message = "a SavedModel has no layers to choose from: all of it is trained, or nothing"
        problems.append(Problem("fine_tuning.from_layer", message))
    if first >= config.epochs:
        problems.append(Problem(key, f"is {first}, which leaves nothing of {config.epochs} epochs for it"))
    return problems


def _backend_problems(config: RunConfig) -> list[Problem]:
    """Check whether the backend and the hosts can do what is asked of them."""
    problems = []
    if config.backend == "jax" and config.needs_tensorflow:
        problems.append(Problem("backend", f"cannot be jax: {config.needs_tensorflow}"))
    if config.backend == "jax" and config.requested.address:
        problems.append(Problem("backend", "cannot be jax: a TPU at another machine is reached by TensorFlow only"))
    hosts = config.hosts
    if hosts.count == "auto":
        return problems
    if hosts.index != "auto" and hosts.index >= hosts.count:
        problems.append(Problem("hosts.index", f"is {hosts.index}; {hosts.count} hosts are 0 to {hosts.count - 1}"))
    if hosts.is_several and config.backend == "tensorflow":
        problems.append(Problem("backend", "cannot be tensorflow: Keras trains on several hosts with JAX only"))
    if hosts.is_several and config.needs_tensorflow:
        problems.append(Problem("hosts.count", f"cannot be {hosts.count}: {config.needs_tensorflow}"))
    if (count := config.requested.simulated) and count % hosts.count:
        problems.append(Problem("accelerator", f"{count} simulated replicas do not divide among {hosts.count} hosts"))
    return problems
