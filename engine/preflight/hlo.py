"""What a compiled step costs: the least time that it can take on a TPU, by layer too, and what of it is avoidable.

A step cannot be faster than its operations at the peak of the matrix units, its bytes at the peak of the HBM, or its
exchange at the peak of the interconnect, even if all three overlap and nothing else takes time: a roofline (Williams,
Waterman, Patterson 2009). The peak is that of bf16, in which a TPU by default also multiplies float32 numbers.

Bytes moved many times, changes of layout and calls to the host are avoidable. The instructions of the compiler's
optimized HLO name the Keras layers they come from; those that name none are skipped.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field

from ..data.kinds.table import train_examples_of
from ..errors import Finding, Severity, most_severe_first
from ..storage.files import size_text
from .layers import all_layers, count, has_open_sides, layer_text, products, shapes_of
from .program import STILL, HloProgram, Instruction, exchanged_bytes, flops_by_instruction, flops_of, hbm_bytes, moves
from .result import Bound

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .topologies import Topology

Key = TypeVar("Key")

_FAR_MORE = 30.0  # how many times its layer's data an operation must move to be reported
_LARGE_SHARE, _LARGE = 0.1, 50e6  # the least share of all bytes, and the least bytes, to report
_FORMATTING_SHARE = 0.25

_SCOPE = re.compile(r'op_name="([^"]*)"')
_TO_HOST = re.compile(r'custom_call_target="[^"]*(?:callback|host)', re.IGNORECASE)

_FORMATTING = ("copy", "transpose", "reshape")
_MOST_LAYERS = 100  # whose least time is kept
_HOPS = 4  # how far to look for the operation that one without a scope was made for
_MANY_SINGLES = 100_000  # the least numbers gathered one by one to report
_BY_ROWS = "Gather whole rows instead of single numbers, or do it in the input pipeline."
_AUGMENTATIONS = {
    "RandomRotation": "rotation",
    "RandomTranslation": "translation",
    "RandomZoom": "zoom",
    "RandomCrop": "crop",
}
"""Keras's layers that gather single numbers or do not compile, and what replaces each in the configuration."""


def bound_of(
    config: RunConfig,
    topology: Topology,
    flops: float,
    bytes_accessed: float,
    program: HloProgram,
    exchanged: float | None = None,
) -> Bound:
    """Return the bound of a compiled step, from its operations and bytes on one device as the compiler counts them.

    The compiler counts the body of a loop once; here it counts as often as the loop goes round, if that is known.
    `bytes_accessed` includes fast memory; `exchanged` bytes go to other devices, or are read from the program if None.
    """
    repeated, moved = program.repeated_flops, hbm_bytes(program)
    if bytes_accessed > 0 and not repeated:
        moved = min(bytes_accessed, moved)
    exchanged = exchanged_bytes(program, topology.devices) if exchanged is None else exchanged
    return _roofline(config, topology, flops + repeated, moved, exchanged, is_partial=program.has_unknown_loops)


def bound_of_shapes(config: RunConfig, topology: Topology, lowered_text: str, held_bytes: int, trained: int) -> Bound:
    """Return what can be said before a step is compiled: its arithmetic, weights and slots read once, and gradients.

    `lowered_text` is the step for all devices in XLA's short form; `trained` are the bytes of what is trained.
    """
    flops, exchanged = HloProgram(lowered_text).flops / topology.devices, ring_bytes(trained, topology.devices)
    return _roofline(config, topology, flops, held_bytes, exchanged, is_partial=True)


def ring_bytes(size: float, devices: int) -> float:
    """Return the bytes that a device sends for a sum over all devices that goes round a ring."""
    return 2.0 * size * (devices - 1) / devices


def _roofline(
    config: RunConfig, topology: Topology, flops: float, moved: float, exchanged: float, *, is_partial: bool
) -> Bound:
    seconds = {
        "compute": flops / topology.peak_flops,
        "memory": moved / topology.hbm_bytes_per_s,
        "exchange": exchanged / topology.link_bytes_per_s,
    }
    limited_by = max(seconds, key=lambda name: seconds[name])
    step_s = seconds[limited_by]
    steps = config.steps_in_epoch(train_examples_of(config), topology.devices)
    epoch_s = steps * step_s if steps else None
    return Bound(
        flops=flops,
        hbm_bytes=moved,
        all_reduce_bytes=exchanged,
        compute_s=seconds["compute"],
        memory_s=seconds["memory"],
        exchange_s=seconds["exchange"],
        limited_by=limited_by,
        step_s=step_s,
        images_per_s=config.batch_size * topology.devices / step_s,
        epoch_s=epoch_s,
        # Of a run in two phases, those of the second alone.
        run_s=None if epoch_s is None else (config.epochs - config.fine_tuning.after_epochs) * epoch_s,
        is_partial=is_partial,
    )


