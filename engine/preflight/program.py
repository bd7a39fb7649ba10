"""Reads a compiled program.

The text is the compiler's optimised HLO for one device: every device runs the same. Shapes are written as
``f32[128,64]{1,0:T(8,128)S(1)}``; ``S(1)`` means that the array is in the chip's own fast memory instead of HBM.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_SHAPE = re.compile(r"\b(?:(pred)|bf(16)|c(64|128)|[fsu](\d+)\w*)\[([\d,]*)\](\{[^{}]*\})?")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) (?:\(.*)?\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (.+?) ([a-z][a-z0-9-]*)\((.*)$")
_OPERANDS = re.compile(r"%([\w.-]+)")
_END = re.compile(r"\)(?:,|$)")
_CALLS = re.compile(
    r"(?:body|condition|to_apply|calls|true_computation|false_computation)=%?([\w.-]+)|branch_computations=\{([^}]*)\}"
)

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
    def ordered_operands(self) -> list[str]:
        """The names of the instructions whose results it reads, as they are written."""
        text = _END.split(self.rest, maxsplit=1)[0]
        return _OPERANDS.findall(text) or text.split(", ")  # the short form has neither shapes nor percent signs

    @property
    def operands(self) -> set[str]:
        """The names of the instructions whose results it reads."""
        return set(self.ordered_operands)


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


def dimensions_in(text: str) -> list[int]:
    """Return the sides of the first array that a text names; empty for a single number, or for none."""
    found = _SHAPE.search(text)
    return [int(side) for side in found[5].split(",") if side] if found else []


def called_computations(one: Instruction) -> list[str]:
    """Return the names of the computations that an instruction calls, such as the body of a loop."""
    found = _CALLS.findall(one.rest)
    return [name.strip(" %") for single, several in found for name in ([single] if single else several.split(","))]
