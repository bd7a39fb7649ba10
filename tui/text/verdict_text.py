"""Formats the figures of a verdict as short texts for sentences and table cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tpu_console.engine.preflight.likely import kaggle_share

from .numbers import NONE, duration, flop, gib, plural, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpu_console.engine.findings import Finding
    from tpu_console.engine.preflight.likely import InputThroughput, QuotaShare
    from tpu_console.engine.preflight.result import Bound, Memory, Verdict

_SHOWN = 2**16  # bytes of memory that are worth a word
_LIMITS = {"compute": "compute", "memory": "memory bandwidth", "exchange": "the gradient exchange"}


def best_text(bound: Bound) -> str:
    """Say the best-case speed of a run, and what limits it."""
    parts = [] if bound.run_s is None else [f"{duration(bound.run_s)} for the run"]
    parts += [f"{duration(bound.step_s)} per step", f"{pace_text(bound.images_per_s)} examples/s"]
    limit = _LIMITS.get(bound.limited_by, bound.limited_by)
    return f"{', '.join(parts)}: the compiler's bound, limited by {limit}"


def feeding_text(verdict: Verdict, feeding: InputThroughput) -> str:
    """Compare the input speed measured here with what the TPU could take."""
    have = f"{feeding.measured_per_s:,.0f}/s measured on {plural(feeding.cores, 'core')}"
    wants = f"{choice_text(verdict)} needs up to {feeding.wanted_per_s:,.0f}/s"
    if feeding.keeps_up:
        return f"{have} is enough: {wants}"
    if feeding.is_too_much:
        return f"{have}; {wants}, for which no TPU's host has enough cores: make the input cheaper"
    where = "" if verdict.hosts <= 1 else f" on each of {verdict.hosts} hosts"
    return f"{have}; {wants}: about {plural(feeding.cores_needed, 'such core')}{where} would be enough"


def choice_text(verdict: Verdict) -> str:
    """Name a choice, such as ``v5e-8, 128 per replica, float32``."""
    return f"{verdict.tpu}, {verdict.replica_batch:,} per replica, {verdict.precision}"


def headroom(memory: Memory) -> str:
    """Write the free memory in percent, or how much is missing; a dash if only a lower bound of the peak is known."""
    percent = round(100 * memory.headroom)
    if memory.is_lower_bound and percent >= 0:
        return NONE
    return f"{percent}%" if percent >= 0 else f"{-percent}% over"


def share_text(share: float) -> str:
    """Write a share of Kaggle's weekly quota."""
    percent = 100 * share
    if percent < 0.05:
        return "<0.1%"
    return f"{percent:,.0f}%" if percent >= 9.5 else f"{percent:.1f}%"


def peak_text(memory: Memory) -> str:
    """Write the peak memory; a lower bound begins with ``>``."""
    return f"{'>' if memory.is_lower_bound else ''}{gib(memory.peak)}"


def memory_text(memory: Memory) -> str:
    """List what uses the memory of a device."""
    parts = {"parameters": memory.parameters, "optimizer": memory.optimizer, "batch": memory.batch}
    if not memory.is_lower_bound:
        parts |= {"activations and gradients": memory.temporaries, "program code": memory.code}
        parts["padding and results"] = memory.other
    text = ", ".join(f"{name} {gib(count)}" for name, count in parts.items() if count >= _SHOWN)
    if memory.is_lower_bound:
        return f"needs at least {gib(memory.peak)} of {gib(memory.limit)}: {text}"
    return f"{gib(memory.peak)} at its peak: {text}"


def likely_pace(verdict: Verdict) -> tuple[float | None, float | None]:
    """Return the examples per second over all devices that a verdict's steps will likely reach: from and to."""
    low_s, high_s = verdict.expected(None if verdict.bound is None else verdict.bound.step_s)
    return high_s and verdict.global_batch / high_s, low_s and verdict.global_batch / low_s


def likely_text(verdict: Verdict) -> str:
    """Say how long the run and a step will likely take, how many examples per second that is, and why."""
    bound = verdict.bound
    if bound is None:
        return ""
    run = f"{span(*verdict.expected(bound.run_s))} for the run, " if bound.run_s is not None else ""
    pace = span(*likely_pace(verdict), write=pace_text)
    return f"{run}{span(*verdict.expected(bound.step_s))} per step, {pace} examples/s: {likely_why(verdict)}"


