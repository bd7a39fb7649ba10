"""Compiles other batches and settings than those that were asked for: which fit, and what they would need."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import ConsoleError
from ..findings import Finding, Severity
from ..planning.example_count import train_examples_of
from .build import build
from .compile import DoesNotFitError, bytes_of
from .fitting import changes, table_gradient, why_no_batch_fits
from .inputs import batch_of
from .result import BatchFigures
from .search import LARGEST, largest_fitting, next_batch, smallest_too_large, worth_choosing
from .steps import RefusedError, about, bound, gib, lowered, program, refusing, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .fitting import Change
    from .result import Memory, Verdict
    from .steps import Subject
    from .topologies import Topology


def search_largest(subject: Subject, found: Verdict, memory: Memory) -> Iterator[Verdict]:
    """Search the largest batch that fits, and yield the verdict with what is known of it after each compile.

    `found` is the verdict on the batch that was asked for, and `memory` what that needs. Batches that an earlier search
    tried are not compiled again.
    """
    asked = BatchFigures(found.replica_batch, memory.peak, 0.0, fits=False)
    if found.bound is not None:
        asked = replace(asked, images_per_s=found.bound.images_per_s, fits=True)
    tried = {one.replica_batch: one for one in (asked, *found.tried)}
    known = {0: (True, bytes_of([*subject.model.variables, *subject.model.optimizer.variables]))}
    known |= {size: (one.fits, one.peak) for size, one in tried.items()}
    examples = train_examples_of(subject.config)
    most = LARGEST if examples is None else max(1, examples // found.devices)

    def searched() -> Verdict:
        largest = largest_fitting(known)
        worth = [tried[size] for size in worth_choosing(largest, found.replica_batch) if size in tried]
        return replace(
            found,
            largest_batch=largest,
            too_large_batch=smallest_too_large(known),
            tried=tuple(tried.values()),
            batches=tuple(one for one in worth if one.fits),
            dataset_is_limit=examples is not None and largest == most,
        )

    def compile_batch(size: int, what: str) -> Verdict:
        one = tried[size] = _figures(about(subject, f"{what}, {size:,} per device"), size)
        known[size] = (one.fits, one.peak)
        return searched()

    yield searched()
    took = f", first try {found.compile_s:.0f} s" if found.compile_s else ""
    while (size := next_batch(known, memory.limit, largest=most)) is not None:
        yield compile_batch(size, f"searching the largest batch ({largest_fitting(known):,} fits{took})")
    for size in worth_choosing(largest_fitting(known), found.replica_batch):
        if size not in tried:
            yield compile_batch(size, "comparing batches")


def _figures(subject: Subject, size: int) -> BatchFigures:
    """Compile the training step with another batch."""
    topology = subject.compiler.topology
    try:
        made = program(subject, lowered(subject, "training", size), "training", size)
    except DoesNotFitError as error:
        return BatchFigures(size, error.memory.peak, 0.0, fits=False)
    except RefusedError:  # it says nothing about the batch that was asked for
        return BatchFigures(size, topology.usable_hbm_bytes, 0.0, fits=False)
    return BatchFigures(size, made.memory.peak, bound(subject, made, topology, size).images_per_s)


def changes_that_fit(subject: Subject, memory: Memory, topology: Topology) -> Iterator[Finding]:
    """Compile the step with each change that may make it fit, and report those that do.

    Of other kinds of TPU, which need about the same memory for the same step, one that fits is enough: the rest are
    named.
    """
    gradient = table_gradient(subject.model)
    reason, remedy = why_no_batch_fits(memory, gradient)
    if reason:
        yield Finding(Severity.INFO, reason, remedy=remedy)
    fitting: list[Change] = []
    others: list[Change] = []
    for one in changes(subject.config, memory, topology, gradient):
        is_other_kind = one.topology.generation is not topology.generation
        if is_other_kind and any(before.topology.generation is not topology.generation for before in fitting):
            others.append(one)
        elif not (one.key and any(one.key == before.key for before in fitting)) and (found := _memory(subject, one)):
            fitting.append(one)
            text = f"It fits {one.text}: {gib(found.peak)} of {gib(found.limit)}."
            yield Finding(Severity.INFO, text, remedy=one.remark, key=one.key, is_change=True)
    if others:
        named = ", ".join(f"{one.topology.name} with batch_size={one.config.batch_size}" for one in others)
        text = f"By the same figures, other kinds of TPU have room for the same step: {named}. These were not compiled."
        yield Finding(Severity.INFO, text)
    if not fitting:
        text = "None of the changes that were tried makes it fit: other settings, batches and TPUs."
        yield Finding(Severity.INFO, text, remedy="Make the layers that need the most memory smaller.")


def _memory(subject: Subject, change: Change) -> Memory | None:
    """Return what the step needs with a change; None if it does not fit or cannot be compiled."""
    try:
        is_here = change.topology is subject.compiler.topology
        compiler = subject.compiler if is_here else started(change.config, change.topology)
        with refusing():
            model, batch = build(change.config, batch_of(change.config), change.topology.devices, change.adapt)
        changed = replace(subject, config=change.config, compiler=compiler, model=model, batch=batch)
        changed = about(changed, f"trying {change.text.removeprefix('with ')}")
        return program(changed, lowered(changed, "training"), "training").memory
    except (DoesNotFitError, RefusedError, ConsoleError):
        return None
