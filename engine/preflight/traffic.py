"""Reads from a compiled program what it moves over the interconnect, and in and out of HBM.

The text is the compiler's optimised HLO for one device: every device runs the same. Shapes are written as
``f32[128,64]{1,0:T(8,128)S(1)}``; ``S(1)`` means that the array is in the chip's own fast memory instead of HBM.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BITS = {"pred": 8, "s4": 4, "u4": 4, "c64": 64, "c128": 128}
_SHAPE = re.compile(r"\b(pred|bf16|c64|c128|[fsu]\d+\w*)\[([\d,]*)\](\{[^{}]*\})?")
_LINE = re.compile(r"^\s*(?:ROOT )?%([\w.-]+) = (.*)$")
_OPERATION = re.compile(r" ([a-z][a-z0-9-]*)\(")
_OPERAND = re.compile(r"%([\w.-]+)")
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


def arrays_in(text: str) -> list[Array]:
    """Return the arrays whose shapes a text names, such as the type of an instruction's result."""
    found = []
    for kind, sides, layout in _SHAPE.findall(text):
        count = 1
        for side in filter(None, sides.split(",")):
            count *= int(side)
        found.append(Array(count * _bits(kind) / 8, "S(" not in layout))
    return found


def exchanged_bytes(hlo_text: str, devices: int) -> float:
    """Return the bytes that one device sends to others in a step, if each exchange goes round a ring."""
    if devices == 1:
        return 0.0
    total = 0.0
    chains: set[tuple[str, ...]] = set()
    for line in hlo_text.splitlines():
        if (parts := _parts(line)) is None or parts[2] not in _EXCHANGES:
            continue
        # An exchange in the background is written once for its start, each of its steps and its end.
        if chain := _CHAIN.search(line):
            if chain.groups() in chains:
                continue
            chains.add(chain.groups())
        _, result, operation, _ = parts
        sizes = [array.size for array in arrays_in(result)]
        # The result of some starts names what goes in beside what comes out.
        names_both = operation in {"all-gather-start", "collective-permute-start"}
        size = max(sizes, default=0.0) if names_both else sum(sizes)
        whole = size * devices if operation == "reduce-scatter" else size
        total += _EXCHANGES[operation] * whole * (devices - 1) / devices
    return total


def hbm_bytes(hlo_text: str) -> float:
    """Return the bytes that the entry of a program reads from HBM and writes to it, if each array is moved once.

    The compiler's own "bytes accessed" also counts what stays in the chip's fast memory, which is most of a small
    model; loops are counted as if they went round once.
    """
    known: dict[str, float] = {}
    total = 0.0
    inside = False
    for line in hlo_text.splitlines():
        if line.startswith("ENTRY"):
            inside = True
        elif inside and line.startswith("}"):
            break
        if not inside or (parts := _parts(line)) is None:
            continue
        name, result, operation, operands = parts
        known[name] = sum(array.size for array in arrays_in(result) if array.is_in_hbm)
        if operation in STILL or operation.endswith("-done"):
            continue
        read = sum(known.get(operand, 0.0) for operand in set(operands))
        if operation in {"while", "conditional", "call"}:
            total += read
        elif operation.endswith("-start"):
            # Its result repeats what it was given: what it writes is the rest.
            total += read + max(0.0, known[name] - read)
        else:
            total += read + known[name]
    return total


def _parts(line: str) -> tuple[str, str, str, list[str]] | None:
    """Split an instruction into its name, its result's type, its operation and its operands."""
    if (match := _LINE.match(line)) is None:
        return None
    name, rest = match.groups()
    # The type of a result may hold brackets of its own; the operation is the first word before one.
    if (operation := _OPERATION.search(f" {_without_layouts(rest)}")) is None:
        return None
    word = operation[1]
    place = rest.find(f" {word}(")
    behind = rest[place + len(word) + 2 :]
    end = behind.find(")")
    return name, rest[:place], word, _OPERAND.findall(behind[:end])


def _without_layouts(text: str) -> str:
    return re.sub(r"\{[^{}]*\}", "", text)


def _bits(kind: str) -> int:
    if kind in _BITS:
        return _BITS[kind]
    digits = re.match(r"[a-z]+(\d+)", kind)
    return int(digits[1]) if digits else 32
