"""Compiles the training and validation steps of a model for a TPU that this machine does not have.

`libtpu` describes the TPU's devices, for which a program can be compiled but not run (`jax.experimental.topologies`).
The framework that Keras has loaded lowers the step from shapes alone.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jax.experimental import topologies
from msgspec import Struct
from msgspec.structs import replace

from ..accelerators.backend import loaded_framework
from ..accelerators.framework import NotPossibleError
from ..errors import ConsoleError, one_line
from ..models.build import bytes_of
from .build import least_memory, specification
from .hlo import best_by_layer, bound_of, ring_bytes
from .layers import all_layers
from .program import HloProgram

if TYPE_CHECKING:
    Report = Callable[[str, float | None], None]
    """Is called with each phase as it begins, and the seconds that it will probably take; None if unknown."""

    from ..config.run_config import RunConfig
    from .choice import Batch
    from .result import Bound, Memory
    from .topologies import Topology

_SIZE = r"([\d.]+)([KMGTP]?)"
# As worded by libtpu 0.0.42 to 0.0.51, and by earlier versions. What it calls the need of "HLO temporaries" is all that
# a step needs: a table of 4.96 GiB with two slots and its gradient is refused with 19.84 GiB.
_REFUSALS = (re.compile(rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)"), re.compile(rf"Used {_SIZE} of {_SIZE} hbm"))
_ANY_STEP, _A_LINE = 0.3e9, 110e3
"""Bytes that compiling needs for any step, and for each line of the lowered step.

A little more than was measured with libtpu 0.0.51: ResNet-50 took 1.2 GB for 13,600 lines, DenseNet-121 2.8 GB for
27,900, a transformer 0.5 GB for 2,500.
"""
_SECONDS_PER_LINE = 60 / 13_600  # what ResNet-50 took on two cores with libtpu 0.0.51
_SECONDS_PER_GROUPED = 12.0
"""The most that each grouped convolution of ConvNeXtTiny took, with 64 large images per device and other work on two
cores; on quiet ones it was 6 to 10 s, and with 8 small images nothing."""
_LONG_S = 30.0  # from which on something else is said while a step is compiled
_UNITS = " KMGTP"


def shortage(lines: int, free: int) -> str:
    """Say that the free memory is too little to compile a step of this many lines; empty if it is enough."""
    needed = _ANY_STEP + _A_LINE * lines  # the libraries, 0.9 GB, are loaded already
    if needed <= free:
        return ""
    return (
        f"Compiling this model needs about {needed / 1e9:.1f} GB of this machine's memory, and {free / 1e9:.1f} GB are "
        "free."
    )


class CompileTimes:
    """How long compiling will probably take here, corrected by how long it took."""

    def __init__(self) -> None:
        self._took_s: dict[str, float] = {}  # by step, how long compiling it took last
        self._slowness = 1.0  # how many times as long as on two quiet cores that was

    def expected_s(self, step: str, lowered: Any) -> float:
        """Return the seconds for a lowered step: those of last time, or by its size on two cores."""
        if step in self._took_s:
            return self._took_s[step]
        lines: int = lowered.as_text().count("\n")
        grouped: int = lowered.as_text(dialect="hlo").count("_group_count=")  # such as depthwise convolutions
        return max(1.0, self._slowness * (lines * _SECONDS_PER_LINE + grouped * _SECONDS_PER_GROUPED))

    def note(self, step: str, seconds: float, expected_s: float) -> None:
        """Note how long compiling a step took."""
        self._took_s[step] = seconds
        self._slowness *= seconds / expected_s


class Program(Struct, frozen=True):
    """A compiled step."""

    flops: float  # operations on one device, as the compiler counts them
    bytes_accessed: float  # bytes that its operations read and write on one device, fast memory included
    memory: Memory  # HBM of one device
    hlo: HloProgram  # the optimized program
    seconds: float  # seconds that compiling took


class DoesNotFitError(Exception):
    """The compiler refused a program because of its size."""

    def __init__(self, memory: Memory, words: str) -> None:
        super().__init__(words)
        self.memory = memory


class Compiler:
    """The compiler for one TPU; raises `ConsoleError` if it cannot be started."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.framework = loaded_framework()
        self.times = CompileTimes()
        try:
            described = topologies.get_topology_desc(
                topology_name=topology.compiler_name, platform="tpu", **topology.compiler_options
            )
        except Exception as error:  # libtpu and JAX raise many kinds
            traceback.print_exc()
            raise ConsoleError(
                f"The TPU compiler does not know {topology.name} or cannot be started.",
                why=one_line(error, 300),
                remedy="A newer JAX may know it. Try one in a separate environment: pip install 'jax[tpu]'",
            ) from error
        self.devices: list[Any] = list(described.devices)


