"""The least time that a compiled step can take on a TPU: a roofline (Williams, Waterman, Patterson 2009).

A step cannot be faster than its operations at the peak of the matrix units, its bytes at the peak of the HBM, or its
exchange at the peak of the interconnect, even if all three overlap and nothing else takes time. The peak is that of
bf16, in which a TPU by default also multiplies float32 numbers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..data.survey.survey import train_examples_of
from ..planning.advice import TILE, padded
from .program import CONTROL, STILL, HloProgram, Instruction, arrays_in, dimensions_in
from .result import Bound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..config.run_config import RunConfig
    from .topologies import Topology

_CHAIN = re.compile(r'channel_id=(\d+).*chain_id="(\d+)"')
_SLICES = re.compile(r"slice_sizes=\{([\d,]*)\}")
_NAMES_MEMORY = re.compile(r'custom_call_target="(?:AllocateBuffer|ConcatBitcast)"')  # moves nothing
_SLICING = {"dynamic-slice", "slice"}

# Collective operations, and how often a ring of n devices sends all of their bytes, in (n-1)/n.
_EXCHANGES = {
    "all-reduce": 2.0,
    "all-reduce-start": 2.0,
    "reduce-scatter": 1.0,
    "all-gather": 1.0,
    "all-gather-start": 1.0,
    "all-to-all": 1.0,
    "collective-permute": 1.0,
    "collective-permute-start": 1.0,
}


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
    exchanged = ring_bytes(trained, topology.devices)
    flops = HloProgram(lowered_text).flops / topology.devices
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
    # Of a run in two phases, those of the second alone.
    run_s = (config.epochs - config.fine_tuning.after_epochs) * epoch_s if epoch_s is not None else None
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
        run_s=run_s,
        is_partial=is_partial,
    )


@dataclass(frozen=True, slots=True)
class Move:
    """What one instruction moves in a step, in all rounds of the loops around it."""

    instruction: Instruction
    size: float  # bytes read from HBM and written to it
    singles: float  # numbers that are gathered one by one, from HBM or fast memory


def exchanged_bytes(program: HloProgram, devices: int) -> float:
    """Return the bytes that one device sends to others in a step, if each exchange goes round a ring."""
    if devices == 1:
        return 0.0
    total = 0.0
    chains: set[tuple[str, ...]] = set()
    for times, one in program.instructions():
        if one.operation not in _EXCHANGES:
            continue
        # An exchange in the background is written once for its start, each of its steps and its end.
        if chain := _CHAIN.search(one.rest):
            if chain.groups() in chains:
                continue
            chains.add(chain.groups())
        sizes = [array.size for array in arrays_in(one.result)]
        # The result of some starts names what goes in beside what comes out.
        names_both = one.operation in {"all-gather-start", "collective-permute-start"}
        size = max(sizes, default=0.0) if names_both else sum(sizes)
        whole = size * devices if one.operation == "reduce-scatter" else size
        total += times * _EXCHANGES[one.operation] * whole * (devices - 1) / devices
    return total


def hbm_bytes(program: HloProgram) -> float:
    """Return the bytes that a program reads from HBM and writes to it, if each operation moves its arrays once.

    The compiler's own "bytes accessed" also counts what stays in the chip's fast memory, which is most of a small
    model, and counts loops as if they went round once.
    """
    return sum(move.size for move in moves(program))


def moves(program: HloProgram) -> Iterator[Move]:
    """Yield what each instruction moves, outside of fusions: what happens inside of them stays in the chip."""
    computations = program.computations
    for name in program.control:
        times, known = program.times[name], dict[str, float]()
        for one in computations.get(name, ()):
            known[one.name] = sum(array.size for array in arrays_in(one.result) if array.is_in_hbm)
            if one.operation in STILL | CONTROL or one.operation.endswith("-done") or _NAMES_MEMORY.search(one.rest):
                continue
            inside = [part for called in one.called for part in computations.get(called, ())]
            inside = inside if one.operation == "fusion" else [one]
            places = {of: at for at, of in enumerate(one.operands) if known.get(of)}
            read = sum(_read(at, one, known[of], inside) for of, at in places.items())
            written = known[one.name]
            if one.operation in {"slice-start", "dynamic-slice-start"}:
                # Its result repeats the array that it reads a part of, before that part.
                part = arrays_in(one.result)[-2]
                read, written = min(read, part.size), part.size * part.is_in_hbm
            elif one.operation.endswith("-start"):
                # Its result repeats what it was given: what it writes is the rest.
                written = max(0.0, written - read)
            elif updates := [part for part in inside if part.operation == "dynamic-update-slice"]:
                by_name = {part.name: part for part in inside}
                new = [by_name.get(part.operands[1], part) for part in updates]  # what replaces a part
                written = min(written, sum(array.size for part in new for array in arrays_in(part.result)))
            yield Move(one, times * (read + written), times * sum(map(_single_numbers, inside)))


def _read(at: int, one: Instruction, size: float, inside: Sequence[Instruction]) -> float:
    """Return the bytes read of an operand: less than all of it if only parts are sliced, gathered or replaced."""
    names = {part.name for part in inside if part.operation == "parameter" and part.rest.startswith(f"{at})")}
    if one.operation != "fusion":
        names = {one.operands[at]}
    total = 0.0
    for part in inside:
        operands = part.operands
        if part.operation == "parameter" or not names & set(operands):
            continue
        if part.operation == "bitcast":
            names.add(part.name)
            continue
        is_part = operands[0] in names and not names & set(operands[1:])
        if is_part and part.operation in _SLICING:
            total += sum(array.size for array in arrays_in(part.result))
        elif is_part and part.operation == "gather":
            total += _gathered_bytes(part)
        elif not (is_part and part.operation == "dynamic-update-slice"):
            return size
    return min(size, total)


def _slices(gather: Instruction) -> tuple[float, list[int]]:
    """Return how many slices a gather reads, and the sides of each."""
    found = _SLICES.search(gather.rest)
    sides = [int(side) for side in found[1].split(",") if side] if found else []
    return math.prod(dimensions_in(gather.result)) / max(1, math.prod(sides)), sides


def _gathered_bytes(gather: Instruction) -> float:
    """Return the bytes that a gather reads: whole rows of 128 numbers, the width of a tile."""
    count, sides = _slices(gather)
    array = next(iter(arrays_in(gather.result)), None)
    if array is None or not sides or not count:
        return 0.0
    item = array.size / (count * math.prod(sides))
    return count * math.prod(sides[:-1]) * padded(sides[-1], TILE) * item


def _single_numbers(one: Instruction) -> float:
    count, sides = _slices(one) if one.operation == "gather" else (0.0, [])
    return count if sides and math.prod(sides) == 1 else 0.0
