"""What can be said of a configuration on a TPU without building anything: arithmetic, in a few milliseconds.

The plan on Setup shows what holds for any accelerator; `static_advice` adds what matters on a TPU alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.batch import global_batch, steps_per_epoch
from ..config.model_options import MODEL_OPTIONS
from ..findings import Finding, Severity, most_severe_first
from .example_count import train_examples_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..config.run_config import RunConfig

_MOVING = ("rotation", "translation", "zoom")
"""Changes whose Keras layers make a TPU read an image a thousand times."""

_FEW_STEPS = 10
"""Steps an epoch below which starting and ending an epoch takes longer than its steps."""

_SIZES = {
    "cnn": ("filters", "hidden"),
    "vgg": ("filters", "hidden"),
    "mlp": ("hidden",),
    "hub": ("hidden",),
    "transformer": ("width", "hidden"),
    "text": ("width", "filters", "hidden"),
    "recommender": ("width", "hidden"),
}
"""Options of the built-in models that are sizes of features."""


def static_advice(config: RunConfig, devices: int) -> tuple[Finding, ...]:
    """Say what is known of a configuration on a TPU before anything is built.

    Args:
        config: The configuration.
        devices: The TPU's devices, each of which holds a replica.

    Returns:
        What to know, the most severe first.
    """
    examples = train_examples_of(config)
    found = [
        *batch_findings(config, examples, devices),
        *scaling_findings(config, devices),
        *_placement_findings(config),
        *_precision_findings(config),
        *_size_findings(config),
        *_step_findings(config, examples, devices),
    ]
    return most_severe_first(found)


def batch_findings(config: RunConfig, examples: int | None, replicas: int) -> Iterator[Finding]:
    """Say whether the batch suits the dataset and the tiles of a TPU.

    Args:
        config: The configuration.
        examples: Training examples; None where only a run finds out.
        replicas: Copies of the model that share a step.
    """
    batch, key = config.batch_size, "batch_size"
    whole = global_batch(batch, replicas)
    if examples is not None and whole > examples:
        largest = examples // replicas
        fits = f"the largest batch size that fits is {largest}" if largest else "use fewer replicas"
        text = (
            f"A global batch of {whole:,} ({batch:,} × {replicas}) is larger than the {examples:,} training examples; "
            f"{fits}."
        )
        yield Finding(Severity.ERROR, text, key=key)
        return
    if examples is not None and config.steps_per_epoch == "all" and (remainder := examples % whole):
        text = (
            f"{examples:,} examples do not divide by {whole:,}: each epoch leaves out {remainder:,}, "
            "others every time because the data is shuffled."
        )
        yield Finding(Severity.INFO, text, key=key)
    if batch % 8:
        text = (
            f"{batch} a replica is not a multiple of 8: a TPU pads it to {_up(batch, 8)} and wastes the difference. "
            "Multiples of 128 are best."
        )
        yield Finding(Severity.INFO if batch < 8 else Severity.WARNING, text, key=key)
    elif batch % 128:
        yield Finding(Severity.INFO, "On a TPU, multiples of 128 a replica use the matrix unit best.", key=key)


def scaling_findings(config: RunConfig, replicas: int) -> Iterator[Finding]:
    """Say whether the learning rate follows the batch, which grows with the replicas (Goyal et al. 2017).

    Args:
        config: The configuration.
        replicas: Copies of the model.
    """
    if replicas > 1 and not config.optimizer.scale_with_replicas:
        text = (
            f"The batch grows {replicas}-fold over the replicas and the learning rate does not; "
            "optimizer.scale_with_replicas=true scales it, with optimizer.warmup_epochs to start gently."
        )
        yield Finding(Severity.INFO, text, key="optimizer.scale_with_replicas")


def _placement_findings(config: RunConfig) -> Iterator[Finding]:
    options, key = config.augmentation, "augmentation.placement"
    if not options.is_active or options.placement != "model":
        return
    remedy = "Move the augmentation to the pipeline: augmentation.placement=pipeline"
    if moving := [name for name in _MOVING if getattr(options, name)]:
        text = f"augmentation.{moving[0]} in the model makes a TPU read each image a thousand times, and is refused."
        yield Finding(Severity.ERROR, text, remedy=remedy, key=key)
    else:
        text = "Augmentation in the model takes the TPU's time, which costs more than the host's."
        yield Finding(Severity.WARNING, text, remedy=remedy, key=key)


def _precision_findings(config: RunConfig) -> Iterator[Finding]:
    remedy = "Set precision=mixed_bfloat16"
    if config.precision == "float32":
        text = "float32 keeps activations in twice the memory of bfloat16, and moves twice the bytes."
        yield Finding(Severity.INFO, text, remedy=remedy, key="precision")
    elif config.precision == "mixed_float16":
        text = "A TPU computes in bfloat16, not in float16, which it converts back and forth."
        yield Finding(Severity.WARNING, text, remedy=remedy, key="precision")


def _size_findings(config: RunConfig) -> Iterator[Finding]:
    """Say which sizes of the model are padded; the classes are what they are."""
    if config.model not in _SIZES:
        return
    given = MODEL_OPTIONS[config.model].model_validate(config.model_options).model_dump()
    for name in _SIZES[config.model]:
        sizes = given.get(name, ())
        for size in dict.fromkeys(sizes if isinstance(sizes, (list, tuple)) else [sizes]):
            # Below 128, multiples of 8 do well: the compiler lays the batch along the tiles' longer side.
            if not isinstance(size, int) or size % 128 == 0 or (size < 128 and size % 8 == 0):
                continue
            tile = 128 if size >= 64 else 8
            padded = _up(size, tile)
            text = f"{name} of {size} is computed as {padded} on a TPU, and the difference is wasted."
            remedy = f"Set model_options.{name} to {max(tile, round(size / tile) * tile)} there"
            yield Finding(Severity.INFO, text, remedy=remedy, key=f"model_options.{name}")
    heads, width = given.get("heads"), given.get("width")
    if config.model == "transformer" and isinstance(heads, int) and isinstance(width, int) and width // heads % 128:
        text = f"Each of {heads} heads is {width // heads} wide, and a TPU's matrix unit computes 128 at once."
        yield Finding(Severity.INFO, text, remedy="Use fewer heads, or a larger width", key="model_options.heads")


def _step_findings(config: RunConfig, examples: int | None, devices: int) -> Iterator[Finding]:
    steps = steps_per_epoch(config, examples, devices)
    if not steps:
        return
    if steps < _FEW_STEPS and config.steps_per_epoch == "all":
        text = (
            f"{devices} devices take the {examples:,} examples in {steps} step{'s' if steps > 1 else ''} an epoch: "
            "starting and ending an epoch takes longer than that."
        )
        yield Finding(Severity.INFO, text, remedy="Use a smaller TPU or a smaller batch", key="batch_size")
    yield from _execution_findings(config, steps, devices)


def _execution_findings(config: RunConfig, steps: int, devices: int) -> Iterator[Finding]:
    """Say what becomes of a number of steps to be sent at once; `training.steps_per_execution` decides likewise."""
    asked, key = config.steps_per_execution, "steps_per_execution"
    if asked == "auto":
        return
    by_tensorflow = config.takes_tensorflow
    if by_tensorflow and devices == 1:
        if asked == 1 and steps > 1:
            text = "With one step an execution the TPU waits for the host after every step."
            yield Finding(Severity.INFO, text, remedy=f"Set {key}=auto or 32", key=key)
        elif asked > steps:
            text = f"{key} is {asked}, more than the {steps} step{'s' if steps > 1 else ''} of an epoch."
            yield Finding(Severity.WARNING, text, remedy=f"Set it to {steps} or less", key=key)
    elif asked > 1:
        why = (
            "Keras runs one step at a time on several replicas" if by_tensorflow else "JAX sends steps ahead by itself"
        )
        yield Finding(Severity.INFO, f"{key}={asked} is not used: {why}.", remedy=f"Leave {key} at auto", key=key)


def _up(size: int, to: int) -> int:
    return -(-size // to) * to
