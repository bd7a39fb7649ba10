"""Reaches the verdict on one choice: builds the model, lowers and compiles its steps, and says what that means."""

from __future__ import annotations

import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..accelerators.framework import NotPossibleError
from ..data.kinds.kind import UnknownShapesError
from ..errors import one_line
from ..findings import Finding, Severity, most_severe_first
from ..machine.resources import free_memory_bytes
from ..models.build import bytes_of
from ..storage.disk_space import gib
from .build import build, least_memory
from .cache import TpuChoice, compiler_versions
from .compile import Compiler, DoesNotFitError, RefusedError, Subject, refusing, shortage
from .explain import changing_shapes, explain_refusal
from .fitting import changes_that_fit, search_largest, what_fills, without_heavy_layer
from .hlo import bound_of_shapes, program_findings
from .inputs import batch_of
from .layers import all_layers, find_waste
from .result import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from .compile import Program, Report


_INTERNAL_ERROR = "RET_CHECK failure"
"""How XLA reports a failed check of its own, such as jaxlib's when it reads a program from libtpu."""

_COMPILER_ERRORS = ("JaxRuntimeError", "XlaRuntimeError", "InvalidArgumentError")


def reach_verdict(
    choice: TpuChoice,
    report: Report,
    keep: Callable[[Verdict], None] = lambda _: None,
    *,
    search: bool = False,
    advise: bool = True,
    begun: Verdict | None = None,
) -> Verdict:
    """Compile the steps of a choice and return the verdict; `report` is called with each phase.

    With `search` the largest batch is searched, and with `advise` changes that may make a step fit are compiled too.
    `begun` is the verdict of an earlier preflight, which a search goes on from. Whenever more is known, `keep` gets the
    verdict as it is by then.

    Raises:
        ConsoleError: The compiler cannot be started.
    """
    empty, config, topology = choice.undecided(), choice.config, choice.topology
    try:
        batch = batch_of(config)
    except UnknownShapesError as error:
        return replace(empty, reason=str(error))
    try:
        report("building the model", None)
        with refusing():
            model, batch = build(config, batch, topology.devices)
        if changing := changing_shapes(model):
            return replace(empty, outcome=Outcome.DOES_NOT_COMPILE, reason=changing[0].text, findings=changing)
        report("loading the compiler", None)
        subject = Subject(config, batch, model, Compiler(topology), report)
        verdict = begun or _compiled(empty, subject, keep)
        if verdict.outcome is Outcome.UNKNOWN or verdict.memory is None:
            return verdict
        keep(verdict)
        if search:
            for searched in search_largest(subject, verdict, verdict.memory):
                keep(verdict := searched)
        if verdict.memory is not None and advise and begun is None:
            fits = verdict.outcome is Outcome.FITS
            tried = without_heavy_layer(subject, verdict) if fits else changes_that_fit(subject, verdict.memory)
            for one in tried:
                verdict = replace(verdict, findings=(*verdict.findings, one))
                keep(verdict)
        return verdict
    except NotPossibleError as error:
        return replace(empty, reason=str(error))
    except RefusedError as refusal:
        return _refused(empty, refusal)


def _compiled(empty: Verdict, subject: Subject, keep: Callable[[Verdict], None]) -> Verdict:
    """Compile both steps and make the verdict; before that, `keep` gets what the shapes alone say."""
    config, model, topology = subject.config, subject.model, subject.compiler.topology
    training = subject.lowered("training")
    text = training.as_text(dialect="hlo")
    slots = bytes_of(model.optimizer.variables)
    held = least_memory(model, slots, subject.batch, config.batch_size, topology.usable_hbm_bytes)
    least = bound_of_shapes(config, topology, text, held.peak, bytes_of(model.trainable_variables))
    by_shapes = replace(empty, memory=held, bound=least)
    if reason := shortage(training.as_text().count("\n"), free_memory_bytes()):
        return replace(by_shapes, reason=reason)
    keep(replace(by_shapes, reason="The compiler has not answered yet."))
    shapes = f"; by its shapes at least {least.step_s * 1e3:,.3g} ms per step and {gib(held.peak)}"
    try:
        made = subject.program(training, "training", if_long=shapes)
        verdict = _fits(empty, subject, made)
        unchecked = Finding(
            Severity.WARNING,
            "Only the training step was compiled, not the validation step.",
            remedy="With --no-cache and a longer --limit, both are.",
        )
        keep(replace(verdict, findings=(unchecked, *verdict.findings)))
        subject.program(subject.lowered("validation"), "validation")
    except DoesNotFitError as error:
        return _too_large(empty, subject, training, error)
    return verdict


def _fits(empty: Verdict, subject: Subject, made: Program) -> Verdict:
    config, memory, best = subject.config, made.memory, subject.bound(made)
    findings = [*_assumptions(subject), *program_findings(made.hlo, subject.model, config.batch_size)]
    if best.is_partial:
        text = (
            "How often a loop of the model runs depends on values, so it is counted once: operations and times are at "
            "least these."
        )
        findings.append(Finding(Severity.INFO, text))
    return replace(
        empty,
        outcome=Outcome.FITS,
        reason=f"It takes {gib(memory.peak)} of each device's {gib(memory.limit)}: {memory.headroom:.0%} stays free.",
        memory=memory,
        bound=best,
        wastes=find_waste(subject.model, config.batch_size, config.precision),
        findings=most_severe_first(findings),
        compile_s=made.seconds,
    )


def _too_large(empty: Verdict, subject: Subject, training: Any, error: DoesNotFitError) -> Verdict:
    config, model, memory = subject.config, subject.model, error.memory
    fillings = what_fills(model, config.batch_size, memory, training.compiler_ir(), len(subject.compiler.devices))
    return replace(
        empty,
        outcome=Outcome.DOES_NOT_FIT,
        reason=f"It needs {gib(memory.peak)} of each device, which has {gib(memory.limit)}.",
        memory=memory,
        findings=tuple(_assumptions(subject)),
        wastes=find_waste(model, config.batch_size, config.precision),
        compiler_says=str(error),
        fillings=tuple(fillings),
    )


def _refused(empty: Verdict, refusal: RefusedError) -> Verdict:
    cause = refusal.cause
    traceback.print_exception(cause, file=sys.stderr)
    says = one_line(cause, 2000)
    if _INTERNAL_ERROR in says:
        reason = f"Internal error in the compiler ({compiler_versions()}); it says nothing about the model."
        finding = Finding(Severity.WARNING, "Try other versions of them, or another TPU.")
        return replace(empty, reason=reason, findings=(finding,), compiler_says=says)
    reason, findings = explain_refusal(cause, refusal.model)
    # What Python code raised while it was traced is explained above: only the compiler's own words say more.
    words = says if type(cause).__name__.endswith(_COMPILER_ERRORS) else ""
    return replace(empty, outcome=Outcome.DOES_NOT_COMPILE, reason=reason, findings=findings, compiler_says=words)


def _assumptions(subject: Subject) -> list[Finding]:
    """Say where the compiled step differs from what will be trained."""
    found = [Finding(Severity.INFO, subject.batch.assumed, key="data.options.path")] if subject.batch.assumed else []
    if note := subject.compiler.framework.step_note:
        found.append(Finding(Severity.INFO, note, key="backend"))
    wide = [layer.name for layer in all_layers(subject.model) if str(layer.compute_dtype) == "float64"]
    if wide and not subject.compiler.framework.has_float64:
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