def _refused_bytes(words: str) -> tuple[int, int] | None:
    """Read from the compiler's message how much HBM a program needs and how much there is; None if it says neither."""
    found = next(filter(None, (pattern.search(words) for pattern in _REFUSALS)), None)
    if found is None:
        return None
    needed, there = (round(float(found[at]) * 1024 ** _UNITS.index(found[at + 1] or " ")) for at in (1, 3))
    return needed, there


class RefusedError(Exception):
    """The model cannot be built, traced or compiled; `model` is None if it could not even be built."""

    def __init__(self, cause: Exception, model: Any) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.model = model


@contextmanager
def refusing(model: Any = None) -> Iterator[None]:
    """Turn what custom layers and the compiler raise, which is anything, into a `RefusedError`."""
    try:
        yield
    except (DoesNotFitError, NotPossibleError):
        raise
    except Exception as error:
        raise RefusedError(error, model) from error


class Subject(Struct, frozen=True):
    """A built model, and what it is compiled with."""

    config: RunConfig
    batch: Batch
    model: Any
    compiler: Compiler
    report: Report = lambda _phase, _expected_s: None

    def about(self, what: str) -> Subject:
        """Return the subject with reports that begin with what is being tried."""
        return replace(self, report=lambda phase, expected_s: self.report(f"{what}: {phase}", expected_s))

    def lowered(self, step: str) -> Any:
        """Trace the ``training`` or ``validation`` step and lower it; raise `RefusedError` if it cannot be traced."""
        is_training = step == "training"

        def data(devices: int, sharding: Any) -> Any:
            return specification(self.batch, self.config.batch_size * devices, sharding, is_training=is_training)

        self.report(f"tracing the {step} step", None)
        with refusing(self.model):
            return self.compiler.framework.lower(self.model, data, self.compiler.devices, is_training=is_training)

    def program(self, lowered: Any, step: str, if_long: str = "") -> Program:
        """Compile a lowered step, or raise `DoesNotFitError` or `RefusedError`.

        `if_long` is what else to report if that will take long.
        """
        expected_s = self.compiler.times.expected_s(step, lowered)
        self.report(f"compiling the {step} step{if_long if expected_s >= _LONG_S else ''}", expected_s)
        with refusing(self.model):
            made = self._compiled(lowered)
        self.compiler.times.note(step, made.seconds, expected_s)
        return made

    def _compiled(self, lowered: Any) -> Program:
        slots, limit = bytes_of(self.model.optimizer.variables), self.compiler.topology.usable_hbm_bytes
        least = least_memory(self.model, slots, self.batch, self.config.batch_size, limit)
        began = time.perf_counter()
        try:
            compiled = lowered.compile()
        except Exception as error:
            if (figures := _refused_bytes(str(error))) is None:
                raise
            needed, limit = figures
            more = max(0, needed - least.peak)
            memory = replace(least, temporaries=more, peak=needed, limit=limit, is_lower_bound=False)
            raise DoesNotFitError(memory, str(error)) from error
        seconds = time.perf_counter() - began
        stats, cost = compiled.memory_analysis(), compiled.cost_analysis()
        code, temporaries = stats.generated_code_size_in_bytes, stats.temp_size_in_bytes
        held = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
        peak, at_once = held + temporaries + code, getattr(stats, "peak_memory_in_bytes", 0)
        if peak > limit and held < at_once < limit:
            # The program fits, so its temporaries are not all there at once: the compiler reuses their memory.
            temporaries, peak = at_once - held, at_once + code
        known = least.peak + temporaries + code
        peak = max(peak, known)  # weights that the step does not read are in memory all the same
        memory = replace(least, temporaries=temporaries, code=code, other=peak - known, peak=peak, is_lower_bound=False)
        hlo = HloProgram(compiled.as_text())
        return Program(float(cost["flops"]), float(cost["bytes accessed"]), memory, hlo, seconds)

    def training_program(self) -> Program:
        """Trace and compile the training step; raise as `lowered` and `program` do."""
        return self.program(self.lowered("training"), "training")

    def bound(self, program: Program) -> Bound:
        """Return the least time of a training step."""
        topology, optimizer = self.compiler.topology, self.model.optimizer.name
        exchanged = None  # the program shows it
        if self.compiler.framework.step_note:
            exchanged = ring_bytes(bytes_of(self.model.trainable_variables), topology.devices)
        best = bound_of(self.config, topology, program.flops, program.bytes_accessed, program.hlo, exchanged)
        names = frozenset((optimizer, *(layer.name for layer in all_layers(self.model))))
        return replace(best, layers=best_by_layer(program.hlo, names, optimizer, topology))
