"""What fills a device's memory, and the cheapest changes with which a step may fit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import keras

from ..config.batch import global_batch
from ..config.pieces import parse_piece
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
_SLOTTED = ("adam", "adamw", "adamax", "nadam", "lamb")  # optimizers with two slots per weight
_FEWER_SLOTS = {
    "lion": (0.5, "Lion needs a learning rate 3 to 10 times smaller than Adam's."),
    "adafactor": (1.0, "Adafactor needs another learning rate than Adam."),
}
"""What to take instead: the share of the slots that it saves, and what to know about it."""

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
    key: str = ""  # the setting; empty for another TPU
    remark: str = ""  # what to know about it


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
    """Yield changes with which a step that does not fit may fit, the cheapest first.

    `gradient` has the bytes of the largest table's, which any batch needs.
    """
    fixed = memory.parameters + memory.optimizer + gradient

    def change(text: str, place: Topology = topology, key: str = "", remark: str = "", **settings: Any) -> Change:
        return Change(text, config.model_copy(update=settings), place, key, remark)

    if config.precision == "float32":
        yield change("with precision=mixed_bfloat16", key="precision", precision="mixed_bfloat16")
    if parse_piece(config.optimizer.name).name in _SLOTTED:
        for name, (saved, remark) in _FEWER_SLOTS.items():
            if memory.peak - saved * memory.optimizer < memory.limit:
                optimizer = config.optimizer.model_copy(update={"name": name})
                yield change(f"with optimizer.name={name}", topology, "optimizer.name", remark, optimizer=optimizer)
    each = (memory.peak - fixed) / config.batch_size
    most = int((_ROOM * memory.limit - fixed) / each) if fixed < memory.limit and each > 0 else 0
    for size in dict.fromkeys(_rounded(int(most * share)) for share in (1.0, 0.8)):
        if 0 < size < config.batch_size:
            yield change(f"with batch_size={size}", key="batch_size", batch_size=size)
    if (more := _more_chips(topology, config.batch_size, most)) is not None:
        size = config.batch_size * topology.devices // more.devices
        same = f"the same {global_batch(size, more.devices):,} examples per step"
        yield change(f"on {more.name} with batch_size={size} ({same})", more, batch_size=size)
    if (larger := _larger(topology, memory.peak)) is not None:
        yield change(f"on {larger.name}", larger)


def _rounded(size: int) -> int:
    return size // _STEP * _STEP if size >= _STEP else size


def _more_chips(topology: Topology, batch: int, most: int) -> Topology | None:
    """Return the smallest TPU of the generation whose devices need no more than `most` examples for the same step."""
    wanted = batch * topology.devices
    enough = [
        one
        for one in TOPOLOGIES.values()
        if one.generation is topology.generation
        and one.devices > topology.devices
        and wanted % one.devices == 0
        and wanted // one.devices <= most
    ]
    return min(enough, key=lambda one: one.devices, default=None)


def _larger(topology: Topology, peak: int) -> Topology | None:
    """Return the TPU whose memory is enough with the most similar number of devices, then the least memory."""
    enough = [one for one in TOPOLOGIES.values() if one.usable_hbm_bytes > peak]
    return min(enough, key=lambda one: (abs(one.devices - topology.devices), one.usable_hbm_bytes), default=None)
