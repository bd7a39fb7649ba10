"""Reaches the verdict on one choice: builds the model, lowers and compiles its steps, and says what that means."""

from __future__ import annotations

import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import one_line
from ..findings import Finding, Severity, most_severe_first
from ..machine.resources import free_memory_bytes
from .build import NotPossibleError, augmentation_names, build
from .cache import versions
from .compile import DoesNotFitError
from .compile_memory import shortage
from .compile_time import expected_seconds, save_compile_time
from .explain import changing_shapes, explain_refusal
from .fitting import what_fills
from .hlo import program_findings
from .inputs import UnknownShapesError, batch_of
from .layers import all_layers, model_names
from .padding import find_waste
from .result import Outcome
from .steps import RefusedError, Subject, bound, gib, lowered, program, refusing, started
from .trying import changes_that_fit, with_largest_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from .choices import Choice
    from .compile import Program
    from .result import Memory, Verdict
    from .topologies import Topology


_INTERNAL_ERROR = "RET_CHECK failure"
"""How XLA reports a failed check of its own, such as jaxlib's when it reads a program from libtpu."""

_COMPILER_ERRORS = ("JaxRuntimeError", "XlaRuntimeError", "InvalidArgumentError")


def reach_verdict(
    choice: Choice,
    report: Callable[[str], None],
    keep: Callable[[Verdict], None] = lambda _: None,
    *,
    search: bool = False,
    advise: bool = True,
) -> Verdict:
    """Compile the steps of a choice and return the verdict; `report` is called with each phase as it begins.

    With `search` the largest batch is searched, and with `advise` changes that may make a step fit are compiled too.
    Before that, `keep` gets the verdict as it is by then.

    Raises:
        ConsoleError: The compiler cannot be started.
    """
    empty, config, topology = choice.undecided(), choice.config, choice.topology
    try:
        batch = batch_of(config)
    except UnknownShapesError as error:
        return replace(empty, reason=str(error))
    compiler = started(config, topology)
    try:
        report("building the model")
        with refusing():
            model = build(config, batch, topology.devices)
        if changing := changing_shapes(model):
            return replace(empty, outcome=Outcome.DOES_NOT_COMPILE, reason=changing[0].text, findings=changing)
        subject = Subject(config, batch, model, compiler, report)
        verdict, made = _compiled(empty, subject, topology)
        if made is None:
            return verdict
        keep(verdict)
        if search:
            verdict = with_largest_batch(subject, verdict, topology, {config.batch_size: made})
            keep(verdict)
        if verdict.outcome is Outcome.DOES_NOT_FIT and verdict.memory is not None and advise:
            for one in changes_that_fit(subject, verdict.memory, topology):
                verdict = replace(verdict, findings=(*verdict.findings, one))
                keep(verdict)
        return verdict
    except NotPossibleError as error:
        return replace(empty, reason=str(error))
    except RefusedError as refusal:
        return _refused(empty, refusal)


def _compiled(empty: Verdict, subject: Subject, topology: Topology) -> tuple[Verdict, Program | Memory | None]:
    """Compile both steps and make the verdict; return it with the training step, or with what that would need."""
    config = subject.config
    training = lowered(subject, "training")
    lines = training.as_text().count("\n")
    if reason := shortage(lines, free_memory_bytes()):
        return replace(empty, reason=reason), None
    try:
        made = program(subject, training, "training", expected_s=expected_seconds(lines))
        save_compile_time(lines, made.seconds)
        program(subject, lowered(subject, "validation"), "validation")
    except DoesNotFitError as error:
        return _too_large(empty, subject, training, error), error.memory
    memory = made.memory
    best = bound(subject, made, topology, config.batch_size)
    given = augmentation_names(subject.model, config)
    findings = [*_assumptions(subject), *program_findings(made.hlo_text, subject.model, given)]
    if best.is_partial:
        text = (
            "How often a loop of the model runs depends on values, so it is counted once: operations and times are at "
            "least these."
        )
        findings.append(Finding(Severity.INFO, text))
    verdict = replace(
        empty,
        outcome=Outcome.FITS,
        reason=f"It takes {gib(memory.peak)} of each device's {gib(memory.limit)}: {memory.headroom:.0%} stays free.",
        memory=memory,
        bound=best,
        wastes=find_waste(subject.model, config.batch_size, config.precision),
        findings=most_severe_first(findings),
        compile_s=made.seconds,
        models=model_names(subject.model),
    )
    return verdict, made


def _too_large(empty: Verdict, subject: Subject, training: Any, error: DoesNotFitError) -> Verdict:
    memory, size = error.memory, subject.config.batch_size
    fillings = what_fills(subject.model, size, memory, training.compiler_ir(), len(subject.compiler.devices))
    return replace(
        empty,
        outcome=Outcome.DOES_NOT_FIT,
        reason=f"It needs {gib(memory.peak)} of each device, which has {gib(memory.limit)}.",
        memory=memory,
        findings=tuple(_assumptions(subject)),
        wastes=find_waste(subject.model, subject.config.batch_size, subject.config.precision),
        compiler_says=error.words,
        fillings=tuple(fillings),
    )


def _refused(empty: Verdict, refusal: RefusedError) -> Verdict:
    cause = refusal.cause
    traceback.print_exception(cause, file=sys.stderr)
    says = one_line(cause, 2000)
    if _INTERNAL_ERROR in says:
        of = " and ".join(f"{name} {versions()[name]}" for name in ("jaxlib", "libtpu") if name in versions())
        reason = f"Internal error in the compiler ({of}); it says nothing about the model."
        finding = Finding(Severity.WARNING, "Try other versions of the two, or another TPU.")
        return replace(empty, reason=reason, findings=(finding,), compiler_says=says)
    reason, findings = explain_refusal(cause, refusal.model)
    # What Python code raised while it was traced is explained above: only the compiler's own words say more.
    words = says if type(cause).__name__.endswith(_COMPILER_ERRORS) else ""
    return replace(empty, outcome=Outcome.DOES_NOT_COMPILE, reason=reason, findings=findings, compiler_says=words)


def _assumptions(subject: Subject) -> list[Finding]:
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
    wide = [layer.name for layer in all_layers(subject.model) if str(layer.compute_dtype) == "float64"]
    if wide and not subject.config.takes_tensorflow:
        more = f" and {len(wide) - 3} more" if len(wide) > 3 else ""
        text = f"Asked for float64, computed in float32 on a TPU: {', '.join(wide[:3])}{more}."
        found.append(Finding(Severity.WARNING, text, wide[0], "Check that the model does not need the precision."))
    if after := subject.config.fine_tuning.after_epochs:
        text = (
            f"The verdict is about the second phase, from epoch {after + 1} on, which trains more layers and needs "
            "more memory. The run's time is that of this phase alone."
        )
        found.append(Finding(Severity.INFO, text, key="fine_tuning.after_epochs"))
    return found
