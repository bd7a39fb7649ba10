"""Finds the largest batch that fits, with few compiles.

The HBM that a step needs grows almost linearly with the batch, so a line through two results shows where it meets the
limit. Where that misses twice on the same side, the middle is tried. Only multiples are tried, about 1% of the batch
apart: a finer answer would not change a run, and each try takes as long as a compile.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ..config.batch import padded
from ..errors import ConsoleError
from ..findings import Finding, Severity
from ..planning.example_count import train_examples_of
from .build import build
from .compile import DoesNotFitError, RefusedError, about, bound, bytes_of, gib, lowered, program, refusing, started
from .fitting import changes, table_gradient, why_no_batch_fits
from .inputs import batch_of
from .result import BatchFigures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .compile import Subject
    from .fitting import Change
    from .result import Memory, Verdict
    from .topologies import Topology

    Tried = Mapping[int, tuple[bool, int]]
    """Whether each batch per device fits and the bytes that it needs, in the order of the tries."""


MULTIPLE = 8  # a TPU pads batches to multiples of it
LARGEST = 16_384  # the largest batch per device that is tried if the number of examples is unknown
_TILE = 128  # the side of the matrix unit, to which sums over the batch are padded
_NEAR = 1.05  # how many times larger a multiple of 128 may be to be tried after a batch that does not fit
_FINE = 64  # the least number of steps that a batch of many multiples is searched by
_MOST = 16  # results after which a search ends, however memory grows


def next_batch(tried: Tried, limit: int, multiple: int = MULTIPLE, largest: int = LARGEST) -> int | None:
    """Return the batch to compile next; None if the search is over.

    Args:
        tried: The results so far; that of a batch of 0 is what any batch needs: weights and optimizer slots.
        limit: The bytes that a device has.
        multiple: Batches are multiples of it, large ones of a power of two times it; below it every size counts.
        largest: The largest batch that makes sense, such as all examples of the dataset.
    """
    low, high = largest_fitting(tried), smallest_too_large(tried)
    if low >= largest or tried[0][1] >= limit or len(tried) > _MOST:
        return None
    aim = _meeting(tried, limit)
    step = multiple if high is None or high > multiple else 1
    while step >= multiple and 2 * step * _FINE <= min(aim, largest):
        step *= 2
    if high is None and aim > largest - step:
        return largest
    first, last = padded(low + 1, step), ((high or largest + 1) - 1) // step * step
    if first <= last:
        if high is not None and _is_one_sided(tried):
            aim = math.sqrt(low * high) if 0 < 4 * low < high else (low + high) / 2
        return min(max(int(aim) // step * step, first), last)
    better = padded(high or largest, _TILE)  # may be laid out better than the batches below it
    return better if better <= min(largest, low * _NEAR) and better not in tried else None


def largest_fitting(tried: Tried) -> int:
    """Return the largest batch that is known to fit; 0 if none is."""
    return max((batch for batch, (fits, _) in tried.items() if fits), default=0)


def smallest_too_large(tried: Tried) -> int | None:
    """Return the smallest batch that is known not to fit, of those above all that do; None if there is none."""
    low = largest_fitting(tried)
    return min((batch for batch, (fits, _) in tried.items() if not fits and batch > low), default=None)


def worth_choosing(largest: int, wanted: int) -> list[int]:
    """Return up to three batches, the largest first: it, its largest multiple of 128 or 8, and the wanted or half."""
    multiple = next((largest // tile * tile for tile in (_TILE, MULTIPLE) if largest >= tile), largest)
    smaller = wanted if 0 < wanted < largest and wanted != multiple else multiple // 2
    return sorted({batch for batch in (largest, multiple, smaller) if batch > 0}, reverse=True)


def _meeting(tried: Tried, limit: int) -> float:
    """Return the batch at which a line meets the limit: through the batches beside it, or the largest two that fit."""
    fitting = sorted(batch for batch, (fits, _) in tried.items() if fits)
    high = smallest_too_large(tried)
    left, right = [0, *fitting, *([] if high is None else [high])][-2:]
    below, above = tried[left][1], tried[right][1]
    return left + (limit - below) * (right - left) / (above - below) if above > below else math.inf


def _is_one_sided(tried: Tried) -> bool:
    """Return whether the last two tries both fit or both did not: following the line again could go on like that."""
    *_, before, last = (fits for fits, _ in tried.values())
    return before == last


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
            yield Finding(Severity.INFO, text, key=one.key, is_change=True)
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
        compiler = subject.compiler if is_here else started(change.topology)
        with refusing():
            model, batch = build(change.config, batch_of(change.config), change.topology.devices)
        changed = replace(subject, config=change.config, compiler=compiler, model=model, batch=batch)
        changed = about(changed, f"trying {change.text}")
        return program(changed, lowered(changed, "training"), "training").memory
    except (DoesNotFitError, RefusedError, ConsoleError):
        return None
