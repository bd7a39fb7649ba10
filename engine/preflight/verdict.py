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
from .compile import Compiler, DoesNotFitError, NotPossibleError, Program, bytes_of
from .compile_memory import shortage
from .compile_time import expected_seconds, save_compile_time
from .explain import changing_shapes, explain_refusal
from .fitting import changes, what_fills, why_no_batch_fits
from .hlo import program_findings
from .inputs import UnknownShapesError, batch_of
from .layers import all_layers
from .padding import find_waste
from .result import BatchFigures, Memory, Outcome
from .search import LARGEST, largest_batch, worth_choosing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..config.run_config import RunConfig
    from .choices import Choice
    from .inputs import Batch
    from .result import Bound, Verdict
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
    compiler = _started(config, topology)
    try:
        report("building the model")
        with _refusing("The model"):
            model = build(config, batch, topology.devices)
        if changing := changing_shapes(model):
            return replace(empty, outcome=Outcome.DOES_NOT_COMPILE, reason=changing[0].text, findings=changing)
        subject = _Subject(config, batch, model, compiler, report)
        verdict, made = _compiled(empty, subject, topology)
        if made is None:
            return verdict
        keep(verdict)
        if search:
            verdict = _search(subject, verdict, topology, {config.batch_size: made})
            keep(verdict)
        if verdict.outcome is Outcome.DOES_NOT_FIT and verdict.memory is not None and advise:
            more = _changes_that_fit(subject, verdict.memory, topology)
            verdict = replace(verdict, findings=(*verdict.findings, *more))
        return verdict
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


def _compiled(empty: Verdict, subject: _Subject, topology: Topology) -> tuple[Verdict, Program | Memory | None]:
    """Compile both steps and make the verdict; return it with the training step, or with what that would need."""
    config = subject.config
    lowered = _lowered(subject, "training")
    lines = lowered.as_text().count("\n")
    if reason := shortage(lines, free_memory_bytes()):
        return replace(empty, reason=reason), None
    try:
        program = _program(subject, lowered, "training", expected_s=expected_seconds(lines))
        save_compile_time(lines, program.seconds)
        _program(subject, _lowered(subject, "validation"), "validation")
    except DoesNotFitError as error:
        return _too_large(empty, subject, error), error.memory
    memory = program.memory
    bound = _bound(subject, program, topology, config.batch_size)
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
    return verdict, program


def _too_large(empty: Verdict, subject: _Subject, error: DoesNotFitError) -> Verdict:
    memory = error.memory
    return replace(
        empty,
        outcome=Outcome.DOES_NOT_FIT,
        reason=f"It needs {_gib(memory.peak)} of each device, which has {_gib(memory.limit)}.",
        memory=memory,
        findings=tuple(_assumptions(subject)),
        wastes=find_waste(subject.model, subject.config.batch_size, subject.config.precision),
        compiler_says=error.words,
        fillings=what_fills(subject.model, subject.config.batch_size, memory),
    )


def _changes_that_fit(subject: _Subject, memory: Memory, topology: Topology) -> Iterator[Finding]:
    """Compile the step with each change that may make it fit, and report those that do."""
    if reason := why_no_batch_fits(memory):
        yield Finding(Severity.INFO, reason)
    tried: list[str] = []
    for text, config, other in changes(subject.config, memory, topology):
        key = text.partition("=")[0] if "=" in text else ""
        if key and any(before.startswith(f"{key}=") for before in tried):
            continue
        try:
            compiler = subject.compiler if other is topology else _started(config, other)
            with _refusing("The model"):
                model = build(config, subject.batch, other.devices)
            changed = _about(replace(subject, config=config, compiler=compiler, model=model), f"trying {text}")
            found = _program(changed, _lowered(changed, "training"), "training").memory
        except (DoesNotFitError, NotPossibleError, _RefusedError, ConsoleError):
            continue
        tried.append(text)
        yield Finding(Severity.INFO, f"It fits with {text}: {_gib(found.peak)} of {_gib(found.limit)}.", key=key)
    if not tried:
        text = "None of the changes that were compiled makes it fit: other precisions, optimizers, batches and TPUs."
        yield Finding(Severity.INFO, text, remedy="Make the layers smaller that need the most memory.")


def _about(subject: _Subject, what: str) -> _Subject:
    """Return the subject with reports that begin with what is being tried."""
    return replace(subject, report=lambda phase: subject.report(f"{what}: {phase}"))


def _lowered(subject: _Subject, step: str, replica_batch: int | None = None) -> Any:
    subject.report(f"tracing the {step} step")
    size = replica_batch or subject.config.batch_size
    with _refusing(f"The {step} step", subject.model):
        return subject.compiler.lower(subject.model, subject.batch, size, is_training=step == "training")


def _program(
    subject: _Subject, lowered: Any, step: str, replica_batch: int | None = None, expected_s: float | None = None
) -> Program:
    about = "" if expected_s is None else f", about {_span(expected_s)}"
    subject.report(f"compiling the {step} step{about}")
    size = replica_batch or subject.config.batch_size
    with _refusing(f"The {step} step", subject.model):
        return subject.compiler.compile(lowered, subject.model, subject.batch, size)


def _search(subject: _Subject, found: Verdict, topology: Topology, known: Mapping[int, Program | Memory]) -> Verdict:
    """Add the largest batch that fits and the batches worth choosing to a verdict.

    `known` has the program, or the memory of one that does not fit, of each batch that was compiled already.
    """
    compiled: dict[int, Program | Memory | None] = dict(known)

    def probe(size: int) -> tuple[bool, int]:
        if size not in compiled:
            tried = _about(subject, f"searching the largest batch, {size:,} per device")
            try:
                compiled[size] = _program(tried, _lowered(tried, "training", size), "training", size)
            except DoesNotFitError as error:
                compiled[size] = error.memory
            except _RefusedError:  # it says nothing about the batch that was asked for
                compiled[size] = None
        match compiled[size]:
            case Program(memory=memory):
                return True, memory.peak
            case Memory() as memory:
                return False, memory.peak
        return False, topology.usable_hbm_bytes

    examples = train_examples_of(subject.config)
    most = LARGEST if examples is None else max(1, examples // topology.devices)
    fixed = bytes_of([*subject.model.variables, *subject.model.optimizer.variables])
    largest = largest_batch(probe, {size: probe(size) for size in known}, fixed, topology.usable_hbm_bytes, most)
    batches = []
    for size in worth_choosing(largest, subject.config.batch_size):
        if probe(size)[0] and isinstance(made := compiled[size], Program):
            bound = _bound(subject, made, topology, size)
            batches.append(BatchFigures(size, made.memory.peak, bound.images_per_s))
    is_limit = examples is not None and largest == most
    return replace(found, largest_batch=largest, batches=tuple(batches), dataset_is_limit=is_limit)


def _bound(subject: _Subject, program: Program, topology: Topology, size: int) -> Bound:
    return bound_of(
        subject.config.model_copy(update={"batch_size": size}),
        topology,
        program.flops,
        program.bytes_accessed,
        program.hlo_text,
        subject.compiler.exchanged(subject.model),
    )


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


def _span(seconds: float) -> str:
    return f"{max(1.0, seconds):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _gib(size: float) -> str:
    return f"{size / 2**20:.1f} MiB" if size < 2**30 else f"{size / 2**30:.1f} GiB"
