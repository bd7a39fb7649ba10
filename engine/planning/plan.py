"""What a configuration amounts to before anything is loaded: replicas, batches, steps, learning rate, advice.

Arithmetic on `RunConfig`, the catalog, what the machine has and what `engine.data.survey` counted of the user's
files; fast enough to run at every key press.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..accelerators.backend import TENSORFLOW, choose_backend
from ..config.catalog import DATASETS, IMAGE_DATASETS, DatasetInfo, is_user_reference
from ..config.learning_rate import scaled_learning_rate
from ..data.function_record import function_record_of
from ..data.input_speed import input_speed_of
from ..data.survey.survey import survey
from ..findings import Finding, Severity, most_severe_first
from ..machine.devices import CHIPS
from ..runs.run_history import past_run_like
from ..storage.paths import user_path
from .advice import batch_findings, scaling_findings
from .example_count import train_examples_of

if TYPE_CHECKING:
    from ..accelerators.backend import BackendChoice
    from ..config.run_config import RunConfig
    from ..data.input_speed import Speed
    from ..data.survey.survey import Survey
    from ..machine.devices import Hardware
    from ..runs.run_history import PastRun

_UNEVEN = 5
"""From how many times the smallest class's examples on the largest one is worth a word."""

_NAMED = 5
"""Most classes that a sentence names."""

_CROWDED = 4
"""From how many simulated replicas a core on that is worth a word."""

_USUAL_DEVICES = 8
"""Devices of a v2-8 or v3-8, the TPUs that Colab and Cloud serve to another machine."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do.

    Args:
        accelerator: What it will train on, such as ``2 × NVIDIA H200``.
        replicas: Copies of the model that share a step's batch.
        replica_batch: Examples a step and replica.
        global_batch: Examples a step.
        train_examples: Examples to train on; None where only the run itself finds out.
        steps_per_epoch: Steps an epoch; None when the data has to tell.
        images_per_epoch: Examples an epoch; None likewise.
        remainder: Examples that an epoch over the whole dataset leaves out.
        learning_rate: The peak, after scaling.
        advice: What to know, the most severe first.
        unit: What an example is called: ``image`` or ``example``.
        input_speed: How fast the input pipeline was when it was measured on this machine; None when it was not.
        backend: Keras's backend, ``tensorflow`` or ``jax``.
        backend_reason: Why this one, in a few words.
        took: How long a run like this one took on this machine; None when there was none.
        seconds: How long this one will take by that; None likewise, or when the number of steps is not known.
    """

    accelerator: str
    replicas: int
    replica_batch: int
    global_batch: int
    train_examples: int | None
    steps_per_epoch: int | None
    images_per_epoch: int | None
    remainder: int
    learning_rate: float
    advice: tuple[Finding, ...]
    unit: str = "image"
    input_speed: Speed | None = None
    backend: str = TENSORFLOW
    backend_reason: str = ""
    took: PastRun | None = None
    seconds: float | None = None

    @property
    def is_possible(self) -> bool:
        """Whether nothing is known that would make the run fail."""
        return all(advice.severity is not Severity.ERROR for advice in self.advice)


