"""The plan of a run, before anything is loaded: fast enough to run at every key press."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..accelerators.backend import BackendChoice, choose_backend
from ..accelerators.table import FRAMEWORKS
from ..config.values import AcceleratorKind, budget_seconds, parse_accelerator
from ..data.cached_facts import Speed, function_record_of, input_speed_of, known_batch
from ..data.kinds.table import kind_of, train_examples_of
from ..findings import Finding, Severity, most_severe_first
from ..machine.install import JAX_ON_TPU, install_line
from ..machine.resources import usable_cores
from ..runs.run_history import PastRun, past_run_like
from .advice import batch_findings, budget_finding, mirror_findings, own_findings, scaling_findings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..config.run_config import RunConfig
    from ..data.survey.skimming import Survey
    from ..machine.devices import Hardware

_UNEVEN = 5  # how many times as large as the smallest class the largest one is when the plan mentions it
_NAMED = 5  # most classes that one sentence names
_CROWDED = 4  # most simulated replicas per core without a warning
_USUAL_DEVICES = 8  # devices of a v2-8 or v3-8, the TPUs that another machine usually serves
_finding = partial(Finding, key="accelerator")


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
        findings = list(batch_findings(config, None if kept is not None else examples, replicas))
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
    advice += scaling_findings(config, replicas)
    advice += own_findings(config)
    took = past_run_like(config, backend_choice.backend, devices)
    if budget := budget_seconds(config.budget, on_tpu=parse_accelerator(backend_choice.accelerator).is_tpu):
        fitting = took.epochs(budget, steps, config.batch_size) if took and steps else None
        advice.append(budget_finding(config, budget, fitting))
    if config.mirror:
        advice += mirror_findings(config)
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
