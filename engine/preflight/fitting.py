"""What fills a device's memory, and the cheapest changes with which a step may fit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import keras

from ..config.batch import global_batch
from .compile import bytes_of
from .hlo import layer_in
from .layers import all_layers, count, shapes_of
from .result import Filling
from .topologies import TOPOLOGIES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..config.run_config import RunConfig
    from .result import Memory
    from .topologies import Topology

_MOST_FILLINGS = 3
_ROOM = 0.97  # of the limit: a smaller batch aims below it, since memory does not shrink quite in step with it
_STEP = 8  # a TPU pads batches to multiples of it
_KEPT = ("dot_general", "convolution", "gather", "concatenate", "custom_call")
"""Operations whose results are in memory; the compiler computes others, such as sums, where they are needed."""
_TENSOR = re.compile(r"tensor<((?:\d+x)+)[a-z]+(\d+)")
_SCOPE = re.compile(r'loc\("([^"]*)"')


@dataclass(frozen=True, slots=True)
class Change:
    """A change with which a step may fit."""

    text: str  # what to change, after "It fits"
    config: RunConfig
    topology: Topology
    key: str = ""  # the setting, of which one change is enough; empty for another TPU


def what_fills(model: Any, replica_batch: int, memory: Memory, module: Any = None, devices: int = 1) -> list[Filling]:
    """Return what needs most of a device's memory, the largest first: weights, gradients, results, inner tensors.

    Weights count with their slots in the optimizer, which is exact. The others count as if all were kept for the
    backward pass; the compiler may fuse some or compute them again. `module` is the step as StableHLO.
    """
    trainable = bytes_of(model.trainable_variables)
    slots = memory.optimizer / trainable if trainable else 0.0
    inner = _inner_tensors(module, frozenset(layer.name for layer in all_layers(model)), replica_batch, devices)
    found = []
    for layer in all_layers(model):
        own, trained = bytes_of(layer.weights), bytes_of(layer.trainable_weights)
        held = round(own + slots * trained)
        width = 2 if "16" in str(layer.compute_dtype) else 4
        made = replica_batch * width * sum(count(shape) for shape in shapes_of(layer, "output"))
        size, sides = inner.get(layer.name, (0, ""))
        found += [
            Filling(layer.name, type(layer).__name__, what, size)
            for what, size in (
                ("weights and optimizer slots" if held > own else "weights", held),
                ("gradient", trained if held + trained <= memory.peak else 0),  # else it is applied as it is computed
                (f"tensor {sides}", size) if size > made else ("result", made),
            )
        ]
    return sorted(found, key=lambda one: -one.size)[:_MOST_FILLINGS]


def _inner_tensors(module: Any, names: frozenset[str], replica_batch: int, devices: int) -> dict[str, tuple[int, str]]:
    """Return the largest tensor that each layer computes in the forward pass: its bytes on a device, and its sides."""
    largest: dict[str, tuple[int, str]] = {}
    for text, where in _results(module.operation) if module is not None else ():
        scope, tensor = _SCOPE.match(where), _TENSOR.match(text)
        name = layer_in(scope[1], names) if scope and "transpose(" not in scope[1] else ""
        if not name or tensor is None:
            continue
        sides = [int(side) for side in tensor[1].split("x") if side not in {"", "1"}]
        whole = global_batch(replica_batch, devices)
        split = next((at for at, side in enumerate(sides) if side % whole == 0), None)
        if split is not None:
            sides[split] //= devices
        size = math.prod(sides) * int(tensor[2]) // 8
        largest[name] = max(largest.get(name, (0, "")), (size, "×".join(map(str, sides))))
    return largest


def _results(operation: Any) -> Iterator[tuple[str, str]]:
    """Yield the type of each tensor that a step keeps, and the scope that it was computed in."""
    for region in operation.regions:
        for block in region.blocks:
            for one in block.operations:
                if one.operation.name.rpartition(".")[2] in _KEPT:
                    yield from ((str(result.type), str(one.location)) for result in one.results)
                yield from _results(one)


def table_gradient(model: Any) -> int:
    """Return the bytes of the largest table's gradient, all of which is in memory before it is applied."""
    tables = (layer for layer in all_layers(model) if isinstance(layer, keras.layers.Embedding))
    return max((bytes_of(table.trainable_weights) for table in tables), default=0)


def why_no_batch_fits(memory: Memory, gradient: int = 0) -> tuple[str, str]:
    """Say that no batch is small enough, and what to do; empty if one may be. `gradient` is the largest table's."""
    is_table = 2 * gradient > memory.parameters
    held = memory.parameters + memory.optimizer + (gradient if is_table else 0)
    if held < memory.limit:
        return "", ""
    parts = (
        "weights, the optimizer's slots and the table's gradient" if is_table else "weights and the optimizer's slots"
    )
    text = (
        f"The {parts} alone need {held / 2**30:.1f} GiB. Every device holds all of them, so neither a smaller batch "
        "nor more chips of this kind help."
    )
    return text, "Use a table with fewer rows or columns: tables are not split over devices." if is_table else ""


def changes(config: RunConfig, memory: Memory, topology: Topology, gradient: int = 0) -> Iterator[Change]:
    """Yield changes with which a step that does not fit may fit, the cheapest first, other kinds of TPU last.

    `gradient` has the bytes of the largest table's, which any batch needs.
    """

    def change(key: str, value: object) -> Change:
        return Change(f"with {key}={value}", config.model_copy(update={key: value}), topology, key)

    if config.precision == "float32":
        yield change("precision", "mixed_bfloat16")
    fixed = memory.parameters + memory.optimizer + gradient
    each = max(0.0, (memory.peak - fixed) / config.batch_size)
    most = _most_examples(topology, fixed, each)
    for size in dict.fromkeys(_rounded(int(most * share)) for share in (1.0, 0.8)):
        if 0 < size < config.batch_size:
            yield change("batch_size", size)
    for place, size in _places(config, topology, fixed, each):
        same = f" with batch_size={size} (the same {global_batch(size, place.devices):,} examples per step)"
        text = f"on {place.name}{'' if size == config.batch_size else same}"
        yield Change(text, config.model_copy(update={"batch_size": size}), place)


def _rounded(size: int) -> int:
    return size // _STEP * _STEP if size >= _STEP else size


def _most_examples(place: Topology, fixed: float, each: float) -> int:
    """Return how many examples a device of a TPU has room for, if a step needs as much there as here."""
    room = _ROOM * place.usable_hbm_bytes - fixed
    return int(room / each) if room > 0 and each > 0 else 0


def _places(config: RunConfig, topology: Topology, fixed: float, each: float) -> list[tuple[Topology, int]]:
    """Return the smallest TPU of each kind that has room for the same step, and the examples per device there.

    The first has more chips of the same kind, if that helps; the others are sorted by how similar they are.
    """
    wanted = config.batch_size * topology.devices
    enough: dict[str, tuple[Topology, int]] = {}
    for one in sorted(TOPOLOGIES.values(), key=lambda one: one.devices):
        size = config.batch_size if wanted % one.devices else wanted // one.devices
        is_other = one.generation is not topology.generation or size < config.batch_size
        if is_other and size <= _most_examples(one, fixed, each):
            enough.setdefault(one.generation.name, (one, size))

    def difference(found: tuple[Topology, int]) -> tuple[bool, int, int]:
        one, _ = found
        is_other = one.generation is not topology.generation
        return is_other, abs(one.devices - topology.devices), one.usable_hbm_bytes

    return sorted(enough.values(), key=difference)
