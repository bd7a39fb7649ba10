"""Lowers and compiles the steps of one model, and reports what is being done."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError, one_line
from .bound import bound_of
from .build import NotPossibleError
from .compile import Compiler, DoesNotFitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..config.run_config import RunConfig
    from .compile import Program
    from .inputs import Batch
    from .result import Bound
    from .topologies import Topology


@dataclass(frozen=True, slots=True)
class Subject:
    """A built model, and what it is compiled with."""

    config: RunConfig
    batch: Batch
    model: Any
    compiler: Compiler
    report: Callable[[str], None]


class RefusedError(Exception):
    """The model cannot be built, traced or compiled; `model` is None if it could not even be built."""

    def __init__(self, cause: Exception, model: Any) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.model = model


def started(config: RunConfig, topology: Topology) -> Compiler:
    """Return the compiler for a configuration and a TPU.

    Raises:
        ConsoleError: It cannot be started.
    """
    try:
        if not config.takes_tensorflow:
            return Compiler(topology)
        from .tensorflow_graph import GraphCompiler

        return GraphCompiler(topology)
    except Exception as error:
        traceback.print_exc()
        raise ConsoleError(
            f"The TPU compiler does not know {topology.name} or cannot be started.",
            why=one_line(error, 300),
            remedy="A newer JAX may know it. Try one in a separate environment: pip install 'jax[tpu]'",
        ) from error


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
    return replace(subject, report=lambda phase: subject.report(f"{what}: {phase}"))


def lowered(subject: Subject, step: str, replica_batch: int | None = None) -> Any:
    """Trace the ``training`` or ``validation`` step and lower it.

    Raises:
        RefusedError: It cannot be traced.
    """
    subject.report(f"tracing the {step} step")
    size = replica_batch or subject.config.batch_size
    with refusing(subject.model):
        return subject.compiler.lower(subject.model, subject.batch, size, is_training=step == "training")


def program(
    subject: Subject, lowered: Any, step: str, replica_batch: int | None = None, meanwhile: str = ""
) -> Program:
    """Compile a lowered step; `meanwhile` is what to report with that.

    Raises:
        DoesNotFitError: It needs more memory than a device has.
        RefusedError: It cannot be compiled.
    """
    subject.report(f"compiling the {step} step{meanwhile}")
    size = replica_batch or subject.config.batch_size
    with refusing(subject.model):
        return subject.compiler.compile(lowered, subject.model, subject.batch, size)


def bound(subject: Subject, program: Program, topology: Topology, size: int) -> Bound:
    """Return the least time of a training step of `size` examples per device."""
    return bound_of(
        subject.config.model_copy(update={"batch_size": size}),
        topology,
        program.flops,
        program.bytes_accessed,
        program.hlo_text,
        subject.compiler.exchanged(subject.model),
    )


def gib(size: float) -> str:
    """Write bytes of HBM for a sentence."""
    return f"{size / 2**20:.1f} MiB" if size < 0.1 * 2**30 else f"{size / 2**30:,.2f} GiB"