def likely_why(verdict: Verdict) -> str:
    """Say what the likely time follows from."""
    likely = verdict.likely
    if likely is None:
        return "what the compiler says is possible at best"
    known = f", from {likely.source}" if likely.source else ""
    if likely.limited_by == "input":
        return f"input-bound, as measured on this machine{known}"
    if likely.limited_by == "host":
        step = duration(likely.low_s)
        return f"Keras needs {step} on the host to start a step, and a larger batch does more in each{known}"
    return known.removeprefix(", ") or "no run of yours says how much more than at best"


def pace_text(examples_per_s: float) -> str:
    """Write examples per second."""
    return f"{examples_per_s:,.0f}"


def span(
    low: float | None, high: float | None, best: float | None = None, write: Callable[[float], str] = duration
) -> str:
    """Write a likely figure, such as ``≥ 0.13 s`` or ``45 s – 56 s``, with the best case in parentheses if it differs.

    Of a figure without `high` only the least is known, and without `low` the most.
    """
    texts = [write(one) for one in (low, high) if one is not None]
    text = " – ".join(dict.fromkeys(texts)) if len(texts) == 2 else f"{'≤' if low is None else '≥'} {texts[0]}"
    return text if best is None or write(best) in texts else f"{text} ({write(best)})"


def filling_text(verdict: Verdict) -> str:
    """List what needs most of the memory, with its share of all that is needed; empty if that is unknown."""
    peak = verdict.memory.peak if verdict.memory is not None else 0
    return "; ".join(
        f"{one.what} of {one.layer} ({one.kind}) {gib(one.size)}, {_percent(one.size / peak)}"
        for one in verdict.fillings
        if peak
    )


def _percent(share: float) -> str:
    return "<1%" if share < 0.01 else f"{min(1.0, share):.0%}"


def bound_text(bound: Bound) -> str:
    """Say how much a step computes, moves in memory and exchanges."""
    least = "at least " if bound.is_partial else ""
    return (
        f"{least}{flop(bound.flops)}, {size(round(bound.hbm_bytes))} moved in memory and "
        f"{size(round(bound.all_reduce_bytes))} exchanged per device and step"
    )


def largest_text(verdict: Verdict) -> str:
    """Say the largest batch that fits, and compare the batches worth choosing; empty if it was not searched."""
    if verdict.largest_batch is None:
        return ""
    largest = verdict.largest_batch
    if not largest:
        return "not even a batch of 1 fits"
    first = f"{largest:,} per replica fits, {largest * verdict.devices:,} in total"
    if verdict.dataset_is_limit:
        first += ", which is as many as the dataset has for one step"
    if verdict.too_large_batch is not None:
        first += f"; {verdict.too_large_batch:,} does not"
    each = [
        f"{one.replica_batch:,} needs {gib(one.peak)}, at best {one.images_per_s:,.0f} examples/s"
        for one in verdict.batches
    ]
    return "; ".join([first, *each])


def quota_text(verdict: Verdict) -> str:
    """Say what share of Kaggle's free quota the run will likely take; empty if there is none for this TPU."""
    low, high = _quotas(verdict)
    if low is None:
        return ""
    sessions = math.ceil((high or low).session)
    over = "in one session of 9 hours" if sessions <= 1 else f"over {sessions} sessions of 9 hours"
    return f"{quota_cell(verdict)} of Kaggle's 20 free hours per week, {over}"


def quota_cell(verdict: Verdict) -> str | None:
    """Write that share for a cell; None if there is none."""
    low, high = _quotas(verdict)
    if low is None:
        return None
    text = share_text(low.week)
    return (
        text
        if high is None and text.startswith("<")
        else span(low.week, None if high is None else high.week, write=share_text)
    )


def _quotas(verdict: Verdict) -> tuple[QuotaShare | None, QuotaShare | None]:
    low, high = verdict.expected(None if verdict.bound is None else verdict.bound.run_s)
    return kaggle_share(verdict.tpu, low), kaggle_share(verdict.tpu, high)


def finding_text(finding: Finding) -> str:
    """Write a finding with its layer, the user's line, and its remedy."""
    layer = "" if not finding.layer or finding.layer in finding.text else f"{finding.layer}: "
    remedy = f"{finding.remedy.rstrip('.')}." if finding.remedy else ""
    return " ".join(part for part in (f"{layer}{finding.text}", *finding.evidence, remedy) if part)
