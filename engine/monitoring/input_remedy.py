"""What would make a run's input faster: advice that fits its configuration and its machine."""

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
    """What advice on the input depends on.

    Args:
        dataset: The configuration's ``dataset``.
        asked: The configuration's ``data.cache``.
        cache: Where decoded examples are kept: ``memory``, ``disk`` or ``off``.
        fills_cache: Whether the first epoch is what puts them there.
        changes: Random changes that the host makes to images.
        accelerator_can_change: Whether an accelerator that has the time for it could make them instead.
        is_float: Whether images come as floating-point numbers.
        cores: Cores that the process may keep busy.
    """

    dataset: str
    asked: str
    cache: str
    fills_cache: bool
    changes: tuple[str, ...]
    accelerator_can_change: bool
    is_float: bool
    cores: float

    @property
    def is_own(self) -> bool:
        """Whether the dataset is a function of the person's own."""
        return is_user_reference(self.dataset)

    @property
    def host(self) -> str:
        """The host's cores, for a sentence."""
        return f"{self.cores:g} {'core' if self.cores == 1 else 'cores'}"


def input_facts(config: RunConfig, data: Pipeline, accelerator: Accelerator) -> InputFacts:
    """Gather what is known of a run's input.

    Args:
        config: The configuration.
        data: Its pipeline.
        accelerator: What trains.
    """
    import tensorflow as tf

    changes = config.augmentation
    on_host = changes.is_active and not data.placement.in_model
    inputs = tf.nest.flatten(data.examples.train.element_spec[0])
    return InputFacts(
        dataset=config.dataset,
        asked=config.data.cache,
        cache=data.cache.kind,
        # Image files are decoded before training, whenever they are kept.
        fills_cache=data.cache.kind != "off" and data.examples.sift is None,
        changes=_names(changes) if on_host else (),
        accelerator_can_change=on_host and accelerator.name == "gpu" and not changes.without_layer,
        is_float=any(part.shape.rank == 3 and part.dtype.is_floating for part in inputs),
        cores=find_resources(this_machine()).cores,
    )


def _names(changes: Augmentation) -> tuple[str, ...]:
    values: dict[str, Any] = changes.model_dump(exclude={"placement"}, exclude_defaults=True)
    return tuple(values)


def input_remedy(facts: InputFacts, epoch: int) -> str:
    """Say what to do about an input that limits; what helps most comes first, and only that is said.

    Args:
        facts: What is known of the input.
        epoch: The epoch that it limits, from 1.
    """
    if epoch == 1 and facts.fills_cache:
        return "The first epoch reads and decodes the examples and keeps them; later ones read what is kept."
    if facts.cache == "off":
        return _without_cache(facts)
    if facts.changes:
        return _with_changes(facts)
    if facts.cache == "disk":
        return (
            "Kept examples are read from a disk: set data.cache=memory where they fit, or TPU_CONSOLE_HOME to a folder "
            "on a faster disk."
        )
    if facts.is_float:
        return (
            f"{facts.dataset} gives images as floating-point numbers: as uint8 they are a quarter of the bytes to "
            "shuffle and batch; a Rescaling layer in the model divides them by 255."
        )
    return _in_general(facts)


def _without_cache(facts: InputFacts) -> str:
    again = "Examples are read and decoded anew in every epoch: "
    if facts.asked == "off":
        return f"{again}data.cache=auto keeps them after the first one."
    if facts.is_own:
        return (
            f"{again}data.cache=memory or disk keeps them; where they have no end, let {facts.dataset} map with "
            "num_parallel_calls=tf.data.AUTOTUNE, because a Python generator works on one core."
        )
    if facts.dataset == "tfrecord":
        return (
            f"{again}a smaller data.options.image_size lets them be kept; else write the shards again with "
            "`tpu-console tfrecord --shard-mb 100` from images scaled down, nearer to the machine."
        )
    return (
        f"{again}a smaller data.options.image_size, or more memory or disk, lets them be kept; "
        "`tpu-console tfrecord` packs the files into shards that are read faster."
    )


def _with_changes(facts: InputFacts) -> str:
    made = f"Random changes of images ({', '.join(facts.changes)}) are made by the host's {facts.host}:"
    if facts.accelerator_can_change:
        return f"{made} augmentation.placement=model has the GPU make them."
    return f"{made} fewer changes, smaller images or more cores help."


def _in_general(facts: InputFacts) -> str:
    if facts.cores < _FEW_CORES:
        return f"Batches are prepared by the host's {facts.host}: more cores or fewer bytes an example help."
    return "Examples are kept in memory and batching them is what takes time: fewer bytes an example help."