def pipeline_remedy(layer: Any) -> tuple[str, str]:
    """Return what to do instead of a layer that augments images, and its setting; empty if nothing replaces it."""
    key = _AUGMENTATIONS.get(type(layer).__name__, "")
    text = f"Remove the layer from the model and set augmentation.{key} instead: the input pipeline then does it, "
    return (f"{text}on the host.", f"augmentation.{key}") if key else ("", "")


class Moved(Struct):
    """What a step moves, by layer; what belongs to none has an empty name."""

    by_layer: Counter[str] = field(default_factory=Counter)  # bytes of all operations
    formatting: Counter[str] = field(default_factory=Counter)  # bytes of operations that only change the layout of data
    singles: Counter[str] = field(default_factory=Counter)  # numbers that are gathered one by one
    host: Counter[str] = field(default_factory=Counter)  # operations that involve the host


def program_findings(program: HloProgram, model: Any, replica_batch: int) -> tuple[Finding, ...]:
    """Return what to know about the optimized program of a training step, the most severe first."""
    layers = {layer.name: layer for layer in all_layers(model)}
    moved = moved_by(program, frozenset(layers))
    total = sum(moved.by_layer.values())
    found = []

    def who(name: str) -> str:
        return layer_text(layers[name]) if name in layers else "The step"

    for name in moved.host:
        text = f"{who(name)} calls the host in every step, and the TPU waits for it."
        remedy = "Remove prints, callbacks and Python functions from the model."
        found.append(Finding(Severity.WARNING, text, name, remedy))
    for name, singles in moved.singles.most_common():
        if singles >= _MANY_SINGLES:
            text = (
                f"{who(name)} reads {singles:,} numbers one by one in every step on each device, which a TPU is slow "
                "at: expect much more than the best case."
            )
            remedy, key = pipeline_remedy(layers.get(name))
            found.append(Finding(Severity.WARNING, text, name, remedy or _BY_ROWS, key))
    for name, size in moved.by_layer.most_common():
        if name not in layers or size < max(_LARGE, _LARGE_SHARE * total) or has_open_sides(layers[name], "output"):
            continue
        if size >= _FAR_MORE * (needed := _needed(layers[name], replica_batch)):
            text = (
                f"{who(name)} moves {size_text(size)} per step in each device's memory, {size / total:.0%} of the "
                f"whole step; its data is {size_text(needed)}."
            )
            found.append(Finding(Severity.WARNING, text, name, _BY_ROWS))
    if (size := sum(moved.formatting.values())) >= max(_LARGE, _FORMATTING_SHARE * total):
        name = next((name for name, _ in moved.formatting.most_common() if name in layers), "")
        most = f", the most for the layer '{name}'" if name else ""
        text = f"{size / total:.0%} of the bytes that a step moves only change the layout of data{most}."
        remedy = "Use batches in multiples of 128, sizes in multiples of 8 or 128, and fewer transpositions."
        found.append(Finding(Severity.INFO, text, name, remedy))
    return most_severe_first(found)


def _needed(layer: Any, batch: int) -> float:
    """Return the bytes of a layer's step in float32: input and output, forward and backward, and weights."""
    values = sum(count(shape) for side in ("input", "output") for shape in shapes_of(layer, side))
    values += sum(one.repeats * one.places * (one.contracted + one.columns) for one in products(layer))
    weights: int = sum(math.prod(weight.shape) for weight in layer.weights)
    return 4.0 * (3 * values * batch + 8 * weights)


