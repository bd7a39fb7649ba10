"""Advice on a configuration that needs only arithmetic, no model.

The plan shows the advice for any accelerator; `static_advice` adds what matters only on a TPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..accelerators.table import FRAMEWORKS
from ..config.catalog import is_user_reference
from ..config.pieces import parse_piece
from ..config.user_code import missing_import, reference_problem, references_of
from ..config.values import LIMITS, is_bucket
from ..data.cached_facts import function_record_of, noted_outputs
from ..data.kinds.table import train_examples_of
from ..data.places import is_remote, locate
from ..findings import Finding, Severity, most_severe_first
from ..machine.install import line_for_module
from ..mirror.places import mirror_problem
from ..models.table import MODELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..config.run_config import RunConfig

_FEW_STEPS = 10  # with fewer steps per epoch, starting and ending an epoch takes longer than its steps
_LARGE_RATE = 1.0  # of the published rates only that of Adadelta is as large
_NUMBER_LOSSES = ("mean_squared_error", "mean_absolute_error", "huber")


def padded(size: int, tile: int) -> int:
    """Return the smallest multiple of a tile's side that a size fits into."""
    return -(-size // tile) * tile


TILE = 128  # numbers side by side in a tile, and the side of the matrix unit of v2 to v5p


def static_advice(config: RunConfig, devices: int) -> tuple[Finding, ...]:
    """Return all advice on a configuration for a TPU with this many devices, the most severe first."""
    examples = train_examples_of(config)
    found = [
        *batch_findings(config, examples, devices),
        *scaling_findings(config, devices),
        *_setting_findings(config),
        *_size_findings(config),
        *_step_findings(config, examples, devices),
    ]
    return most_severe_first(found)


def batch_findings(config: RunConfig, examples: int | None, replicas: int) -> Iterator[Finding]:
    """Check the batch size against the number of training examples, if it is known, and the tiles of a TPU."""
    batch, key = config.batch_size, "batch_size"
    whole = batch * replicas
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
            f"{examples:,} examples are not a multiple of {whole:,}: each epoch drops {remainder:,}; "
            "which ones depends on the shuffle."
        )
        yield Finding(Severity.INFO, text, key=key)
    if batch % 8:
        text = (
            f"A batch of {batch} per replica is not a multiple of 8; a TPU pads it to {padded(batch, 8)}. "
            "Multiples of 128 are best."
        )
        yield Finding(Severity.INFO if batch < 8 else Severity.WARNING, text, key=key)
    elif batch % 128:
        yield Finding(Severity.INFO, "On a TPU, multiples of 128 per replica use the matrix unit best.", key=key)


def scaling_findings(config: RunConfig, replicas: int) -> Iterator[Finding]:
    """Check whether the learning rate is scaled with the batch size (Goyal et al. 2017)."""
    if replicas > 1 and not config.optimizer.scale_with_replicas:
        text = (
            f"The global batch grows {replicas}-fold with the replicas, but the learning rate does not. "
            "optimizer.scale_with_replicas=true scales it; optimizer.warmup_epochs ramps the learning rate up."
        )
        yield Finding(Severity.INFO, text, key="optimizer.scale_with_replicas")


def own_findings(config: RunConfig) -> Iterator[Finding]:
    """Say what a custom model's outputs mean for the loss, and whether labels seen before fit the loss."""
    if config.weights and not is_remote(config.weights) and not Path(locate(config.weights)).is_file():
        yield Finding(Severity.ERROR, f"weights: there is no file {config.weights}.", key="weights")
    for key, reference in references_of(config):
        if problem := reference_problem(reference):
            yield Finding(Severity.ERROR, f"{key}: {problem}{'' if problem.endswith('?') else '.'}", key=key)
        elif missing := missing_import(reference):
            text = f"{key}: {reference.rpartition(':')[0]} imports {missing}, which is not installed."
            yield Finding(Severity.ERROR, f"{text} To install it: {line_for_module(missing)}", key=key)
    if (rate := config.optimizer.learning_rate) > _LARGE_RATE:
        text = f"A learning rate of {rate:g} is very large; usual rates are 0.0001 to 0.1."
        yield Finding(Severity.WARNING, text, key="optimizer.learning_rate")
    yield from _output_findings(config)
    yield from _own_data_findings(config)
    compared = [name for name in config.metrics if "accuracy" in name]
    if compared and config.loss_name in _NUMBER_LOSSES:
        text = f"{compared[0]} says little about numbers; metrics=mean_absolute_error does."
        yield Finding(Severity.WARNING, text, key="metrics")


def _output_findings(config: RunConfig) -> Iterator[Finding]:
    own = [name for loss in config.losses.values() if is_user_reference(name := parse_piece(loss).name)]
    if is_user_reference(config.model) and (own or config.takes_probabilities):
        is_set = config.outputs != "auto"
        given = config.outputs if is_set else noted_outputs(config)
        if own and not is_set:
            text = f"The model is taken to give probabilities to {own[0]}; if it gives logits, set outputs=logits."
        elif given is None:
            text = f"Whether {config.model} gives probabilities or logits is checked when it is built."
        else:
            text = f"The model gives {given} ({f'outputs={config.outputs}' if is_set else 'found when last built'})."
        yield Finding(Severity.INFO, text, key="outputs")
    if "" not in config.losses:
        losses = [f"{name} {loss}" for name, loss in config.losses.items()]
        yield Finding(Severity.INFO, f"Each output has its loss: {', '.join(losses)}.", key="outputs")


