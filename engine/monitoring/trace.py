"""Reads where the time of a few training steps went, from the trace that TensorFlow and JAX write of them.

Both write XLA's ``XSpace`` (openxla/xprof, ``xplane.proto``): a plane for each device and one for the host, with a line
for each thread or stream, and events with a start and a duration on it. On a TPU and a GPU the operations are those of
the device's planes, else those that the host's threads execute. An operation names the Keras layer it comes from, or
the compiled program does, which the trace holds too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..errors import DataError, one_line
from ..preflight.hlo import layer_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LARGEST_TRACE = 256 << 20
_DERIVED = {"Steps", "XLA Modules", "XLA TraceMe", "Async XLA Ops", "Framework Ops", "Framework Name Scope"}
_DERIVED |= {"Source code", "TensorFlow Ops", "TensorFlow Name Scope"}
"""Lines that repeat the operations of others in another way."""

_HOST_OPERATION = re.compile(r"(?:StatefulPartitionedCall/)*([\w.\-/]+):\w+")
_EXCHANGE = re.compile(r"all-?reduce|all-?gather|reduce-?scatter|all-?to-?all|collective|psum|nccl", re.IGNORECASE)
_TRANSFER = re.compile(r"memcpy[hd]to[hd]|memcpy[hd]2[hd]|infeed|outfeed", re.IGNORECASE)
_PLAIN = {"parameter", "constant", "tuple", "get-tuple-element"}  # what they are called is not what uses them
_HOPS = 4  # how far to look for the operation that an unnamed one was made for
_S = 1e-12  # seconds in a picosecond

Span = tuple[int, int]
"""A start and an end in picoseconds."""


@dataclass(slots=True)
class Trace:
    """Seconds of the devices in a trace, as means over them."""

    computing: float = 0.0  # in which a device executes an operation of the next two kinds
    exchange: float = 0.0  # of these, between replicas only
    transfer: float = 0.0  # in which nothing is computed, but data comes or goes
    layers: dict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # computing by Keras layer; others have an empty name
    operations: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by kind, such as ``dot_general``


@dataclass(frozen=True, slots=True)
class _Operation:
    span: Span
    own: int  # picoseconds without those of the operations inside it
    name: str
    scope: str  # such as ``jit(train_step)/jvp(dense)/dot_general``; empty if unknown


def read_trace(data: bytes, layers: frozenset[str], optimizer: str = "") -> Trace:
    """Read a trace; `layers` are the names of the model's layers, to which the optimizer's is added.

    Raises:
        DataError: It is torn, or not a trace.
    """
    from ..compat.tensorflow import trace_messages

    spaces, programs = trace_messages()
    space = spaces.XSpace()
    try:
        space.ParseFromString(data)
    except Exception as error:  # of the package protobuf, which has no type of its own for it in every version
        raise DataError("The trace cannot be read.", why=one_line(error, 200)) from error
    scopes = _scopes(space, programs, optimizer)
    devices = [[*_of_plane(plane, scopes)] for plane in _planes(space)]
    devices = [found for found in devices if found]
    trace, named = Trace(), _as_named(layers, [one.scope for operations in devices for one in operations])
    named[optimizer] = optimizer
    for operations in devices:
        _add(trace, operations, named, len(devices))
    return trace


def _as_named(layers: frozenset[str], scopes: Sequence[str]) -> dict[str, str]:
    """Return the layers by their names in scopes.

    TensorFlow adds a number to a name that it has used before, so that ``conv2d_1`` may be the layer ``conv2d`` if
    there is a ``conv2d_1_2``.
    """
    parts = {part for scope in scopes for part in re.split(r"[/();]", scope)}
    named, taken = {}, set()
    for part in sorted(parts, key=len, reverse=True):
        if likely := [name for name in (part, re.sub(r"_\d+$", "", part)) if name in layers]:
            named[part] = next((name for name in likely if name not in taken), likely[0])
            taken.add(named[part])
    return named


def _add(trace: Trace, operations: Sequence[_Operation], named: dict[str, str], devices: int) -> None:
    """Add a device's operations, as its part of the mean."""
    others = [one for one in operations if not _TRANSFER.search(one.name)]
    computes = [one for one in others if not _EXCHANGE.search(one.name)]
    alone = _length([one.span for one in computes])
    busy = _length([one.span for one in others])
    trace.computing += busy * _S / devices
    trace.exchange += (busy - alone) * _S / devices
    trace.transfer += (_length([one.span for one in operations]) - busy) * _S / devices
    total, names = sum(one.own for one in computes) or 1, frozenset(named)
    for one in computes:  # several threads may compute at once
        seconds = one.own / total * alone * _S / devices
        trace.layers[named.get(layer_in(one.scope, names), "")] += seconds
        trace.operations[_kind(one)] += seconds


def _kind(one: _Operation) -> str:
    last = one.scope.rpartition("/")[2] or one.name
    return re.sub(r"([._]\d+)+$", "", last)


