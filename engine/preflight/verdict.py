"""Reaches the verdict on one choice of TPU, batch and precision: builds, lowers, compiles, and says what that means."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError, one_line
from ..findings import Finding, Severity, most_severe_first
from ..machine.resources import free_memory_bytes
from ..planning.example_count import train_examples_of
from .bound import bound_of, host_pace
from .build import build
from .cache import versions
from .compile import Compiler, DoesNotFitError, NotPossibleError, bytes_of
from .explain import changing_shapes, explain_refusal
from .hlo import examine
from .inputs import UnknownShapesError, batch_of
from .memory_room import shortage
from .padding import find_waste
from .result import Memory, Outcome, Verdict
from .search import LARGEST, largest_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..config.run_config import RunConfig
    from .compile import Program
    from .inputs import Batch
    from .topologies import Topology


_OWN_MISTAKE = "RET_CHECK failure"
"""How XLA names a check of its own that failed, such as jaxlib's when it reads a program that libtpu has written."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """A model that was built, and what it is compiled with."""

    config: RunConfig
    batch: Batch
    model: Any
    compiler: Compiler
    tell: Callable[[str], None]


class _RefusedError(Exception):
    """The model cannot be built, traced or compiled.

    Args:
        step: Which step.
        cause: Why.
        model: As far as it was built.
    """

    def __init__(self, step: str, cause: Exception, model: Any = None) -> None:
        super().__init__(step)
        self.step = step
        self.cause = cause
        self.model = model


def judge(config: RunConfig, topology: Topology, tell: Callable[[str], None], *, search: bool = False) -> Verdict:
    """Compile a configuration's steps for a TPU and say what came of it.

    Args:
        config: The configuration, with the batch size and the precision in question.
        topology: The TPU.
        tell: Called with each phase as it begins, such as ``compiling the training step``.
        search: Whether to look for the largest batch that fits.

    Raises:
        ConsoleError: The compiler cannot be started.
    """
    empty = Verdict(
        tpu=topology.name,
        devices=topology.devices,
        hosts=topology.hosts,
        replica_batch=config.batch_size,
        precision=config.precision,
        outcome=Outcome.UNKNOWN,
        reason="",
        versions=dict(versions()),
    )
    try:
        batch = batch_of(config)
    except UnknownShapesError as error:
        return replace(empty, reason=str(error))
    compiler = _started(config, topology)
    try:
        tell("building the model")
        model = _built(config, batch, topology)
        if changing := changing_shapes(model):
            return replace(empty, outcome=Outcome.DOES_NOT_COMPILE, reason=changing[0].text, findings=changing)
        return _compiled(empty, _Subject(config, batch, model, compiler, tell), topology, search=search)
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
            remedy="Install newer versions: pip install -U 'jax[tpu]'",
        ) from error


def _built(config: RunConfig, batch: Batch, topology: Topology) -> Any:
    try:
        return build(config, batch, topology.devices)
    except Exception as error:  # a model of the person's own raises whatever it likes
        raise _RefusedError("The model", error) from error


def _compiled(empty: Verdict, subject: _Subject, topology: Topology, *, search: bool) -> Verdict:
    """Compile both steps and make the verdict of what is known then."""
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
    findings = [*_assumptions(subject), *examine(program.hlo_text, subject.model)]
    if not config.takes_tensorflow:
        findings += host_pace(bound)
    verdict = replace(
        empty,
        outcome=Outcome.FITS,
        reason=f"It takes {_gib(memory.peak)} of {_gib(memory.limit)} of each device: {memory.headroom:.0%} stay free.",
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
    subject.tell(f"tracing the {step} step")
    size = replica_batch or subject.config.batch_size
    try:
        return subject.compiler.lower(subject.model, subject.batch, size, is_training=step == "training")
    except NotPossibleError:
        raise
    except Exception as error:  # a layer of the person's own raises whatever it likes
        raise _RefusedError(f"The {step} step", error, subject.model) from error


def _program(subject: _Subject, lowered: Any, step: str, replica_batch: int | None = None) -> Program:
    subject.tell(f"compiling the {step} step")
    size = replica_batch or subject.config.batch_size
    try:
        return subject.compiler.compile(lowered, subject.model, subject.batch, size)
    except (DoesNotFitError, NotPossibleError):
        raise
    except Exception as error:  # the compiler has no class of errors of its own
        raise _RefusedError(f"The {step} step", error, subject.model) from error


def _search(subject: _Subject, memory: Memory, topology: Topology, *, fits: bool) -> int:
    """Look for the largest batch, warm from the one that was compiled."""

    def probe(size: int) -> tuple[bool, int]:
        subject.tell(f"looking for the largest batch: {size:,} a device")
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
    if isinstance(cause, ConsoleError):
        finding = Finding(Severity.ERROR, cause.what, remedy=cause.remedy)
        return replace(
            empty, outcome=Outcome.DOES_NOT_COMPILE, reason=f"{cause.what} {cause.why}".strip(), findings=(finding,)
        )
    if _OWN_MISTAKE in says:
        of = " and ".join(f"{name} {versions()[name]}" for name in ("jaxlib", "libtpu") if name in versions())
        reason = f"The compiler met a mistake of its own, which says nothing of the model ({of})."
        finding = Finding(Severity.WARNING, "Other versions of the two may be able to tell, and so may another TPU.")
        return replace(empty, reason=reason, findings=(finding,), compiler_says=says)
    reason, findings = explain_refusal(cause, refusal.model)
    text = reason or f"{refusal.step} cannot be compiled: {one_line(cause, 300)}"
    return replace(empty, outcome=Outcome.DOES_NOT_COMPILE, reason=text, findings=tuple(findings), compiler_says=says)


def _assumptions(subject: _Subject) -> list[Finding]:
    """Say what the verdict was reached for, where it is not quite what will be trained."""
    found = [Finding(Severity.INFO, subject.batch.assumed, key="data.options.path")] if subject.batch.assumed else []
    if subject.compiler.share:
        found.append(Finding(Severity.INFO, subject.compiler.share, key="backend"))
    if subject.compiler.spares_sparse_cores:
        text = (
            "Compiled without the chip's SparseCores, which may take over table lookups and sums of gradients: the "
            "installed jaxlib cannot read what libtpu makes for them."
        )
        found.append(Finding(Severity.INFO, text))
    if after := subject.config.fine_tuning.after_epochs:
        text = (
            f"Judged is the second phase, from epoch {after + 1} on, which trains more layers and needs more; "
            "the time of the run is that of this phase alone."
        )
        found.append(Finding(Severity.INFO, text, key="fine_tuning.after_epochs"))
    return found


def _gib(size: float) -> str:
    return f"{size / 2**20:.1f} MiB" if size < 2**30 else f"{size / 2**30:.1f} GiB"
