"""Reads from a compiled program what it moves over the interconnect, and in and out of HBM.

The text is the compiler's optimised HLO for one device: every device runs the same. Shapes are written as
``f32[128,64]{1,0:T(8,128)S(1)}``; ``S(1)`` means that the array is in the chip's own fast memory instead of HBM.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_SHAPE = re.compile(r"\b(?:(pred)|bf(16)|c(64|128)|[fsu](\d+)\w*)\[([\d,]*)\](\{[^{}]*\})?")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (.+?) ([a-z][a-z0-9-]*)\((.*)$")
_OPERANDS = re.compile(r"%([\w.-]+)")
_END = re.compile(r"\)(?:,|$)")
_CHAIN = re.compile(r'channel_id=(\d+).*chain_id="(\d+)"')

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
# Operations that move nothing: names of parts, and ends of what was counted at its start.
STILL = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id"))


@dataclass(frozen=True, slots=True)
class Array:
    """One array of a program."""

    size: float  # its bytes, without padding
    is_in_hbm: bool  # whether it is in HBM instead of the chip's fast memory


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a program: ``name = result operation(rest``."""

    name: str
    result: str
    operation: str
    rest: str

    @property
    def operands(self) -> set[str]:
        """The names of the instructions whose results it reads."""
        return set(_OPERANDS.findall(_END.split(self.rest, maxsplit=1)[0]))


def read_program(hlo_text: str) -> tuple[str, dict[str, list[Instruction]]]:
    """Split a program into its computations; return the name of the entry computation, and all of them."""
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", ""
    for line in hlo_text.splitlines():
        if line[:1] not in {" ", "}"}:
            if begins := _COMPUTATION.match(line):
                current = begins[2]
                computations[current] = []
                entry = current if begins[1] else entry
        elif current and (match := _INSTRUCTION.match(line)):
            computations[current].append(Instruction(*match.groups()))
    return entry, computations


def arrays_in(text: str) -> list[Array]:
    """Return the arrays whose shapes a text names, such as the type of an instruction's result."""
    found = []
    for is_bool, bfloat, complex_bits, bits, sides, layout in _SHAPE.findall(text):
        width = 8 if is_bool else int(bfloat or complex_bits or bits)
        count = math.prod(int(side) for side in sides.split(",") if side)
        found.append(Array(count * width / 8, "S(" not in layout))
    return found


def exchanged_bytes(hlo_text: str, devices: int) -> float:
    """Return the bytes that one device sends to others in a step, if each exchange goes round a ring."""
    if devices == 1:
        return 0.0
    total = 0.0
    chains: set[tuple[str, ...]] = set()
    for one in (one for computation in read_program(hlo_text)[1].values() for one in computation):
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
        total += _EXCHANGES[one.operation] * whole * (devices - 1) / devices
    return total


def hbm_bytes(hlo_text: str) -> float:
    """Return the bytes that the entry of a program reads from HBM and writes to it, if each array is moved once.

    The compiler's own "bytes accessed" also counts what stays in the chip's fast memory, which is most of a small
    model; loops are counted as if they went round once.
    """
    known: dict[str, float] = {}
    total = 0.0
    entry, computations = read_program(hlo_text)
    for one in computations.get(entry, ()):
        known[one.name] = sum(array.size for array in arrays_in(one.result) if array.is_in_hbm)
        if one.operation in STILL or one.operation.endswith("-done"):
            continue
        read = sum(known.get(operand, 0.0) for operand in one.operands)
        if one.operation in {"while", "conditional", "call"}:
            total += read
        elif one.operation.endswith("-start"):
            # Its result repeats what it was given: what it writes is the rest.
            total += read + max(0.0, known[one.name] - read)
        else:
            total += read + known[one.name]
    return total
