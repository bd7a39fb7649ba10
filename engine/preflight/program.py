"""Reads a compiled program: how often a step executes each computation, its operations, and the bytes that it moves.

The text is the compiler's optimized HLO for one device: every device runs the same. Shapes are written as
``f32[128,64]{1,0:T(8,128)S(1)}``; ``S(1)`` means that the array is in the chip's own fast memory instead of HBM.

The compiler counts the body of a loop once. A loop over a sequence, such as an LSTM's, counts a number up to a
constant: the program shows its trip count. The end of other loops depends on values, so they count once, and
what is counted is a lower bound.
"""

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from ..planning import TILE, padded

_SHAPE = re.compile(r"\b(?:(pred)|bf(16)|c(64|128)|[fsu](\d+)\w*)\[([\d,]*)\](\{[^{}]*\})?")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) (?:\(.*)?\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (.+?) ([a-z][a-z0-9-]*)\((.*)$")
_OPERANDS = re.compile(r"%([\w.-]+)")
_END = re.compile(r"\)(?:,|$)")
_CALLS = re.compile(
    r"(?:body|condition|to_apply|calls|true_computation|false_computation)=%?([\w.-]+)|branch_computations=\{([^}]*)\}"
)
_TIMES = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_LOOP = re.compile(r"(body|condition)=%?([\w.-]+)")
_INDEX = re.compile(r"index=(\d+)")
_NUMBER = re.compile(r"^(-?\d+)\)")
_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"window=\{([^}]*)\}")
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_GROUPS = re.compile(r"(?:feature|batch)_group_count=(\d+)")
_CHAIN = re.compile(r'channel_id=(\d+).*chain_id="(\d+)"')
_SLICES = re.compile(r"slice_sizes=\{([\d,]*)\}")
_NAMES_MEMORY = re.compile(r'custom_call_target="(?:AllocateBuffer|ConcatBitcast)"')  # moves nothing

_COPIES = {"copy", "convert", "bitcast", "copy-done", "copy-start", "opt-barrier"}
CONTROL = frozenset(("while", "conditional", "call"))  # operations that only execute other computations

STILL = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id"))
"""Operations that move nothing: names of parts, and ends of what was counted at its start."""

_ARITHMETIC = re.compile(
    "add|subtract|multiply|divide|maximum|minimum|compare|select|and|or|xor|not|negate|abs|convert|clamp|remainder|"
    "floor|ceil|sign|round-nearest-even|shift-left|shift-right-logical|shift-right-arithmetic"
)
"""Operations that the compiler counts as one per number of the result."""

_EXCHANGES = {"all-reduce": 2.0, "reduce-scatter": 1.0, "all-gather": 1.0, "all-to-all": 1.0, "collective-permute": 1.0}
"""Collective operations, and how often a ring of n devices sends all of their bytes, in (n-1)/n."""


class Array(Struct, frozen=True):
    """One array of a program."""

    size: float  # its bytes, without padding
    is_in_hbm: bool  # whether it is in HBM instead of the chip's fast memory


class Instruction(Struct, frozen=True):
    """One line of a program: ``name = result operation(rest``."""

    name: str
    result: str
    operation: str
    rest: str

    @property
    def operands(self) -> list[str]:
        """The names of the instructions whose results it reads, as they are written."""
        text = _END.split(self.rest, maxsplit=1)[0]
        return _OPERANDS.findall(text) or text.split(", ")  # the short form has neither shapes nor percent signs

    @property
    def called(self) -> list[str]:
        """The names of the computations that it calls, such as the body of a loop."""
        found = _CALLS.findall(self.rest)
        return [name.strip(" %") for single, several in found for name in ([single] if single else several.split(","))]


class HloProgram:
    """The computations of a program, and how often a step executes each that it reaches."""

    def __init__(self, hlo_text: str) -> None:
        self.computations: dict[str, list[Instruction]] = {}
        self.times: Counter[str] = Counter()  # by the computation's name
        self.places: Counter[str] = Counter()  # how many instructions call it: what the compiler counts
        self.control: set[str] = set()  # the entry, and bodies of loops, branches and calls: no fusions
        self.has_unknown_loops = False  # whether a loop ends at a value, and so was counted once
        entry, current = "", ""
        for line in hlo_text.splitlines():
            if line[:1] not in {" ", "}"}:
                if begins := _COMPUTATION.match(line):
                    current = begins[2]
                    self.computations[current] = []
                    entry = current if begins[1] else entry
            elif current and (match := _INSTRUCTION.match(line)):
                self.computations[current].append(Instruction(*match.groups()))
        self.control.add(entry)
        self._visit(entry, 1)

    def _visit(self, name: str, times: int) -> None:
        self.times[name] += times
        self.places[name] += 1
        for one in self.computations.get(name, ()):
            trips: int | None = 1
            if one.operation == "while":
                trips = self._trip_count(one, self.computations[name])
                self.has_unknown_loops |= trips is None
            for inner in one.called:
                if one.operation in CONTROL:
                    self.control.add(inner)
                self._visit(inner, times * (1 if trips is None else trips))

    def _trip_count(self, loop: Instruction, around: Sequence[Instruction]) -> int | None:
        """Return how often a loop in a computation goes round; None if that depends on values."""
        if known := _TIMES.search(loop.rest):
            return int(known[1])
        called = dict(_LOOP.findall(loop.rest))
        parts = (self.computations.get(called.get(part, ""), ()) for part in ("condition", "body"))
        test, inside, outside = ({one.name: one for one in part} for part in (*parts, around))
        root = next(reversed(test.values()), None)
        if root is None or root.operation != "compare":
            return None
        left, right = (_source(test, name) for name in root.operands[:2])
        if "direction=GT" in root.rest:
            left, right = right, left
        elif "direction=LT" not in root.rest:
            return None
        counter, end = _INDEX.search(left.rest) if left is not None else None, _constant(right)
        if counter is None or end is None:
            return None
        added = _carried(inside, next(reversed(inside), ""), int(counter[1]))
        begin = _constant(_carried(outside, loop.operands[0], int(counter[1])))
        if begin is None or added is None or added.operation != "add":
            return None
        steps = [_constant(_source(inside, name)) for name in added.operands]
        step = next((step for step in steps if step is not None and step > 0), None)
        return None if step is None else max(0, math.ceil((end - begin) / step))

    def instructions(self) -> Iterator[tuple[int, Instruction]]:
        """Yield every instruction, and how often a step executes it."""
        for name, inside in self.computations.items():
            yield from ((self.times.get(name, 1), one) for one in inside)

    @property
    def flops(self) -> float:
        """The operations of a step, each loop counted as often as it goes round if that is known."""
        return sum(times * flops_of(self.computations.get(name, ())) for name, times in self.times.items())

    @property
    def repeated_flops(self) -> float:
        """The operations of loops that the compiler's count lacks, since there each loop goes round once."""
        more = {name: times - self.places[name] for name, times in self.times.items()}
        return sum(rounds * flops_of(self.computations.get(name, ())) for name, rounds in more.items() if rounds)


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


def _source(by_name: Mapping[str, Instruction], name: str) -> Instruction | None:
    """Follow copies back to what they copy."""
    one = by_name.get(name)
    while one is not None and one.operation in _COPIES:
        one = by_name.get(one.operands[0])
    return one


def _constant(one: Instruction | None) -> int | None:
    number = _NUMBER.search(one.rest) if one is not None and one.operation == "constant" else None
    return int(number[1]) if number else None


def _carried(by_name: Mapping[str, Instruction], name: str, at: int) -> Instruction | None:
    """Return what a tuple that a loop is given, or gives, has at a place."""
    given = _source(by_name, name)
    if given is None or given.operation != "tuple" or at >= len(given.operands):
        return None
    return _source(by_name, given.operands[at])


def flops_of(computation: Sequence[Instruction]) -> float:
    """Return the operations of one computation as the compiler counts them; functions such as exp do not count."""
    return sum(flops_by_instruction(computation).values())


def flops_by_instruction(computation: Sequence[Instruction]) -> dict[str, float]:
    """Return the operations of each instruction of a computation that has any, by its name."""
    sides = {one.name: dimensions_in(one.result) for one in computation}
    found = {}
    for one in computation:
        if one.operation in {"convolution", "dot"}:
            left, right = ([sides.get(name, []) for name in one.operands[:2]] + [[], []])[:2]
            found[one.name] = _convolution(one, left, right) if one.operation == "convolution" else _dot(one, left)
        elif _ARITHMETIC.fullmatch(one.operation):
            found[one.name] = math.prod(sides[one.name])
        elif one.operation == "reduce":
            found[one.name] = math.prod(sides.get(one.operands[0], [0]))
    return found


def _dot(one: Instruction, left: Sequence[int]) -> float:
    contracted = _CONTRACTED.search(one.rest)
    places = [int(at) for at in contracted[1].split(",") if at] if contracted else []
    return 2.0 * math.prod(dimensions_in(one.result)) * math.prod(left[at] for at in places if at < len(left))


def _convolution(one: Instruction, left: Sequence[int], right: Sequence[int]) -> float:
    """Count the products that are not with padding or between dilated numbers."""
    labels, result = _LABELS.search(one.rest), dimensions_in(one.result)
    if labels is None or len(labels[1]) != len(left) or len(labels[2]) != len(right):
        return 0.0
    window = dict(part.split("=", 1) for part in (_WINDOW.search(one.rest) or ["", ""])[1].split())
    groups = _GROUPS.search(one.rest)
    channels = right[labels[2].index("i")]
    total = 2.0 * channels * result[labels[3].index("b")] * result[labels[3].index("f")]
    if groups and groups[0].startswith("batch"):
        total /= int(groups[1])
    for number in range(len(left) - 2):
        digit = str(number)
        total *= _pairs(
            left[labels[1].index(digit)],
            right[labels[2].index(digit)],
            result[labels[3].index(digit)],
            {key: value.split("x")[number] for key, value in window.items() if number < len(value.split("x"))},
        )
    return total


def _pairs(given: int, kernel: int, made: int, window: Mapping[str, str]) -> int:
    """Return how many pairs of a place in the result and one in the kernel meet a number of the input."""
    stride, dilation, spread = (int(window.get(key, 1)) for key in ("stride", "rhs_dilate", "lhs_dilate"))
    low = int(window.get("pad", "0_0").split("_")[0])
    span = (given - 1) * spread + 1  # of the input with its dilation, without padding
    count = 0
    for first in range(-low, kernel * dilation - low, dilation):
        places = range(first, first + made * stride, stride)
        inside = places[bisect_left(places, 0) : bisect_left(places, span)]
        count += len(inside) if spread == 1 else sum(at % spread == 0 for at in inside)
    return count


class Move(Struct, frozen=True):
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
        kind = one.operation.removesuffix("-start")
        if kind not in _EXCHANGES:
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
        whole = size * devices if kind == "reduce-scatter" else size
        total += times * _EXCHANGES[kind] * whole * (devices - 1) / devices
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
            singles = sum(_gathered(part)[1] for part in inside if part.operation == "gather")
            yield Move(one, times * (read + written), times * singles)


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
        if is_part and part.operation in {"dynamic-slice", "slice"}:
            total += sum(array.size for array in arrays_in(part.result))
        elif is_part and part.operation == "gather":
            total += _gathered(part)[0]
        elif not (is_part and part.operation == "dynamic-update-slice"):
            return size
    return min(size, total)


def _gathered(gather: Instruction) -> tuple[float, float]:
    """Return the bytes that a gather reads, which are whole rows of 128 numbers, and its slices of a single number."""
    found = _SLICES.search(gather.rest)
    sides = [int(side) for side in found[1].split(",") if side] if found else []
    each, count = math.prod(sides), math.prod(dimensions_in(gather.result)) / max(1, math.prod(sides))
    if not (arrays := arrays_in(gather.result)) or not sides or not count * each:
        return 0.0, 0.0
    item = arrays[0].size / (count * each)
    return count * math.prod(sides[:-1]) * padded(sides[-1], TILE) * item, count if each == 1 else 0.0
