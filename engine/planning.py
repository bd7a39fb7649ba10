"""The plan of a run, before anything is loaded: fast enough to run at every key press.

The plan has the advice that holds on any accelerator; `static_advice` adds what matters only on a TPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from .accelerators.backend import FRAMEWORKS, BackendChoice, choose_backend
from .config.catalog import is_user_reference
from .config.user_code import missing_import, reference_problem, references_of
from .config.values import LIMITS, AcceleratorKind, budget_seconds, is_bucket, parse_accelerator, parse_piece
from .data.cached_facts import Speed, function_record_of, input_speed_of, known_batch, noted_outputs
from .data.kinds.table import kind_of, train_examples_of
from .data.places import is_remote, locate
from .errors import Finding, Severity, most_severe_first
from .machine.environment import usable_cores
from .machine.install import JAX_ON_TPU, install_line, line_for_module
from .mirror.places import mirror_problem
from .models.table import MODELS
from .runs.timing import PastRun, past_run_like

if TYPE_CHECKING:
    from .config.run_config import RunConfig
    from .data.kinds.skimming import Survey
    from .machine.devices import Hardware

_UNEVEN = 5  # how many times as large as the smallest class the largest one is when the plan mentions it
_NAMED = 5  # most classes that one sentence names
_CROWDED = 4  # most simulated replicas per core without a warning
_USUAL_DEVICES = 8  # devices of a v2-8 or v3-8, the TPUs that another machine usually serves
_FEW_STEPS = 10  # with fewer steps per epoch, starting and ending an epoch takes longer than its steps
_LARGE_RATE = 1.0  # of the published rates only that of Adadelta is as large
_NUMBER_LOSSES = ("mean_squared_error", "mean_absolute_error", "huber")
_finding = partial(Finding, key="accelerator")

TILE = 128  # numbers side by side in a tile, and the side of the matrix unit of v2 to v5p


class Plan(Struct, frozen=True):
    """What a run will do."""

    accelerator: str  # the devices to train on, such as ``2 × NVIDIA H200``
    replicas: int  # copies of the model that share a global batch
    replica_batch: int  # examples per step and replica
    global_batch: int  # examples per step
    train_examples: int | None  # training examples; None if unknown before the run
    steps_per_epoch: int | None  # steps per epoch; None if unknown
    images_per_epoch: int | None  # examples per epoch; None if unknown
    remainder: int  # examples that each epoch drops
    learning_rate: float  # the peak learning rate of the configuration, after scaling
    advice: tuple[Finding, ...]  # advice, the most severe first
    unit: str = "image"  # what an example is called: ``image`` or ``example``
    input_speed: Speed | None = None  # the input speed measured on this machine; None if there is no measurement
    backend: str = "tensorflow"  # Keras's backend, ``tensorflow`` or ``jax``
    backend_reason: str = ""
    took: PastRun | None = None  # the last similar run on this machine; None for none
    seconds: float | None = None  # the estimated time, from `took`; None if unknown

    @property
    def is_possible(self) -> bool:
        """Whether there is no known reason for the run to fail."""
        return all(advice.severity is not Severity.ERROR for advice in self.advice)


def make_plan(config: RunConfig, hardware: Hardware) -> Plan:
    """Make the plan of a configuration on a machine."""
    backend_choice = choose_backend(config, hardware)
    devices, auto, replicas, advice = devices_of(config, hardware, backend_choice)
    examples = train_examples_of(config)
    kind, seen = kind_of(config.dataset), function_record_of(config)
    kept = seen if seen is not None and seen.keeps_batches(config.batch_size) else None
    size = known_batch(config) if kept is None else max(1, kept.batch // replicas)
    config = config.model_copy(update={"batch_size": size})
    batch = size * replicas
    is_whole = config.steps_per_epoch == "all"
    steps = kept.batches if kept is not None and is_whole else config.steps_in_epoch(examples, replicas)
    advice += [Finding(Severity.WARNING, text, key="backend") for text in backend_choice.notes]
    if config.requested.kind not in (AcceleratorKind.CPU, AcceleratorKind.SIMULATED):
        advice += [Finding(Severity.WARNING, text, key="accelerator") for text in hardware.hidden]
    remainder = 0
    if examples is not None:
        findings = list(_batch_findings(config, None if kept is not None else examples, replicas))
        if seen is not None:  # the user's function may return another number of examples this time
            milder = {Severity.ERROR: Severity.WARNING}
            findings = [replace(one, severity=milder.get(one.severity, one.severity)) for one in findings]
            text = f"{config.dataset} returned {examples:,} examples when it was last called here, on {seen.day}"
            findings.append(Finding(Severity.INFO, f"{text}; the plan assumes the same.", key="dataset"))
        advice += findings
        remainder = examples % batch if is_whole and kept is None else 0
    if (download := kind.missing_download(config)) is not None:
        advice.append(Finding(Severity.WARNING, download.sentence))
    advice += _file_advice(config, kind.survey(config), kind.source)
    advice += _scaling_findings(config, replicas)
    advice += own_findings(config)
    took = past_run_like(config, backend_choice.backend, devices)
    if budget := budget_seconds(config.budget, on_tpu=parse_accelerator(backend_choice.accelerator).is_tpu):
        fitting = took.epochs(budget, steps, config.batch_size) if took and steps else None
        advice.append(budget_finding(config, budget, fitting))
    if config.mirror:
        advice += _mirror_findings(config)
    return Plan(
        accelerator=f"{devices} ({auto})" if auto else devices,
        replicas=replicas,
        replica_batch=config.batch_size,
        global_batch=batch,
        train_examples=examples,
        steps_per_epoch=steps,
        images_per_epoch=None if steps is None else examples if is_whole and kept is not None else steps * batch,
        remainder=remainder,
        learning_rate=config.scaled_learning_rate(replicas),
        advice=most_severe_first(advice),
        unit="image" if kind.has_images(config) else "example",
        input_speed=input_speed_of(config),
        backend=backend_choice.backend,
        backend_reason=backend_choice.why,
        took=took,
        seconds=took.seconds(config.epochs, steps, config.batch_size) if took is not None and steps else None,
    )


def devices_of(
    config: RunConfig, hardware: Hardware, backend_choice: BackendChoice
) -> tuple[str, str, int, list[Finding]]:
    """Return the devices in words, why these if nobody asked for them, their number, and problems with the choice."""
    gpus, requested = hardware.gpus, config.requested
    hosts = 1 if config.hosts.count == "auto" else config.hosts.count
    problems = []
    if backend_choice.missing:
        key = "" if backend_choice.lacks_tensorflow else "backend"
        problems.append(Finding(Severity.ERROR, f"{backend_choice.missing} {backend_choice.remedy}".strip(), key=key))
    if gpus and (why := backend_choice.framework.why_no_gpu(os.environ)):
        problems.append(_finding(Severity.INFO, why))
        gpus = ()
    if count := requested.simulated:
        each, cores = max(1, count // hosts), usable_cores()
        if each > _CROWDED * cores:
            text = (
                f"{each} simulated replicas share {cores} core{'s' if cores > 1 else ''}, which makes steps much "
                f"slower; sim:{max(2, cores)} behaves the same."
            )
            problems.append(_finding(Severity.WARNING, text))
        return f"{count} simulated replicas on the CPU{_among(hosts)}", "", count, problems
    if parse_accelerator(backend_choice.accelerator).is_tpu:
        name, count, problem = _tpu(config, hardware, hardware.tpu_hosts if config.hosts.count == "auto" else hosts)
        is_chosen = hardware.tpu_chips and not requested.is_tpu
        return name, "auto" if is_chosen else "", count, [*problems, *problem]
    if requested.kind is AcceleratorKind.GPU and not gpus:
        text = "No GPU was found on this machine; available: cpu, sim:N."
        return "gpu", "", 1, [*problems, _finding(Severity.ERROR, text)]
    if requested.kind is AcceleratorKind.CPU or not gpus:
        if hardware.tpu and requested.kind is AcceleratorKind.AUTO:
            text = (
                f"The TPU ({hardware.tpu}) is not used: "
                f"neither JAX's TPU packages nor tensorflow-tpu are installed. To use it: {install_line(JAX_ON_TPU)}"
            )
            if platforms := os.environ.get("JAX_PLATFORMS"):
                text = f"JAX_PLATFORMS={platforms} hides the TPU ({hardware.tpu})."
            problems.append(_finding(Severity.WARNING, text))
        auto = "" if requested.kind is AcceleratorKind.CPU else "auto: no GPU found"
        return (f"{hosts} × CPU" if hosts > 1 else "CPU"), auto, hosts, problems
    count = len(gpus) * hosts
    name = gpus[0] if count == 1 else f"{count} × {gpus[0]}"
    return name, "" if requested.kind is AcceleratorKind.GPU else "auto", count, problems


def _tpu(config: RunConfig, hardware: Hardware, hosts: int) -> tuple[str, int, list[Finding]]:
    """Count the devices of a TPU; for a TPU on another machine, assume the usual number."""
    if hardware.tpu_chips:
        count = hardware.tpu_devices * hosts
        name = f"TPU {hardware.tpu_kind}".strip()
        return f"{name}, {count} device{'s' if count > 1 else ''}{_among(hosts)}", count, []
    asked = FRAMEWORKS.get(config.backend)
    may_be_elsewhere = asked is not None and asked.reaches_other_machines
    if config.requested.address or not config.requested.is_tpu or may_be_elsewhere:
        text = f"The number of TPU devices is unknown until the TPU is connected; the plan assumes {_USUAL_DEVICES}."
        return "TPU on another machine", _USUAL_DEVICES, [_finding(Severity.INFO, text)]
    return "tpu", 1, [_finding(Severity.ERROR, "No TPU was found on this machine; available: cpu, sim:N.")]


def _among(hosts: int) -> str:
    return f" on {hosts} hosts" if hosts > 1 else ""


def _file_advice(config: RunConfig, found: Survey, source: str) -> Iterator[Finding]:
    """Report problems of the user's files, which an option names, and classes that are very small."""
    for problem in found.problems:
        text = problem.message
        if text.partition(" ")[0].isalpha():  # it is not the name of a file or a key
            text = f"{text[0].upper()}{text[1:]}"
        text += "" if text.endswith((".", "?")) else "."
        yield Finding(Severity.ERROR, text, key=problem.key)
    if found.unknown:
        text = f"{config.data.options[source]} {found.unknown}; its examples will be counted when the run starts."
        yield Finding(Severity.INFO, text, key=f"data.options.{source}")
    yield from (Finding(Severity.INFO, fact, key=f"data.options.{source}") for fact in found.facts)
    if (alone := [name for name, count in found.classes.items() if count == 1]) and found.validation is None:
        named = ", ".join(alone[:_NAMED]) + (f" and {len(alone) - _NAMED:,} more" if len(alone) > _NAMED else "")
        kinds = "One class has" if len(alone) == 1 else f"{len(alone):,} classes have"
        text = f"{kinds} a single example, which is used for training and not for validation: {named}."
        yield Finding(Severity.WARNING, text, key=f"data.options.{source}")
    counts = [count for count in found.classes.values() if count]
    if counts and max(counts) >= _UNEVEN * min(counts) and config.class_weight == "none":
        largest = max(found.classes, key=lambda name: found.classes[name])
        smallest = min(found.classes, key=lambda name: found.classes[name] or max(counts))
        text = (
            f"{largest} has {max(counts):,} examples, but {smallest} only {min(counts):,}; "
            "class_weight=balanced gives rare classes more weight."
        )
        yield Finding(Severity.INFO, text, key="class_weight")


def padded(size: int, tile: int) -> int:
    """Return the smallest multiple of a tile's side that a size fits into."""
    return -(-size // tile) * tile


def static_advice(config: RunConfig, devices: int) -> tuple[Finding, ...]:
    """Return all advice on a configuration for a TPU with this many devices, the most severe first."""
    examples = train_examples_of(config)
    found = [
        *_batch_findings(config, examples, devices),
        *_scaling_findings(config, devices),
        *_setting_findings(config),
        *_size_findings(config),
        *_step_findings(config, examples, devices),
    ]
    return most_severe_first(found)


def _batch_findings(config: RunConfig, examples: int | None, replicas: int) -> Iterator[Finding]:
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


def _scaling_findings(config: RunConfig, replicas: int) -> Iterator[Finding]:
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
        text = f"{compared[0]} is meaningless for regression; use metrics=mean_absolute_error."
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


def _mirror_findings(config: RunConfig) -> Iterator[Finding]:
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