def moved_by(program: HloProgram, names: frozenset[str]) -> Moved:
    """Return what a step moves by layer; the sum is the total of `program.hbm_bytes`."""
    moved, all_moves = Moved(), [*moves(program)]
    named = as_named(names, [_scope_of(move.instruction) for move in all_moves])
    parts = frozenset(named)
    for move in all_moves:
        one = move.instruction
        layer = named.get(layer_in(_scope_of(one), parts), "")
        if _calls_host(one):
            moved.host[layer] += 1
        moved.by_layer[layer] += int(move.size)
        moved.singles[layer] += int(move.singles)
        if one.operation in _FORMATTING or (one.operation == "fusion" and one.name.startswith(_FORMATTING)):
            moved.formatting[layer] += int(move.size)
    return moved


def best_by_layer(program: HloProgram, names: frozenset[str], optimizer: str, topology: Topology) -> dict[str, float]:
    """Return the least seconds that each layer's part of a step can take on a TPU, those of the slowest layers.

    As the bound of the whole step, it is the time of its operations or of its bytes, whichever is longer.
    """
    named = as_named(names, (_scope_of(one) for _, one in program.instructions()))
    parts = frozenset(named)
    layers: dict[str, str] = {}  # by the name of an instruction
    flops: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    for name in program.control:
        part = program.computations.get(name, [])
        own = {one.name: _scope_of(one) if one.operation not in STILL else "" for one in part}
        scopes = with_neighbors(own, {one.name: one.operands[::-1] for one in part}, optimizer)
        layers |= {one.name: named.get(layer_in(scopes.get(one.name, ""), parts), "") for one in part}
        counted = flops_by_instruction(part)
        for one in part:
            fused = [program.computations.get(called, []) for called in one.called if called not in program.control]
            all_of_it = counted.get(one.name, 0.0) + sum(map(flops_of, fused))
            flops[layers[one.name]] += int(program.times[name] * all_of_it)
    for move in moves(program):
        moved[layers[move.instruction.name]] += int(move.size)
    seconds = {
        name: max(flops[name] / topology.peak_flops, moved[name] / topology.hbm_bytes_per_s) for name in flops | moved
    }
    return dict(Counter(seconds).most_common(_MOST_LAYERS))


def with_neighbors(scopes: Mapping[Key, str], read: Mapping[Key, Sequence[Key]], optimizer: str) -> dict[Key, str]:
    """Return the scopes of operations, of which `scopes` has those that are known and `read` what they read.

    The compiler makes operations that have none, such as copies. They are counted with what uses their result, or else
    with what they read; with the optimizer only if there is nothing else, because it uses every gradient.
    """
    users: dict[Key, list[Key]] = {}
    for at, operands in read.items():
        for operand in operands:
            users.setdefault(operand, []).append(at)
    named = {at: text for at, text in scopes.items() if text}
    near: Mapping[Key, Sequence[Key]]
    for near, takes_optimizer in ((users, False), (read, False), (users, True)):
        for _ in range(_HOPS):
            for at in [at for at in scopes if at not in named]:
                texts = [named[other] for other in near.get(at, ()) if other in named]
                if found := next((one for one in texts if takes_optimizer or f"/{optimizer}/" not in one), ""):
                    named[at] = found
    return named


def _scope_of(one: Instruction) -> str:
    scope = _SCOPE.search(one.rest)
    return scope[1] if scope else ""


def _calls_host(one: Instruction) -> bool:
    if one.operation in {"send", "recv"}:
        return "is_host_transfer=true" in one.rest
    if one.operation == "custom-call":
        return _TO_HOST.search(one.rest) is not None
    return one.operation in {"infeed", "outfeed"}


def layer_in(scope: str, names: frozenset[str]) -> str:
    """Return the innermost layer that a scope names, such as ``jit(step)/transpose(jvp(base))/conv/dot``, or empty."""
    # If several operations were fused into one, the first scope counts.
    parts = re.split(r"[/();]", scope.partition(";")[0])
    return next((part for part in reversed(parts) if part in names), "")


def as_named(layers: frozenset[str], scopes: Iterable[str]) -> dict[str, str]:
    """Return the layers by their names in scopes."""
    # TensorFlow numbers a name that it has used before: ``conv2d_1`` may be ``conv2d`` if there is a ``conv2d_1_2``.
    parts = {part for scope in scopes for part in re.split(r"[/();]", scope)}
    named, taken = {}, set()
    for part in sorted(parts, key=len, reverse=True):
        if likely := [name for name in (part, re.sub(r"_\d+$", "", part)) if name in layers]:
            named[part] = next((name for name in likely if name not in taken), likely[0])
            taken.add(named[part])
    return named
