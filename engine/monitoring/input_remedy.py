"""Advice on how to make a run's input faster, for its configuration and machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..config.catalog import is_user_reference
from ..machine.resources import find_resources
from ..machine.sources import this_machine

if TYPE_CHECKING:
    from ..accelerators.accelerator import Accelerator
    from ..config.options import Augmentation
    from ..config.run_config import RunConfig
    from ..input.pipeline import Pipeline

_FEW_CORES = 4


@dataclass(frozen=True, slots=True)
class InputFacts:
    """The facts that the advice depends on."""

    dataset: str
    asked: str  # the configuration's ``data.cache``
    cache: str  # where decoded examples are cached: ``memory``, ``disk`` or ``off``
    fills_cache: bool  # whether the first epoch puts them there
    changes: tuple[str, ...]  # random changes that the host makes to images
    accelerator_can_change: bool  # whether the accelerator could make them instead
    is_float: bool  # whether images are floating-point numbers
    cores: float  # cores that the process may use

    @property
    def is_own(self) -> bool:
        """Whether the dataset is a custom function."""
        return is_user_reference(self.dataset)

    @property
    def host(self) -> str:
        """The host's cores, for a sentence."""
        return f"{self.cores:g} {'core' if self.cores == 1 else 'cores'}"


def input_facts(config: RunConfig, data: Pipeline, accelerator: Accelerator) -> InputFacts:
    """Collect the facts of a run's input."""
    import tensorflow as tf

    changes = config.augmentation
    on_host = changes.is_active and not data.placement.in_model
    inputs = tf.nest.flatten(data.examples.train.element_spec[0])
    return InputFacts(
        dataset=config.dataset,
        asked=config.data.cache,
        cache=data.cache.kind,
        fills_cache=data.cache.kind != "off",
        changes=_names(changes) if on_host else (),
        accelerator_can_change=on_host and accelerator.name == "gpu" and not changes.without_layer,
        is_float=any(part.shape.rank == 3 and part.dtype.is_floating for part in inputs),
        cores=find_resources(this_machine()).cores,
    )


def _names(changes: Augmentation) -> tuple[str, ...]:
    values: dict[str, Any] = changes.model_dump(exclude={"placement"}, exclude_defaults=True)
    return tuple(values)


def input_remedy(facts: InputFacts, epoch: int) -> str:
    """Return what helps most against an input that limited an epoch, counted from 1."""
    if epoch == 1 and facts.fills_cache:
        return "The first epoch reads, decodes and caches the examples; later epochs read the cache."
    if facts.cache == "off":
        return _without_cache(facts)
    if facts.changes:
        return _with_changes(facts)
    if facts.cache == "disk":
        return (
            "Cached examples are read from a disk: set data.cache=memory if they fit, or TPU_CONSOLE_HOME to a folder "
            "on a faster disk."
        )
    if facts.is_float:
        return (
            f"{facts.dataset} gives images as floating-point numbers: uint8 needs a quarter of the bytes; "
            "a Rescaling layer in the model can divide by 255."
        )
    return _in_general(facts)


def _without_cache(facts: InputFacts) -> str:
    again = "Examples are read and decoded again in every epoch: "
    if facts.asked == "off":
        return f"{again}data.cache=auto caches them in the first one."
    if facts.is_own:
        return (
            f"{again}data.cache=memory or disk caches them; if they have no end, map with "
            f"num_parallel_calls=tf.data.AUTOTUNE in {facts.dataset}, because a Python generator uses one core."
        )
    if facts.dataset == "tfrecord":
        return (
            f"{again}a smaller data.options.image_size lets them be cached; or write the shards again from smaller "
            "images with `tpu-console tfrecord --shard-mb 100`, on a disk near the machine."
        )
    return (
        f"{again}a smaller data.options.image_size, or more memory or disk, lets them be cached; "
        "`tpu-console tfrecord` packs the files into shards, which are faster to read."
    )


def _with_changes(facts: InputFacts) -> str:
    made = f"Augmentation ({', '.join(facts.changes)}) runs on the host's {facts.host}:"
    if facts.accelerator_can_change:
        return f"{made} augmentation.placement=model moves that to the GPU."
    return f"{made} fewer augmentations, smaller images or more cores help."


def _in_general(facts: InputFacts) -> str:
    if facts.cores < _FEW_CORES:
        return f"Batches are prepared on the host's {facts.host}: more cores or fewer bytes per example help."
    return "Examples are in memory, and batching them takes the time: fewer bytes per example help."
