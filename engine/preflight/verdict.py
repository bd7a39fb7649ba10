"""Reaches the verdict on one choice: builds the model, lowers and compiles its steps, and says what that means.

A refusal is explained in terms of the user's model: which layer, which line. Keras wraps what a layer raises, and fails
on some of JAX's exceptions while it does so. The cause is therefore searched for in the whole chain of exceptions, and
the layer in their stack frames.
"""

from __future__ import annotations

import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
from msgspec.structs import replace

from ..accelerators.backend import loaded_framework
from ..accelerators.framework import NotPossibleError
from ..data.kinds.kind import UnknownShapesError
from ..errors import ConsoleError, Finding, Severity, most_severe_first, one_line
from ..machine.environment import free_memory_bytes
from ..models.build import bytes_of
from ..runs.failures import is_own_file, own_line
from ..storage.files import gib
from .build import build, least_memory
from .choice import TpuChoice, batch_of, compiler_versions
from .compile import Compiler, DoesNotFitError, RefusedError, Subject, refusing, shortage
from .fitting import changes_that_fit, search_largest, what_fills, without_heavy_layer
from .hlo import bound_of_shapes, pipeline_remedy, program_findings
from .layers import all_layers, find_waste, has_open_sides, layer_text
from .result import Outcome, Verdict

if TYPE_CHECKING:
    from .compile import Program, Report

_INTERNAL_ERROR = "RET_CHECK failure"
"""How XLA reports a failed check of its own, such as jaxlib's when it reads a program from libtpu."""

_COMPILER_ERRORS = ("JaxRuntimeError", "XlaRuntimeError", "InvalidArgumentError")
_CALLED = re.compile(r"Exception encountered when calling (?:layer ')?([\w.]+?)(?:'|\.call\(\))")
_LONGEST_LINE = 120
_CHANGES_SIZE = re.compile(r"^random_?(height|width)", re.IGNORECASE)
_NO_KERNEL = re.compile(r"unsupported operations.* on XLA_\w+: (\w+) \(.*?\{\{node ([^}]+)\}\}", re.DOTALL)
_TEXT_FILES = re.compile(r"/(?:gen_)?string_ops\.py|/tensorflow_text/|/lookup_ops\.py")
_PREPROCESSING_LAYERS = ("Hashing", "HashedCrossing", "IntegerLookup", "StringLookup", "TextVectorization")
_TENSORFLOW_LAYERS = ("TFSMLayer", "KerasLayer", "TorchModuleWrapper")


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
    verdict as it is by then. Raises `ConsoleError` if the compiler cannot be started.
    """
    empty, config, topology = choice.undecided(), choice.config, choice.topology
    try:
        batch = batch_of(config)
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
            for one in without_heavy_layer(subject, verdict) if fits else changes_that_fit(subject, verdict.memory):
                keep(verdict := replace(verdict, findings=(*verdict.findings, one)))
        return verdict
    except (UnknownShapesError, NotPossibleError) as error:
        return replace(empty, reason=str(error))
    except RefusedError as refusal:
        return refused(empty, refusal)


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


def refused(empty: Verdict, refusal: RefusedError) -> Verdict:
    """Return the verdict that explains why a model cannot be built, traced or compiled."""
    cause = refusal.cause
    traceback.print_exception(cause, file=sys.stderr)
    says = one_line(cause, 2000)
    if _INTERNAL_ERROR in says:
        reason = f"Internal error in the compiler ({compiler_versions()}); it says nothing about the model."
        finding = Finding(Severity.WARNING, "Try other versions of them, or another TPU.")
        return replace(empty, reason=reason, findings=(finding,), compiler_says=says)
    # What Python code raised while it was traced is explained: only the compiler's own words say more.
    empty = replace(empty, compiler_says=says if type(cause).__name__.endswith(_COMPILER_ERRORS) else "")
    finding = explain_refusal(cause, refusal.model)
    return replace(empty, outcome=Outcome.DOES_NOT_COMPILE, reason=finding.text, findings=(finding,))


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


_KINDS = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text("utf-8"))


def explain_refusal(error: Exception, model: Any) -> Finding:
    """Explain why a step could not be built, lowered or compiled; `model` is None if it could not be built."""
    chain = list(_chain(error))
    if (found := next(filter(None, (_NO_KERNEL.search(str(one)) for one in chain)), None)) is not None:
        # The node's scope names layers, with a number if one is called again.
        parts = {re.sub(r"_\d+$", "", part) for part in found[2].split("/")} | {*found[2].split("/")}
        layer = next((one for one in (all_layers(model) if model is not None else ()) if one.name in parts), None)
        text = f"{_subject(layer)} uses TensorFlow's {found[1]}, which XLA cannot compile."
        remedy = "Do it in the input pipeline, or use operations that XLA supports, such as keras.ops."
        return Finding(Severity.ERROR, text, str(getattr(layer, "name", "")), remedy)
    owner = _owner_of(chain, model)
    line = next((line for line in map(own_line, reversed(chain)) if line), "")
    place, colon, code = line.partition(": ")
    if kind := _KINDS.get(_kind_of(chain, owner)):
        text, remedy, key = f"{_subject(owner)} {kind['text']}.", kind["remedy"], kind.get("key", "")
    else:
        known = next((one for one in chain if isinstance(one, ConsoleError)), None)
        if known is not None and owner is None:
            return Finding(Severity.ERROR, f"{known.what.rstrip('.')}. {known.why}".strip(), remedy=known.remedy)
        first = next(one for one in reversed(chain) if type(one).__name__ != "JaxStackTraceBeforeTransformation")
        words = (one_line(first) or type(first).__name__).replace("dynamic_dimension", "batch")
        raised = f"{_subject(owner)} raised {type(first).__name__}"
        if type(error).__name__ in {"JaxRuntimeError", "XlaRuntimeError"}:
            raised = "The TPU compiler refused the step"
        text, remedy, key = f"{raised}: {words.rstrip('.')}.", "Fix it there and try again." if line else "", ""
    instead, setting = pipeline_remedy(owner)
    name = str(owner.name) if hasattr(owner, "trainable_weights") else ""
    where = (f"{place}{colon}`{code[:_LONGEST_LINE]}`.",) if line else ()
    return Finding(Severity.ERROR, text, name, instead or remedy, setting or key, evidence=where)


def changing_shapes(model: Any) -> tuple[Finding, ...]:
    """Find the layers that change height, width or length from one call to the next.

    Such a layer may be traced with one random size and compiled into something that is not the user's model, so it is
    refused because of the output shape that Keras reports.
    """
    kind = _KINDS["changing_output"]
    return tuple(
        Finding(Severity.ERROR, f"{_subject(layer)} {kind['text']}.", layer.name, kind["remedy"])
        for layer in all_layers(model)
        if _changes_size(layer)
    )


def _changes_size(layer: Any) -> bool:
    """Whether Keras knows a layer's input, but not the height, width or length of its output."""
    if _CHANGES_SIZE.match(type(layer).__name__):
        return True
    if type(layer).__name__ == "InputLayer":  # of a model for any size; the dataset's is fixed
        return False
    return not has_open_sides(layer, "input") and has_open_sides(layer, "output")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its cause, and so on back to the first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _owner_of(chain: list[BaseException], model: Any) -> Any:
    """Return the innermost layer, loss or metric that was being called, or None."""
    # The stack frames show it; else Keras's message, by the layer's class or name, or the line of a layer's `call`: JAX
    # rebuilds some exceptions without the frames' variables.
    outer = None
    for error in reversed(chain):
        for frame, _ in reversed([*traceback.walk_tb(error.__traceback__)]):
            owner = frame.f_locals.get("self")
            if isinstance(owner, keras.Loss | keras.Metric) and not type(owner).__name__.startswith("Compile"):
                return owner
            is_layer = hasattr(owner, "get_config") and hasattr(owner, "trainable_weights") and hasattr(owner, "name")
            if not is_layer or frame.f_code.co_name not in {"call", "__call__", "build", "compute_output_spec"}:
                continue
            if not hasattr(owner, "layers"):
                return owner
            outer = outer or owner
    layers = [] if model is None else [*all_layers(model)]
    for word in (word for error in reversed(chain) for word in reversed(_CALLED.findall(str(error)))):
        if len(same := [one for one in layers if word in (one.name, type(one).__name__)]) == 1:
            return same[0]
    lines = {(frame.f_code.co_filename, line) for one in chain for frame, line in traceback.walk_tb(one.__traceback__)}
    codes = [(layer, getattr(layer.call, "__code__", None)) for layer in layers]
    own = [(layer, code) for layer, code in codes if code is not None and is_own_file(code.co_filename)]
    named = [layer for layer, code in own if lines & {(code.co_filename, line) for *_, line in code.co_lines()}]
    return named[0] if len(named) == 1 else outer