def _planes(space: Any) -> list[Any]:
    """Return the planes of the devices; the host's if it computes."""
    devices = [plane for plane in space.planes if plane.name.startswith(("/device:TPU:", "/device:GPU:"))]
    return [plane for plane in devices if plane.lines] or [
        plane for plane in space.planes if plane.name.startswith("/host:CPU")
    ]


def _of_plane(plane: Any, scopes: dict[tuple[str, str], str]) -> Iterator[_Operation]:
    is_host = plane.name.startswith("/host:")
    lines = [line for line in plane.lines if line.name == "XLA Ops"] or [
        line for line in plane.lines if line.name not in _DERIVED and not line.name.startswith(("tf_data", "python"))
    ]
    for line in lines:
        found = []
        for event in line.events:
            name, scope = _named(plane, event, scopes, is_host=is_host)
            if name and event.duration_ps > 0:
                begin = line.timestamp_ns * 1000 + event.offset_ps
                found.append((begin, begin + event.duration_ps, name, scope))
        yield from _with_own(sorted(found, key=lambda one: (one[0], -one[1])))


def _with_own(events: list[tuple[int, int, str, str]]) -> Iterator[_Operation]:
    """Take the time of the operations inside an operation, such as a loop's, from its own."""
    own = [end - begin for begin, end, _, _ in events]
    around: list[int] = []
    for at, (begin, end, _, _) in enumerate(events):
        while around and events[around[-1]][1] <= begin:
            around.pop()
        if around:
            own[around[-1]] -= min(end, events[around[-1]][1]) - begin
        around.append(at)
    for (begin, end, name, scope), left in zip(events, own, strict=True):
        yield _Operation((begin, end), max(0, left), name, scope)


def _named(plane: Any, event: Any, scopes: dict[tuple[str, str], str], *, is_host: bool) -> tuple[str, str]:
    """Return an event's operation and scope; empty if it is no operation."""
    metadata = plane.event_metadata[event.metadata_id]
    stats = {plane.stat_metadata[stat.metadata_id].name: _text(plane, stat) for stat in (*metadata.stats, *event.stats)}
    if operation := stats.get("hlo_op"):
        return operation, stats.get("tf_op") or scopes.get((stats.get("hlo_module", ""), operation), "")
    if not is_host:
        name = metadata.display_name or metadata.name
        return name, stats.get("tf_op", "").partition(":")[0]
    found = _HOST_OPERATION.fullmatch(metadata.name)
    return (metadata.name, found[1]) if found else ("", "")


def _text(plane: Any, stat: Any) -> str:
    if stat.WhichOneof("value") == "ref_value":
        return str(plane.stat_metadata[stat.ref_value].name)
    return str(stat.str_value)


def _scopes(space: Any, programs: Any, optimizer: str) -> dict[tuple[str, str], str]:
    """Return the scope of each operation of the compiled programs, by the names of program and operation."""
    scopes: dict[tuple[str, str], str] = {}
    for plane in space.planes:
        if plane.name != "/host:metadata":
            continue
        for metadata in plane.event_metadata.values():
            for stat in metadata.stats:
                if stat.bytes_value:
                    program = programs.HloProto.FromString(stat.bytes_value).hlo_module
                    inner = {part.id: part.instructions for part in program.computations}
                    for part in program.computations:
                        found = _scopes_in(part.instructions, inner, optimizer)
                        scopes |= {(program.name, name): scope for name, scope in found.items()}
    return scopes


def _scopes_in(instructions: Any, inner: dict[int, Any], optimizer: str) -> dict[str, str]:
    """Return the scopes of a computation's operations by name.

    The compiler makes operations that have none, such as copies. They are counted with what uses their result, or else
    with what they read; with the optimizer only if there is nothing else, because it uses every gradient.
    """
    scope: dict[int, str] = {}
    users: dict[int, list[int]] = defaultdict(list)
    for one in instructions:
        own = [one.metadata.op_name if one.opcode not in _PLAIN else ""]
        own += [part.metadata.op_name for called in one.called_computation_ids for part in inner.get(called, ())]
        scope[one.id] = next(filter(None, own), "")
        for operand in one.operand_ids:
            users[operand].append(one.id)
    read = {one.id: [*reversed(one.operand_ids)] for one in instructions}  # a gradient comes after what it is of
    named = {at: text for at, text in scope.items() if text}
    for near, takes_optimizer in ((users, False), (read, False), (users, True)):
        for _ in range(_HOPS):
            for at in scope.keys() - named.keys():
                texts = [named[other] for other in near.get(at, ()) if other in named]
                if found := next((one for one in texts if takes_optimizer or f"/{optimizer}/" not in one), ""):
                    named[at] = found
    return {one.name: named.get(one.id, "") for one in instructions}


def _length(spans: Sequence[Span]) -> int:
    """Return the picoseconds that at least one of the spans covers."""
    edges = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    covered = depth = 0
    for (at, step), (after, _) in pairwise(edges):
        depth += step
        covered += after - at if depth else 0
    return covered
