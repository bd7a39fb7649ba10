"""What fills a device's memory, and the cheapest changes with which a step may fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .compile import bytes_of
from .layers import all_layers, count, shapes_of
from .result import Filling
from .topologies import TOPOLOGIES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..config.run_config import RunConfig
    from .result import Memory
    from .topologies import Topology

_MOST_FILLINGS, _LEAST_SHARE = 3, 0.01
_ROOM = 0.97  # of the limit: a smaller batch aims below it, since memory does not shrink quite in step with it
_STEP = 8  # a TPU pads batches to multiples of it
_FEWER_SLOTS = {"adam": "lion", "adamw": "lion", "nadam": "lion", "adamax": "lion"}


def what_fills(model: Any, replica_batch: int, memory: Memory) -> tuple[Filling, ...]:
    """Return the layers that need most of a device's memory, the largest first.

    Weights count with their slots in the optimizer, which is exact. Results of layers count as if all were kept for the
    backward pass; the compiler may fuse some or compute them again.
    """
    trainable = bytes_of(model.trainable_variables)
    slots = memory.optimizer / trainable if trainable else 0.0
    found = []
    for layer in all_layers(model):
        own = bytes_of(layer.weights)
        held = round(own + slots * bytes_of(layer.trainable_weights))
        width = 2 if "16" in str(layer.compute_dtype) else 4
        made = replica_batch * width * sum(count(shape) for shape in shapes_of(layer, "output"))
        kind = type(layer).__name__
        found += [
            Filling(layer.name, kind, "weights and optimizer slots" if held > own else "weights", held),
            Filling(layer.name, kind, "result", made),
        ]
    largest = sorted(found, key=lambda one: -one.size)[:_MOST_FILLINGS]
    return tuple(one for one in largest if one.size >= _LEAST_SHARE * memory.peak)


def why_no_batch_fits(memory: Memory) -> str:
    """Say that no batch is small enough; empty if one may be."""
    held = memory.parameters + memory.optimizer
    if held < memory.limit:
        return ""
    return (
        f"The weights and the optimizer's slots alone need {held / 2**30:.1f} GiB. Every device holds all of them, so "
        "neither a smaller batch nor more chips of this kind help."
    )


def changes(config: RunConfig, memory: Memory, topology: Topology) -> Iterator[tuple[str, RunConfig, Topology]]:
    """Yield changes with which a step that does not fit may fit, the cheapest first: what to set, and the choice."""
    fixed = memory.parameters + memory.optimizer
    if config.precision == "float32":
        yield "precision=mixed_bfloat16", config.model_copy(update={"precision": "mixed_bfloat16"}), topology
    name = _FEWER_SLOTS.get(config.optimizer.name, "")
    if name and memory.peak - memory.optimizer / 2 < memory.limit:
        optimizer = config.optimizer.model_copy(update={"name": name})
        yield f"optimizer.name={name}", config.model_copy(update={"optimizer": optimizer}), topology
    each = (memory.peak - fixed) / config.batch_size
    if fixed < memory.limit and each > 0:
        most = int((_ROOM * memory.limit - fixed) / each)
        for share in (1.0, 0.8):
            size = int(most * share)
            size = size // _STEP * _STEP if size >= _STEP else size
            if 0 < size < config.batch_size:
                yield f"batch_size={size}", config.model_copy(update={"batch_size": size}), topology
    if (larger := _larger(topology, memory.peak)) is not None:
        yield f"--on {larger.name}", config, larger


def _larger(topology: Topology, peak: int) -> Topology | None:
    """Return the smallest TPU with as many devices whose memory is enough."""
    same = [one for one in TOPOLOGIES.values() if one.devices == topology.devices and one.usable_hbm_bytes > peak]
    return min(same, key=lambda one: one.usable_hbm_bytes, default=None)
