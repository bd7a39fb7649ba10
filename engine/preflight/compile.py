"""Compiles the training and validation steps of a model for a TPU that this machine does not have.

`libtpu` describes the TPU's devices, for which a program can be compiled but not run (`jax.experimental.topologies`).
The framework that Keras has loaded lowers the step from shapes alone.
"""

from __future__ import annotations

import re
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
from jax.experimental import topologies

from ..accelerators.framework import NotPossibleError
from ..accelerators.table import loaded_framework
from ..errors import ConsoleError, one_line
from ..models.build import bytes_of
from .bound import bound_of, ring_bytes
from .build import least_memory, specification
from .compiling import CompileTimes
from .hlo import best_by_layer
from .layers import all_layers
from .program import HloProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Report = Callable[[str, float | None], None]
    """Is called with each phase as it begins, and the seconds that it will probably take; None if unknown."""

    from ..config.run_config import RunConfig
    from .inputs import Batch
    from .result import Bound, Memory
    from .topologies import Topology


_SIZE = r"([\d.]+)([KMGTP]?)"
# As worded by libtpu 0.0.42 to 0.0.51, and by earlier versions. What it calls the need of "HLO temporaries" is all that
# a step needs: a table of 4.96 GiB with two slots and its gradient is refused with 19.84 GiB.
_REFUSALS = (re.compile(rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)"), re.compile(rf"Used {_SIZE} of {_SIZE} hbm"))
_LONG_S = 30.0  # from which on something else is said while a step is compiled
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled step."""

    flops: float  # operations on one device, as the compiler counts them
    bytes_accessed: float  # bytes that its operations read and write on one device, fast memory included
    memory: Memory  # HBM of one device
    hlo: HloProgram  # the optimised program
    seconds: float  # seconds that compiling took


class DoesNotFitError(Exception):
    """The compiler refused a program because of its size."""

    def __init__(self, memory: Memory, words: str) -> None:
        super().__init__(words)
        self.memory = memory
        self.words = words


class Compiler:
    """Compiles steps for one TPU; raises `ConsoleError` if it cannot be started."""

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

    def lower(self, model: Any, batch: Batch, replica_batch: int, *, is_training: bool = True) -> Any:
        """Trace a step and lower it; raises anything that custom layers raise."""

        def data(devices: int, sharding: Any) -> Any:
            return specification(batch, replica_batch * devices, sharding, is_training=is_training)

        return self.framework.lower(model, data, self.devices, is_training=is_training)

    def compile(self, lowered: Any, model: Any, batch: Batch, replica_batch: int) -> Program:
        """Compile a lowered step.

        Raises:
            DoesNotFitError: It needs more HBM than a device has.
            Exception: The compiler refused it for another reason.
        """
        slots, limit = bytes_of(model.optimizer.variables), self.topology.usable_hbm_bytes
        least = least_memory(model, slots, batch, replica_batch, limit)
        began = time.perf_counter()
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            if (figures := refused_bytes(str(error))) is None:
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


def refused_bytes(words: str) -> tuple[int, int] | None:
    """Read from the compiler's message how much HBM a program needs and how much there is; None if it says neither."""
    for pattern in _REFUSALS:
        if match := pattern.search(words):
            needed, needed_unit, there, there_unit = match.groups()
            return round(float(needed) * _UNITS[needed_unit]), round(float(there) * _UNITS[there_unit])
    return None


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


@dataclass(frozen=True, slots=True)
class Subject:
    """A built model, and what it is compiled with."""

    config: RunConfig
    batch: Batch
    model: Any
    compiler: Compiler
    report: Report

    def about(self, what: str) -> Subject:
        """Return the subject with reports that begin with what is being tried."""
        return replace(self, report=lambda phase, expected_s: self.report(f"{what}: {phase}", expected_s))

    def lowered(self, step: str) -> Any:
        """Trace the ``training`` or ``validation`` step and lower it.

        Raises:
            RefusedError: It cannot be traced.
        """
        self.report(f"tracing the {step} step", None)
        with refusing(self.model):
            is_training = step == "training"
            return self.compiler.lower(self.model, self.batch, self.config.batch_size, is_training=is_training)

    def program(self, lowered: Any, step: str, if_long: str = "") -> Program:
        """Compile a lowered step; `if_long` is what else to report if that will take long.

        Raises:
            DoesNotFitError: It needs more memory than a device has.
            RefusedError: It cannot be compiled.
        """
        expected_s = self.compiler.times.expected_s(step, lowered)
        self.report(f"compiling the {step} step{if_long if expected_s >= _LONG_S else ''}", expected_s)
        with refusing(self.model):
            made = self.compiler.compile(lowered, self.model, self.batch, self.config.batch_size)
        self.compiler.times.note(step, made.seconds, expected_s)
        return made

    def training_program(self) -> Program:
        """Trace and compile the training step; raises as `lowered` and `program` do."""
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
