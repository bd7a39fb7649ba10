"""Compiles other batches and settings than those that were asked for: which fit, and what they would need."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import ConsoleError
from ..findings import Finding, Severity
from ..planning.example_count import train_examples_of
from .build import NotPossibleError, build
from .compile import DoesNotFitError, Program, bytes_of
from .fitting import changes, table_gradient, why_no_batch_fits
from .result import BatchFigures, Memory
from .search import LARGEST, largest_batch, worth_choosing
from .steps import RefusedError, about, bound, gib, lowered, program, refusing, started

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .fitting import Change
    from .result import Verdict
    from .steps import Subject
    from .topologies import Topology


def with_largest_batch(
    subject: Subject, found: Verdict, topology: Topology, known: Mapping[int, Program | Memory]
) -> Verdict:
    """Add the largest batch that fits and the batches worth choosing to a verdict.

    `known` has the program, or the memory of one that does not fit, of each batch that was compiled already.
    """
    compiled: dict[int, Program | Memory | None] = dict(known)

    def probe(size: int) -> tuple[bool, int]:
        if size not in compiled:
            tried = about(subject, f"searching the largest batch, {size:,} per device")
            try:
                compiled[size] = program(tried, lowered(tried, "training", size), "training", size)
            except DoesNotFitError as error:
                compiled[size] = error.memory
            except RefusedError:  # it says nothing about the batch that was asked for
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
            best = bound(subject, made, topology, size)
            batches.append(BatchFigures(size, made.memory.peak, best.images_per_s))
    is_limit = examples is not None and largest == most
    return replace(found, largest_batch=largest, batches=tuple(batches), dataset_is_limit=is_limit)


def changes_that_fit(subject: Subject, memory: Memory, topology: Topology) -> Iterator[Finding]:
    """Compile the step with each change that may make it fit, and report those that do."""
    gradient = table_gradient(subject.model)
    reason, remedy = why_no_batch_fits(memory, gradient)
    if reason:
        yield Finding(Severity.INFO, reason, remedy=remedy)
    fitting: list[Change] = []
    for one in changes(subject.config, memory, topology, gradient):
        if one.key and any(one.key == before.key for before in fitting):
            continue
        try:
            compiler = subject.compiler if one.topology is topology else started(one.config, one.topology)
            with refusing():
                model = build(one.config, subject.batch, one.topology.devices)
            changed = replace(subject, config=one.config, compiler=compiler, model=model)
            changed = about(changed, f"trying {one.text.removeprefix('with ')}")
            found = program(changed, lowered(changed, "training"), "training").memory
        except (DoesNotFitError, NotPossibleError, RefusedError, ConsoleError):
            continue
        fitting.append(one)
        text = f"It fits {one.text}: {gib(found.peak)} of {gib(found.limit)}."
        yield Finding(Severity.INFO, text, remedy=one.remark, key=one.key)
    if not fitting:
        text = "None of the changes that were tried makes it fit: other precisions, optimizers, batches and TPUs."
        yield Finding(Severity.INFO, text, remedy="Make the layers that need the most memory smaller.")