def make_plan(config: RunConfig, hardware: Hardware) -> Plan:
    """Work out what a configuration will do on a machine.

    Args:
        config: The configuration.
        hardware: What the machine has.
    """
    backend_choice = choose_backend(config, hardware)
    accelerator, replicas, advice = _accelerator(config, hardware, backend_choice)
    global_batch = config.batch_size * replicas
    examples = train_examples_of(config)
    available = None if examples is None else examples // global_batch
    steps = available if config.steps_per_epoch == "all" else config.steps_per_epoch
    remainder = 0
    if examples is not None:
        findings = list(batch_findings(config, examples, replicas))
        advice += _own_advice(config, findings) if is_user_reference(config.dataset) else findings
        remainder = examples % global_batch if config.steps_per_epoch == "all" else 0
    if (info := DATASETS.get(config.dataset)) is not None:
        advice += _download_advice(info)
    if (found := survey(config)) is not None:
        advice += _file_advice(config, found)
    advice += scaling_findings(config, replicas)
    took = past_run_like(config, backend_choice.backend, _asked_for(accelerator))
    return Plan(
        accelerator=accelerator,
        replicas=replicas,
        replica_batch=config.batch_size,
        global_batch=global_batch,
        train_examples=examples,
        steps_per_epoch=steps,
        images_per_epoch=None if steps is None else steps * global_batch,
        remainder=remainder,
        learning_rate=scaled_learning_rate(config, replicas),
        advice=most_severe_first(advice),
        unit="image" if config.dataset in IMAGE_DATASETS else "example",
        input_speed=input_speed_of(config),
        backend=backend_choice.backend,
        backend_reason=backend_choice.why,
        took=took,
        seconds=took.seconds(config.epochs, steps, config.batch_size) if took is not None and steps else None,
    )


def devices_of(config: RunConfig, hardware: Hardware, backend_choice: BackendChoice) -> str:
    """Return what a run will train on, whether that was asked for or chosen."""
    return _asked_for(_accelerator(config, hardware, backend_choice)[0])


def _asked_for(accelerator: str) -> str:
    return accelerator.partition(" (auto")[0]