def _own_data_findings(config: RunConfig) -> Iterator[Finding]:
    if (seen := function_record_of(config)) is not None:
        if seen.structure:
            yield Finding(Severity.INFO, f"Each example has {seen.structure}.", key="structure")
        if seen.validation_count == 0:
            text = (
                f"{config.dataset} returned no validation data, so nothing shows overfitting. Return (train, "
                "validation) if you can."
            )
            yield Finding(Severity.INFO, text, key="validation")
        is_sparse = config.effective_loss == "sparse_categorical_crossentropy"
        if is_sparse and seen.whole_labels is False:
            text = (
                f"{config.dataset} last returned decimal numbers as labels, but {config.loss} needs class numbers. To "
                "predict numbers, set loss=mean_squared_error and metrics=mean_absolute_error."
            )
            yield Finding(Severity.WARNING, text, key="loss")


def budget_finding(config: RunConfig, seconds: float, fitting: int | None) -> Finding:
    """Say how many epochs fit into a time budget; `fitting` is from a similar run, None if there was none."""
    budget = f"the budget of {config.budget}" + (f" ({seconds / 3600:g} hours)" if config.budget in LIMITS else "")
    if fitting is None:
        text = f"How many epochs fit into {budget} is unknown before the first run; it stops in time to be saved."
    elif fitting >= config.epochs:
        text = f"All {config.epochs:,} epochs fit into {budget}."
    else:
        text = f"About {fitting:,} of {config.epochs:,} epochs fit into {budget}; the run then stops and is saved."
        return Finding(Severity.WARNING, text, key="budget")
    return Finding(Severity.INFO, text, key="budget")


def mirror_findings(config: RunConfig) -> Iterator[Finding]:
    """Say whether the mirror can be written; a bucket is only known once the run reaches it."""
    if problem := mirror_problem(config.mirror):
        text = f"The mirror {config.mirror} cannot be written: {problem}. The run would train and keep trying."
        yield Finding(Severity.WARNING, text, key="mirror")
    elif is_bucket(config.mirror):
        text = f"{config.mirror} is written for the first time when the run starts; the run reports whether that works."
        yield Finding(Severity.INFO, text, key="mirror")


def _setting_findings(config: RunConfig) -> Iterator[Finding]:
    """Check the placement of augmentation, and the precision."""
    options, key = config.augmentation, "augmentation.placement"
    if options.is_active and options.placement == "model":
        severity, text = Severity.WARNING, "Augmentation in the model uses TPU time, which costs more than host time."
        if options.moving:
            severity, moving = Severity.ERROR, f"augmentation.{options.moving[0]}"
            text = f"{moving} cannot be in the model: a TPU would read each image a thousand times."
        yield Finding(severity, text, remedy="Set augmentation.placement=pipeline", key=key)
    remedy = "Set precision=mixed_bfloat16"
    if config.precision == "float32":
        text = "Activations in float32 take twice the memory and bandwidth of bfloat16."
        yield Finding(Severity.INFO, text, remedy=remedy, key="precision")
    elif config.precision == "mixed_float16":
        text = "TPUs compute in bfloat16 and convert float16 back and forth."
        yield Finding(Severity.WARNING, text, remedy=remedy, key="precision")


def _size_findings(config: RunConfig) -> Iterator[Finding]:
    """Name the sizes that a TPU pads, except the number of classes, which is given."""
    if config.model not in MODELS:
        return
    model = MODELS[config.model]
    given = model.model_validate(config.model_options).model_dump()
    for name in model.sizes:
        sizes = given.get(name, ())
        for size in dict.fromkeys(sizes if isinstance(sizes, (list, tuple)) else [sizes]):
            # Below 128, multiples of 8 are fine: the compiler lays the batch along the longer side of the tiles.
            if not isinstance(size, int) or size % TILE == 0 or (size < TILE and size % 8 == 0):
                continue
            tile = TILE if size >= TILE // 2 else 8
            text = f"A TPU pads {name} from {size} to {padded(size, tile)}."
            remedy = f"Use {max(tile, round(size / tile) * tile)} instead of {size} in model_options.{name}"
            yield Finding(Severity.INFO, text, remedy=remedy, key=f"model_options.{name}")
    heads, width = given.get("heads"), given.get("width")
    if config.model == "transformer" and isinstance(heads, int) and isinstance(width, int) and width // heads % TILE:
        text = f"Each of the {heads} heads is {width // heads} wide, but the matrix unit of a TPU is {TILE} wide."
        yield Finding(Severity.INFO, text, remedy="Use fewer heads or a larger width", key="model_options.heads")


def _step_findings(config: RunConfig, examples: int | None, devices: int) -> Iterator[Finding]:
    """Check the steps of an epoch, and `steps_per_execution` by the rules of `training.fitting`."""
    steps, asked, key = config.steps_in_epoch(examples, devices), config.steps_per_execution, "steps_per_execution"
    if not steps:
        return
    if steps < _FEW_STEPS and config.steps_per_epoch == "all":
        text = (
            f"An epoch on {devices} devices has only {steps} step{'s' if steps > 1 else ''}; "
            "starting and ending it takes longer than that."
        )
        yield Finding(Severity.INFO, text, remedy="Use a smaller TPU or a smaller batch", key="batch_size")
    why = FRAMEWORKS[config.tpu_backend].one_step_reason(devices)
    if asked == "auto":
        return
    if why and asked > 1:
        yield Finding(Severity.INFO, f"{key}={asked} is not used: {why}.", remedy=f"Leave {key} at auto", key=key)
    elif not why and asked == 1 and steps > 1:
        text = "With one step per execution, the TPU waits for the host after every step."
        yield Finding(Severity.INFO, text, remedy=f"Set {key}=auto or 32", key=key)
    elif not why and asked > steps:
        text = f"{key} is {asked}, more than the {steps} step{'s' if steps > 1 else ''} of an epoch."
        yield Finding(Severity.WARNING, text, remedy=f"Set it to {steps} or less", key=key)