def _kind_of(chain: list[BaseException], owner: Any) -> str:
    """Return which entry of ``refusals.toml`` explains an error; empty if none does."""
    if hasattr(owner, "trainable_weights") and _changes_size(owner):
        return "changing_output"
    if type(owner).__name__ in _PREPROCESSING_LAYERS:
        return "preprocessing"
    files = [frame.f_code.co_filename for error in chain for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_foreign = any("/site-packages/tensorflow/" in file or "/tensorflow_hub/" in file for file in files)
    is_foreign &= not any(type(one).__module__.startswith("tensorflow.") for one in chain)  # it ran, and failed
    if (is_foreign or type(owner).__name__ in _TENSORFLOW_LAYERS) and not loaded_framework().runs_tensorflow:
        return "preprocessing" if _TEXT_FILES.search("\n".join(files)) else "tensorflow"
    patterns = [(name, one) for name, kind in _KINDS.items() for one in kind.get("says", ())]
    for error in reversed(chain):
        # JAX's messages go on with remedies for other cases, so only the beginning counts.
        text = f"{' '.join(kind.__name__ for kind in type(error).__mro__)} {error}"[:600]
        if name := next((name for name, one in patterns if re.search(one, text)), ""):
            called = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
            own = max((number for number, file in enumerate(called) if is_own_file(file)), default=len(called))
            # Keras's own code needs the value of a number that it was given, such as the k of top_k.
            in_keras = name in {"decision", "number"} and any("/keras/src/ops/" in file for file in called[own:])
            return "size" if in_keras else name
    return ""


def _subject(owner: Any) -> str:
    if isinstance(owner, keras.Loss | keras.Metric):
        function = getattr(owner, "fn", None)
        name = getattr(getattr(function, "func", function), "__name__", owner.name)
        return f"The {'loss' if isinstance(owner, keras.Loss) else 'metric'} '{name}'"
    return "The model" if owner is None else layer_text(owner)