def _accelerator(
    config: RunConfig, hardware: Hardware, backend_choice: BackendChoice
) -> tuple[str, int, list[Finding]]:
    """Return what will be trained on, the replicas, and what speaks against it."""
    gpus = hardware.gpus
    hosts = 1 if config.hosts.count == "auto" else config.hosts.count
    refusals = []
    if backend_choice.missing:
        refusals.append(
            Finding(Severity.ERROR, f"{backend_choice.missing} {backend_choice.remedy}".strip(), key="backend")
        )
    if config.simulated_replicas:
        count = config.simulated_replicas
        among = f" on {hosts} hosts" if hosts > 1 else ""
        refusals += _crowding_advice(max(1, count // hosts))
        return f"{count} simulated replicas on the CPU{among}", count, refusals
    if backend_choice.accelerator.partition(":")[0] == "tpu":
        return _tpu(config, hardware, hardware.tpu_hosts if config.hosts.count == "auto" else hosts, refusals)
    if config.accelerator == "gpu" and not gpus:
        refusal = Finding(Severity.ERROR, "No GPU was found on this machine; there are: cpu, sim:N.", key="accelerator")
        return "gpu", 1, [*refusals, refusal]
    if config.accelerator == "cpu" or not gpus:
        if hardware.tpu and config.accelerator == "auto":
            text = (
                f"A TPU ({hardware.tpu}) is here but is not used, because neither JAX's TPU packages nor "
                "tensorflow-tpu are installed; training on the CPU. `pip install 'tpu-console[tpu]'` brings the former."
            )
            refusals.append(Finding(Severity.WARNING, text, key="accelerator"))
        name = "CPU" if config.accelerator == "cpu" else "CPU (auto: no GPU found)"
        return (f"{hosts} × {name}" if hosts > 1 else name), hosts, refusals
    count = len(gpus) * hosts
    name = gpus[0] if count == 1 else f"{count} × {gpus[0]}"
    return name if config.accelerator == "gpu" else f"{name} (auto)", count, refusals


def _crowding_advice(replicas: int) -> list[Finding]:
    """Say when more simulated replicas share this machine's cores than can be of use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if replicas <= _CROWDED * cores:
        return []
    text = (
        f"{replicas} simulated replicas share {cores} core{'s' if cores > 1 else ''}: a step takes far longer, and "
        f"what is seen of them shows with sim:{max(2, cores)} as well."
    )
    return [Finding(Severity.WARNING, text, key="accelerator")]


def _tpu(config: RunConfig, hardware: Hardware, hosts: int, refusals: list[Finding]) -> tuple[str, int, list[Finding]]:
    """Count the devices of a TPU; one that another machine serves is known only once it is connected."""
    if not hardware.tpu_chips:
        if config.tpu_address or not config.wants_tpu or config.backend == TENSORFLOW:
            text = (
                f"How many devices the TPU has is known only once it is connected; the plan assumes {_USUAL_DEVICES}."
            )
            return (
                "TPU of another machine",
                _USUAL_DEVICES,
                [*refusals, Finding(Severity.INFO, text, key="accelerator")],
            )
        text = "No TPU was found on this machine; there are: cpu, sim:N."
        return "tpu", 1, [*refusals, Finding(Severity.ERROR, text, key="accelerator")]
    cores = CHIPS[hardware.tpu_kind].cores if hardware.tpu_kind in CHIPS else 1
    count = hardware.tpu_chips * cores * hosts
    auto = "" if config.wants_tpu else " (auto)"
    among = f" on {hosts} hosts" if hosts > 1 else ""
    name = f"TPU {hardware.tpu_kind}".strip()
    return f"{name}, {count} device{'s' if count > 1 else ''}{among}{auto}", count, refusals


def _download_advice(info: DatasetInfo) -> list[Finding]:
    missing = info.missing_files()
    if not missing:
        return []
    size = sum(file.download_bytes for file in missing) / 1e6
    text = (
        f"{info.name} is not downloaded yet: {size:.0f} MB will be fetched first, "
        f"into {user_path(missing[0].location.parent)}."
    )
    return [Finding(Severity.WARNING, text)]


def _file_advice(config: RunConfig, found: Survey) -> list[Finding]:
    """Say what is wrong with a person's own files, or what is worth knowing of them."""
    if found.problems:
        return [Finding(Severity.ERROR, _sentence(problem.message), key=problem.key) for problem in found.problems]
    if found.unknown:
        text = f"{config.data.options['path']} {found.unknown}; its examples are counted when the run starts."
        return [Finding(Severity.INFO, text, key="data.options.path")]
    fraction = config.data.validation_fraction
    if found.groups and not found.held_out(fraction):
        text = f"Of {found.total:,} examples, nothing is left to validate on with data.validation_fraction={fraction}."
        return [Finding(Severity.ERROR, text, key="data.validation_fraction")]
    advice = []
    if (alone := [name for name, count in found.classes.items() if count == 1]) and found.validation is None:
        named = ", ".join(alone[:_NAMED]) + (f" and {len(alone) - _NAMED:,} more" if len(alone) > _NAMED else "")
        kinds = "One class has" if len(alone) == 1 else f"{len(alone):,} classes have"
        text = f"{kinds} a single example, which is trained on and not validated: {named}."
        advice.append(Finding(Severity.WARNING, text, key="data.options.path"))
    counts = [count for count in found.classes.values() if count]
    if counts and max(counts) >= _UNEVEN * min(counts) and config.class_weight == "none":
        largest = max(found.classes, key=lambda name: found.classes[name])
        smallest = min(found.classes, key=lambda name: found.classes[name] or max(counts))
        text = (
            f"{largest} has {max(counts):,} examples and {smallest} {min(counts):,}; "
            "class_weight=balanced counts those of rare classes for more."
        )
        advice.append(Finding(Severity.INFO, text, key="class_weight"))
    return advice


def _own_advice(config: RunConfig, findings: list[Finding]) -> list[Finding]:
    """Say what a plan counts with, of a person's own function; it may give more today, so nothing is refused for it."""
    seen = function_record_of(config)
    if seen is None or seen.train_count is None:
        return []
    text = f"{config.dataset} gave {seen.train_count:,} examples when it was last called here, on {seen.day}"
    milder = [
        replace(item, severity=Severity.WARNING) if item.severity is Severity.ERROR else item for item in findings
    ]
    return [*milder, Finding(Severity.INFO, f"{text}; the plan counts with them.", key="dataset")]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith(('.', '?')) else '.'}"
