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
_REFUSALS = (
    re.compile(rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)"),
    re.compile(rf"Used {_SIZE} of {_SIZE} hbm"),
)
_UNREADABLE = "async-update instruction should have"
"""The error of jaxlib 0.10.2 on programs of libtpu 0.0.51, a version it does not match, that use a chip's SparseCores:
for table lookups on v5p, v6e and TPU7x, and sums of large gradients on TPU7x."""

_WITHOUT_SPARSE_CORES = {
    "xla_tpu_offload_gather_to_sparsecore": False,
    "xla_tpu_enable_offloading_scatter_to_sparsecore": False,
    "xla_tpu_enable_sparse_core_collective_offload_all_reduce": False,
}
_LONG_S = 30.0  # from which on something else is said while a step is compiled
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled step."""

    flops: float  # operations on one device, as the compiler counts them
    bytes_accessed: float  # bytes that its operations read and write on one device, fast memory included
    memory: Memory  # HBM of one device
    hlo_text: str  # the optimised program
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
        self.spares_sparse_cores = False
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
        began = time.perf_counter()
        try:
            stats, cost, text = self._compiled(lowered)
        except jax.errors.JaxRuntimeError as error:
            if (figures := refused_bytes(str(error))) is None:
                raise
            needed, limit = figures
            held = least_memory(model, bytes_of(model.optimizer.variables), batch, replica_batch, limit)
            memory = replace(held, temporaries=max(0, needed - held.peak), peak=needed, is_lower_bound=False)
            raise DoesNotFitError(memory, str(error)) from error
        seconds = time.perf_counter() - began
        held = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
        peak = held + stats.temp_size_in_bytes + stats.generated_code_size_in_bytes
        limit = self.topology.usable_hbm_bytes
        code, temporaries = stats.generated_code_size_in_bytes, stats.temp_size_in_bytes
        at_once = getattr(stats, "peak_memory_in_bytes", 0)
        if peak > limit and held < at_once < limit:
            # The program fits, so its temporaries are not all there at once: the compiler reuses their memory.
            temporaries, peak = at_once - held, at_once + code
        memory = least_memory(model, bytes_of(model.optimizer.variables), batch, replica_batch, limit)
        known = memory.peak + temporaries + code
        peak = max(peak, known)  # weights that the step does not read are in memory all the same
        memory = replace(
            memory, temporaries=temporaries, code=code, other=peak - known, peak=peak, is_lower_bound=False
        )
        return Program(float(cost["flops"]), float(cost["bytes accessed"]), memory, text, seconds)

    def _compiled(self, lowered: Any) -> tuple[Any, Any, str]:
        """Compile and return memory, costs and text of the program."""
        if not self.spares_sparse_cores:
            try:
                return _figures(lowered.compile())
            except jax.errors.JaxRuntimeError as error:
                if _UNREADABLE not in str(error):
                    raise
            self.spares_sparse_cores = True
        return _figures(lowered.compile(compiler_options=_WITHOUT_SPARSE_CORES))


def _figures(compiled: Any) -> tuple[Any, Any, str]:
    return compiled.memory_analysis(), compiled.cost_analysis(), compiled.as_text()


def refused_bytes(words: str) -> tuple[int, int] | None:
    """Read from the compiler's message how much HBM a program needs and how much there is; None if it says neither."""
    for pattern in _REFUSALS:
        if match := pattern.search(words):
            needed, needed_unit, there, there_unit = match.groups()
            return round(float(needed) * _UNITS[needed_unit]), round(float(there) * _UNITS[there_unit])
    return None


@dataclass(frozen=True, slots=True)
class Subject:
    """A built model, and what it is compiled with."""

    config: RunConfig
    batch: Batch
    model: Any
    compiler: Compiler
    report: Report


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


def about(subject: Subject, what: str) -> Subject:
    """Return the subject with reports that begin with what is being tried."""
    return replace(subject, report=lambda phase, expected_s: subject.report(f"{what}: {phase}", expected_s))


def lowered(subject: Subject, step: str) -> Any:
    """Trace the ``training`` or ``validation`` step and lower it.

    Raises:
        RefusedError: It cannot be traced.
    """
    subject.report(f"tracing the {step} step", None)
    with refusing(subject.model):
        return subject.compiler.lower(
            subject.model, subject.batch, subject.config.batch_size, is_training=step == "training"
        )


def program(subject: Subject, lowered: Any, step: str, if_long: str = "") -> Program:
    """Compile a lowered step; `if_long` is what else to report if that will take long.

    Raises:
        DoesNotFitError: It needs more memory than a device has.
        RefusedError: It cannot be compiled.
    """
    expected_s = subject.compiler.times.expected_s(step, lowered)
    subject.report(f"compiling the {step} step{if_long if expected_s >= _LONG_S else ''}", expected_s)
    with refusing(subject.model):
        made = subject.compiler.compile(lowered, subject.model, subject.batch, subject.config.batch_size)
    subject.compiler.times.note(step, made.seconds, expected_s)
    return made


def bound(subject: Subject, program: Program) -> Bound:
    """Return the least time of a training step."""
    compiler, model = subject.compiler, subject.model
    exchanged = None  # the program shows it
    if compiler.framework.step_note:
        exchanged = ring_bytes(bytes_of(model.trainable_variables), compiler.topology.devices)
    best = bound_of(
        subject.config, compiler.topology, program.flops, program.bytes_accessed, program.hlo_text, exchanged
    )
    optimizer = model.optimizer.name
    names = frozenset((optimizer, *(layer.name for layer in all_layers(model))))
    return replace(best, layers=best_by_layer(program.hlo_text, names, optimizer, compiler.topology))
