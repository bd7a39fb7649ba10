"""Reaches the verdict on one choice: builds the model, lowers and compiles its steps, and says what that means."""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError, one_line
from ..findings import Finding, Severity, most_severe_first
from ..machine.resources import free_memory_bytes
from ..planning.example_count import train_examples_of
from .bound import bound_of, host_pace
from .build import augmentation_names, build
from .cache import versions
from .compile import Compiler, DoesNotFitError, NotPossibleError, bytes_of
from .compile_memory import shortage
from .explain import changing_shapes, explain_refusal
from .hlo import program_findings
from .inputs import UnknownShapesError, batch_of
from .padding import find_waste
from .result import Memory, Outcome
from .search import LARGEST, largest_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..config.run_config import RunConfig
    from .choices import Choice
    from .compile import Program
    from .inputs import Batch
    from .result import Verdict
    from .topologies import Topology


_INTERNAL_ERROR = "RET_CHECK failure"
"""How XLA reports a failed check of its own, such as jaxlib's when it reads a program from libtpu."""

_COMPILER_ERRORS = ("JaxRuntimeError", "XlaRuntimeError", "InvalidArgumentError")


@dataclass(frozen=True, slots=True)
class _Subject:
    """A built model, and what it is compiled with."""

    config: RunConfig
    batch: Batch
    model: Any
    compiler: Compiler
    report: Callable[[str], None]


class _RefusedError(Exception):
    """The model cannot be built, traced or compiled; `model` is None if it could not even be built."""

    def __init__(self, step: str, cause: Exception, model: Any = None) -> None:
        super().__init__(step)
        self.step = step
        self.cause = cause
        self.model = model


def reach_verdict(choice: Choice, report: Callable[[str], None], *, search: bool = False) -> Verdict:
    """Compile the steps of a choice and return the verdict; `report` is called with each phase as it begins.

    Raises:
        ConsoleError: The compiler cannot be started.
    """
    empty, config, topology = choice.undecided(), choice.config, choice.topology
    try:
        batch = batch_of(config)
    except UnknownShapesError as error:
        return replace(empty, reason=str(error))
    compiler = _started(config, topology)
    try:
        report("building the model")
        with _refusing("The model"):
            model = build(config, batch, topology.devices)
        if changing := changing_shapes(model):
            return replace(empty, outcome=Outcome.DOES_NOT_COMPILE, reason=changing[0].text, findings=changing)
        return _compiled(empty, _Subject(config, batch, model, compiler, report), topology, search=search)
    except NotPossibleError as error:
        return replace(empty, reason=str(error))
    except _RefusedError as refusal:
        return _refused(empty, refusal)


def _started(config: RunConfig, topology: Topology) -> Compiler:
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
def _refusing(step: str, model: Any = None) -> Iterator[None]:
    """Turn what custom layers and the compiler raise, which is anything, into a `_RefusedError`."""
    try:
        yield
    except (DoesNotFitError, NotPossibleError):
        raise
    except Exception as error:
        raise _RefusedError(step, error, model) from error


def _compiled(empty: Verdict, subject: _Subject, topology: Topology, *, search: bool) -> Verdict:
    """Compile both steps and make the verdict."""
    config = subject.config
    lowered = _lowered(subject, "training")
    if reason := shortage(lowered.as_text().count("\n"), free_memory_bytes()):
        return replace(empty, reason=reason)
    try:
        program = _program(subject, lowered, "training")
        _program(subject, _lowered(subject, "validation"), "validation")
    except DoesNotFitError as error:
        return _too_large(empty, subject, error, topology, search=search)
    memory = program.memory
    bound = bound_of(
        config,
        topology,
        program.flops,
        program.bytes_accessed,
        program.hlo_text,
        subject.compiler.exchanged(subject.model),
    )
    given = augmentation_names(subject.model, config)
    findings = [*_assumptions(subject), *program_findings(program.hlo_text, subject.model, given)]
    if bound.is_partial:
        text = (
            "A loop of the model ends at a value, so it counts once: the operations and times are the least possible."
        )
        findings.append(Finding(Severity.INFO, text))
    if not config.takes_tensorflow and not any(one.severity is Severity.WARNING for one in findings):
        findings += host_pace(bound)
    verdict = replace(
        empty,
        outcome=Outcome.FITS,
        reason=f"It takes {_gib(memory.peak)} of each device's {_gib(memory.limit)}: {memory.headroom:.0%} stays free.",
        memory=memory,
        bound=bound,
        wastes=find_waste(subject.model, config.batch_size, config.precision),
        findings=most_severe_first(findings),
        compile_s=program.seconds,
    )
    return replace(verdict, largest_batch=_search(subject, memory, topology, fits=True)) if search else verdict


