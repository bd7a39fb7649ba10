"""Traces a few steps of a run while it trains, and reads from the trace where their time went.

TensorFlow and JAX write XLA's ``XSpace`` (openxla/xprof, ``xplane.proto``): a plane for each device and one for the
host, with a line for each thread or stream, and events with a start and a duration on it. On a TPU and a GPU the
operations are those of the device's planes, else those that the host's threads execute. An operation names the Keras
layer it comes from, or the compiled program does, which the trace holds too.
"""

import math
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ..accelerators.backend import loaded_framework
from ..errors import DataError, one_line
from ..monitoring.input_rate import InputMeter, Taken
from ..preflight.hlo import as_named, layer_in, with_neighbors
from ..preflight.layers import all_layers
from ..runs.events import Profiled, Spent
from ..runs.recorder import Recorder
from ..storage.files import read_bytes
from .bridge import BridgeCallback, steps_of

DEFAULT_STEPS, _MOST_STEPS = 5, 100
_MOST_TRACES = 3  # kept in a run's folder
_MOST_ROWS = 30
_HOOKS = ("on_train_batch_begin", "on_train_batch_end")


class Profiler:
    """Traces steps, and times the user's own callbacks and the input; called between two executions."""

    def __init__(
        self, recorder: Recorder, bridge: BridgeCallback, own: Sequence[Any], meter: InputMeter | None
    ) -> None:
        self._recorder, self._bridge, self._own, self._meter = recorder, bridge, own, meter
        self._left = 0  # executions that are still to be traced
        self._callbacks: dict[str, float] = defaultdict(float)  # seconds by class

    def begin(self, model: Any, done: int, steps: int, request: str = "") -> None:
        """Trace the steps after the first `done` of the run, in whole executions; raise what the framework raises."""
        self._model, self._done, self._request = model, done, request
        self._each, self._steps = steps_of(model), 0
        self._folder = self._recorder.run.profile
        with self._bridge.standing_still():
            loaded_framework().start_trace(self._folder)
        self._callbacks.clear()
        for callback in self._own:
            for hook in _HOOKS:
                setattr(callback, hook, partial(self._timed, type(callback).__name__, getattr(callback, hook)))
        self._waited = self._meter.read() if self._meter is not None else Taken()
        self._left = -(-min(steps, _MOST_STEPS) // self._each)
        self._began = time.perf_counter()

    @property
    def is_tracing(self) -> bool:
        """Whether steps are being traced."""
        return self._left > 0

    def executed(self, *, is_last: bool = False) -> None:
        """Count an execution; after the last one, end the trace and report what it says."""
        if self._left:
            self._steps += self._each
            self._left -= 1
            if is_last or not self._left:
                self.end()

    def end(self) -> None:
        """End the trace, with the steps so far."""
        self._left, began = 0, self._began
        with self._bridge.standing_still():  # waits for the steps that were sent to the device
            seconds = time.perf_counter() - began
            waited = self._meter.read() - self._waited if self._meter is not None else Taken()
            for callback in self._own:
                for hook in _HOOKS:
                    delattr(callback, hook)
            self._bridge.leave_out(self._steps, seconds)
            self._recorder.emit(self._profiled(seconds, waited.wait_s))
            for trace in _traces(self._folder)[:-_MOST_TRACES]:
                shutil.rmtree(trace.parent, ignore_errors=True)

    def _profiled(self, seconds: float, wait_s: float) -> Profiled:
        epoch, _, elapsed_s = self._bridge.where()
        layers = {layer.name: sum(math.prod(one.shape) for one in layer.weights) for layer in all_layers(self._model)}
        optimizer, weights = str(getattr(self._model.optimizer, "name", "")), sum(layers.values()) or 1
        traces, trace, problem = list[Path](), Trace(), ""
        try:
            loaded_framework().stop_trace()
            traces = _traces(self._folder)
            trace = read_trace(read_bytes(traces[-1], LARGEST_TRACE), frozenset(layers), optimizer)
        except Exception as error:  # noqa: BLE001  whatever a profiler does, the run goes on
            problem = one_line(error, 300) or type(error).__name__
        steps = max(1, self._steps)
        left, spent = seconds, {}
        found = {
            Spent.COMPUTING: trace.computing - trace.exchange,
            Spent.EXCHANGE: trace.exchange,
            Spent.TRANSFER: trace.transfer,
            Spent.INPUT: wait_s,  # what happens beside computing costs nothing
            Spent.CALLBACKS: sum(self._callbacks.values()),
            Spent.HOST: math.inf,
        }
        for part, part_s in found.items():
            spent[part.value] = min(max(0.0, part_s), left) / steps
            left = max(0.0, left - part_s)
        return Profiled(
            epoch=epoch,
            step=self._done + self._steps,
            elapsed_s=elapsed_s,
            steps=self._steps,
            step_s=seconds / steps,
            spent=spent,
            layers=_most(trace.layers, steps),
            operations=_most(trace.operations, steps),
            callbacks=_most(self._callbacks, steps),
            optimizer=optimizer,
            weights=_most(layers, weights),
            trace=str(traces[-1].relative_to(self._recorder.run.path)) if traces else "",
            problem=problem,
            request=self._request,
            float32_s=None if trace.float32 is None else trace.float32 / steps,
            matrix_unit=trace.matrix_unit,
            bandwidth=trace.bandwidth,
        )

    def _timed(self, name: str, hook: Callable[..., None], *args: Any, **named: Any) -> None:
        began = time.perf_counter()
        hook(*args, **named)
        self._callbacks[name] += time.perf_counter() - began


def _most(figures: Mapping[str, float], divisor: int) -> dict[str, float]:
    """Return the largest figures, the largest first, divided by a number."""
    largest = sorted(figures.items(), key=lambda one: -one[1])[:_MOST_ROWS]
    return {name: value / divisor for name, value in largest}


def _traces(folder: Path) -> list[Path]:
    """Return the traces, the oldest first: each is in a folder that is named by its time."""
    return sorted(folder.glob("plugins/profile/*/*.xplane.pb"))


LARGEST_TRACE = 256 << 20
# Lines that repeat the operations of others in another way.
_DERIVED = {"Steps", "XLA Modules", "XLA TraceMe", "Async XLA Ops", "Framework Ops", "Framework Name Scope"}
_DERIVED |= {"Source code", "TensorFlow Ops", "TensorFlow Name Scope"}

_HOST_OPERATION = re.compile(r"(?:StatefulPartitionedCall/)*([\w.\-/]+):\w+")
_PROGRAM = "ThunkExecutor::Execute"  # on a CPU, XLA executes a program; its threads may wait for memory or a core
_EXCHANGE = re.compile(r"all-?reduce|all-?gather|reduce-?scatter|all-?to-?all|collective|psum|nccl", re.IGNORECASE)
_TRANSFER = re.compile(r"memcpy[hd]to[hd]|memcpy[hd]2[hd]|infeed|outfeed", re.IGNORECASE)
_HOST_MEMORY = re.compile(r"(?=.*S\(5\)).* copy-(?:start|done)\(")  # a TPU copies from or to the memory of its host
_DEVICE = re.compile(r"/device:[TG]PU:\d+")  # a chip's SparseCores have planes of their own
_PROGRAM_ID = re.compile(r"\((\d+)\)$")
_PRODUCTS, _FLOAT32, _HBM = {"convolution", "dot"}, 11, 1  # as XLA writes an operation, a type and a memory
_PLAIN = {"parameter", "constant", "tuple", "get-tuple-element"}  # what they are called is not what uses them
_S = 1e-12  # seconds in a picosecond

Span = tuple[int, int]  # a start and an end in picoseconds


class Trace(Struct):
    """Seconds of the devices in a trace, as means over them."""

    computing: float = 0.0  # in which a device executes an operation of the next two kinds
    exchange: float = 0.0  # of these, between replicas only
    transfer: float = 0.0  # in which nothing is computed, but data comes or goes
    # Computing by Keras layer; others have an empty name.
    layers: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    operations: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by kind, such as ``dot_general``
    # Of the computing: in float32, without the optimizer; 0 if most multiplications have another type, None without
    # the compiled programs.
    float32: float | None = None
    matrix_unit: float | None = None  # share of its peak that is reached while computing; None if no peak is known
    bandwidth: float | None = None  # the same of the device's memory


class _Known(Struct, frozen=True):
    """What a compiled program says about one of its operations."""

    scope: str = ""  # such as ``jit(train_step)/jvp(dense)/dot_general``; empty if unknown
    is_float32: bool | None = None  # whether it multiplies or, if it has no products, makes float32; None if unknown
    has_products: bool = False


class _Operation(Struct, frozen=True):
    name: str
    known: _Known = _Known()
    is_transfer: bool = False
    flops: float = 0.0  # of one execution, without the operations inside it; 0 if unknown
    size: float = 0.0  # likewise, bytes read from the device's memory and written to it
    span: Span = (0, 0)
    own: int = 0  # picoseconds without those of the operations inside it
    is_program: bool = False  # whether it is a whole program


def read_trace(data: bytes, layers: frozenset[str], optimizer: str = "") -> Trace:
    """Read a trace for the layers of a model and its optimizer; raise `DataError` if it is torn, or not a trace."""
    from ..compat.tensorflow import trace_messages

    spaces, programs = trace_messages()
    space = spaces.XSpace()
    try:
        space.ParseFromString(data)
    except Exception as error:  # of the package protobuf, which has no type of its own for it in every version
        raise DataError("The trace cannot be read.", why=one_line(error, 200)) from error
    known = _known(space, programs, optimizer)
    planes = [plane for plane in space.planes if _DEVICE.fullmatch(plane.name) and plane.lines]
    planes = planes or [plane for plane in space.planes if plane.name.startswith("/host:CPU")]  # it computes itself
    devices = [(plane, found) for plane in planes if (found := [*_of_plane(plane, known)])]
    trace, named = Trace(), as_named(layers, [one.known.scope for _, operations in devices for one in operations])
    named[optimizer] = optimizer
    for plane, operations in devices:
        _add(trace, operations, named, optimizer, len(devices), _stats(plane, plane.stats))
    return trace


def _add(
    trace: Trace, operations: Sequence[_Operation], named: dict[str, str], optimizer: str, devices: int, peaks: Any
) -> None:
    """Add a device's operations, as its part of the mean."""
    others = [one for one in operations if not one.is_transfer and not one.is_program]
    computes = [one for one in others if not _EXCHANGE.search(one.name)]
    exchange = _length([one.span for one in others]) - _length([one.span for one in computes])
    busy = _length([one.span for one in operations if not one.is_transfer])
    alone = busy - exchange
    trace.computing += busy * _S / devices
    trace.exchange += exchange * _S / devices
    trace.transfer += (_length([one.span for one in operations]) - busy) * _S / devices
    total, names = sum(one.own for one in computes) or 1, frozenset(named)
    for one in computes:  # several threads may compute at once
        seconds = one.own / total * alone * _S / devices
        trace.layers[named.get(layer_in(one.known.scope, names), "")] += seconds
        kind = one.known.scope.rpartition("/")[2] or one.name
        trace.operations[re.sub(r"([._]\d+)+$", "", kind)] += seconds
    if any(one.known.is_float32 is not None for one in computes):
        products = [one for one in computes if one.known.has_products]
        is_mostly = 2 * sum(one.own for one in products if one.known.is_float32) >= sum(one.own for one in products)
        wide = [one.own for one in computes if one.known.is_float32 and layer_in(one.known.scope, names) != optimizer]
        trace.float32 = (trace.float32 or 0.0) + is_mostly * sum(wide) / total * alone * _S / devices
    flops, size = (sum(getattr(one, name) for one in computes) for name in ("flops", "size"))
    if (flops or size) and (peak := peaks.get("peak_teraflops_per_second")):
        trace.matrix_unit = (trace.matrix_unit or 0.0) + flops / (peak * 1e12 * alone * _S) / devices
    if (flops or size) and (peak := peaks.get("peak_hbm_bw_gigabytes_per_second")):
        trace.bandwidth = (trace.bandwidth or 0.0) + size / (peak * 1e9 * alone * _S) / devices


def _of_plane(plane: Any, known: dict[tuple[str, str], _Known]) -> Iterator[_Operation]:
    is_host = plane.name.startswith("/host:")
    lines = [line for line in plane.lines if line.name == "XLA Ops"] or [
        line for line in plane.lines if line.name not in _DERIVED and not line.name.startswith(("tf_data", "python"))
    ]
    for line in lines:
        found = []
        for event in line.events:
            one = _operation(plane, event, known, is_host=is_host)
            if one is not None and event.duration_ps > 0:
                begin = line.timestamp_ns * 1000 + event.offset_ps
                found.append(replace(one, span=(begin, begin + event.duration_ps)))
        yield from _with_own(sorted(found, key=lambda one: (one.span[0], -one.span[1])))


def _with_own(operations: list[_Operation]) -> Iterator[_Operation]:
    """Take the time of the operations inside an operation, such as a loop's, from its own."""
    own = [one.span[1] - one.span[0] for one in operations]
    around: list[int] = []
    for at, one in enumerate(operations):
        begin, end = one.span
        while around and operations[around[-1]].span[1] <= begin:
            around.pop()
        if around:
            own[around[-1]] -= min(end, operations[around[-1]].span[1]) - begin
        around.append(at)
    for one, left in zip(operations, own, strict=True):
        is_alone = left == one.span[1] - one.span[0]
        yield replace(one, own=max(0, left)) if is_alone else replace(one, own=max(0, left), flops=0.0, size=0.0)


def _operation(plane: Any, event: Any, known: dict[tuple[str, str], _Known], *, is_host: bool) -> _Operation | None:
    metadata = plane.event_metadata[event.metadata_id]
    stats = _stats(plane, (*metadata.stats, *event.stats))
    if is_host and "hlo_op" not in stats:
        if metadata.name.startswith(_PROGRAM):
            return _Operation(metadata.name, is_program=True)
        found = _HOST_OPERATION.fullmatch(metadata.name)
        return _Operation(metadata.name, _Known(found[1])) if found else None
    name = stats.get("hlo_op") or metadata.display_name or metadata.name
    compiled = known.get((str(stats.get("hlo_module") or stats.get("program_id", "")), name), _Known())
    if scope := str(stats.get("tf_op", "")).partition(":")[0]:
        compiled = replace(compiled, scope=scope)
    is_transfer = bool(_TRANSFER.search(name) or _HOST_MEMORY.match(metadata.name))
    size = _hbm_bytes(stats.get("memory_access_breakdown", b""))
    return _Operation(name, compiled, is_transfer, float(stats.get("flops", 0)), size)


def _stats(plane: Any, stats: Iterable[Any]) -> dict[str, Any]:
    """Return statistics by their names; texts that a plane repeats are kept among its names."""
    found = {}
    for stat in stats:
        value = getattr(stat, kind) if (kind := stat.WhichOneof("value")) else ""
        value = plane.stat_metadata[value].name if kind == "ref_value" else value
        found[plane.stat_metadata[stat.metadata_id].name] = value
    return found


def _hbm_bytes(breakdown: bytes) -> float:
    """Return the bytes that an operation moves in HBM.

    They are in a message ``MemoryAccessBreakdown`` of XProf, of which Python has no class: for each access, the fields
    1 (operation), 2 (memory) and 3 (bytes). All that it contains is written as numbers of seven bits a byte.
    """
    numbers, number, shift = list[int](), 0, 0
    for byte in breakdown:
        number, shift = number | (byte & 127) << shift, shift + 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
    total, memory = 0.0, 0
    for tag, value in zip(numbers[::2], numbers[1::2], strict=False):
        if tag & 7 == 2:  # a further access begins
            memory = 0
        elif tag >> 3 == 2:
            memory = value
        elif tag >> 3 == 3 and memory == _HBM:
            total += value
    return total


def _known(space: Any, programs: Any, optimizer: str) -> dict[tuple[str, str], _Known]:
    """Return what is known of the operations of the compiled programs, by its name or number and theirs."""
    known: dict[tuple[str, str], _Known] = {}
    for plane in space.planes:
        if plane.name != "/host:metadata":
            continue
        for metadata in plane.event_metadata.values():
            number = _PROGRAM_ID.search(metadata.name)
            for stat in metadata.stats:
                if stat.bytes_value:
                    program = programs.HloProto.FromString(stat.bytes_value).hlo_module
                    inner = {part.id: part.instructions for part in program.computations}
                    for part in program.computations:
                        for name, found in _known_in(part.instructions, inner, optimizer).items():
                            known[program.name, name] = known[number[1] if number else "", name] = found
    return known


def _known_in(instructions: Any, inner: dict[int, Any], optimizer: str) -> dict[str, _Known]:
    scopes: dict[int, str] = {}
    types: dict[int, tuple[bool, bool]] = {}
    for one in instructions:
        inside = [one, *(part for called in one.called_computation_ids for part in inner.get(called, ()))]
        own = [part.metadata.op_name for part in inside if part is not one or one.opcode not in _PLAIN]
        scopes[one.id] = next(filter(None, own), "")
        products = [part.shape for part in inside if part.opcode in _PRODUCTS]
        made = products or one.shape.tuple_shapes or [one.shape]
        types[one.id] = any(shape.element_type == _FLOAT32 for shape in made), bool(products)
    read = {one.id: one.operand_ids[::-1] for one in instructions}  # a gradient comes after what it is of
    named = with_neighbors(scopes, read, optimizer)
    return {one.name: _Known(named.get(one.id, ""), *types[one.id]) for one in instructions}


def _length(spans: Sequence[Span]) -> int:
    """Return the picoseconds that at least one of the spans covers."""
    edges = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    covered = depth = 0
    for (at, step), (after, _) in pairwise(edges):
        depth += step
        covered += after - at if depth else 0
    return covered