def _too_large(
    empty: Verdict, subject: _Subject, error: DoesNotFitError, topology: Topology, *, search: bool
) -> Verdict:
    memory = error.memory
    largest = _search(subject, memory, topology, fits=False) if search else None
    return replace(
        empty,
        outcome=Outcome.DOES_NOT_FIT,
        reason=f"It needs {_gib(memory.peak)} of each device, which has {_gib(memory.limit)}.",
        memory=memory,
        findings=tuple(_assumptions(subject)),
        wastes=find_waste(subject.model, subject.config.batch_size, subject.config.precision),
        largest_batch=largest,
        compiler_says=error.words,
    )


def _lowered(subject: _Subject, step: str, replica_batch: int | None = None) -> Any:
    subject.report(f"tracing the {step} step")
    size = replica_batch or subject.config.batch_size
    with _refusing(f"The {step} step", subject.model):
        return subject.compiler.lower(subject.model, subject.batch, size, is_training=step == "training")


def _program(subject: _Subject, lowered: Any, step: str, replica_batch: int | None = None) -> Program:
    subject.report(f"compiling the {step} step")
    size = replica_batch or subject.config.batch_size
    with _refusing(f"The {step} step", subject.model):
        return subject.compiler.compile(lowered, subject.model, subject.batch, size)


def _search(subject: _Subject, memory: Memory, topology: Topology, *, fits: bool) -> int:
    """Search for the largest batch that fits, starting from the one that was compiled."""

    def probe(size: int) -> tuple[bool, int]:
        subject.report(f"searching for the largest batch: {size:,} per device")
        try:
            found = _program(subject, _lowered(subject, "training", size), "training", size).memory
        except DoesNotFitError as error:
            return False, error.memory.peak
        return True, found.peak

    examples = train_examples_of(subject.config)
    most = LARGEST if examples is None else max(1, examples // topology.devices)
    fixed = bytes_of([*subject.model.variables, *subject.model.optimizer.variables])
    return largest_batch(probe, {subject.config.batch_size: (fits, memory.peak)}, fixed, memory.limit, most)


def _refused(empty: Verdict, refusal: _RefusedError) -> Verdict:
    cause = refusal.cause
    traceback.print_exception(cause, file=sys.stderr)
    says = one_line(cause, 2000)
    if _INTERNAL_ERROR in says:
        of = " and ".join(f"{name} {versions()[name]}" for name in ("jaxlib", "libtpu") if name in versions())
        reason = f"Internal error in the compiler ({of}); it says nothing about the model."
        finding = Finding(Severity.WARNING, "Try other versions of the two, or another TPU.")
        return replace(empty, reason=reason, findings=(finding,), compiler_says=says)
    reason, findings = explain_refusal(cause, refusal.model)
    text = reason or f"{refusal.step} cannot be compiled: {one_line(cause, 300)}"
    # What Python code raised while it was traced is explained above: only the compiler's own words say more.
    words = says if type(cause).__name__.endswith(_COMPILER_ERRORS) else ""
    return replace(empty, outcome=Outcome.DOES_NOT_COMPILE, reason=text, findings=tuple(findings), compiler_says=words)


def _assumptions(subject: _Subject) -> list[Finding]:
    """Say where the compiled step differs from what will be trained."""
    found = [Finding(Severity.INFO, subject.batch.assumed, key="data.options.path")] if subject.batch.assumed else []
    if subject.compiler.share:
        found.append(Finding(Severity.INFO, subject.compiler.share, key="backend"))
    if subject.compiler.spares_sparse_cores:
        text = (
            "Compiled without the chip's SparseCores, which may take over table lookups and sums of gradients: the "
            "installed jaxlib cannot read libtpu's programs for them."
        )
        found.append(Finding(Severity.INFO, text))
    if after := subject.config.fine_tuning.after_epochs:
        text = (
            f"The verdict is about the second phase, from epoch {after + 1} on, which trains more layers and needs "
            "more memory. The run's time is that of this phase alone."
        )
        found.append(Finding(Severity.INFO, text, key="fine_tuning.after_epochs"))
    return found


def _gib(size: float) -> str:
    return f"{size / 2**20:.1f} MiB" if size < 2**30 else f"{size / 2**30:.1f} GiB"
