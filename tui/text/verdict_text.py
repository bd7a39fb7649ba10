"""Formats the figures of a verdict as short texts for sentences and table cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpu_console.engine.preflight.likely import kaggle_share

from .numbers import NONE, duration, flop, gib, plural, size

if TYPE_CHECKING:
    from tpu_console.engine.findings import Finding
    from tpu_console.engine.preflight.likely import InputThroughput, Likely, QuotaShare
    from tpu_console.engine.preflight.result import Bound, Memory, Verdict

_SHOWN = 2**16  # bytes of memory that are worth a word
_LIMITS = {"compute": "compute", "memory": "memory bandwidth", "exchange": "the gradient exchange"}


def pace_text(bound: Bound) -> str:
    """Say the best-case speed of a run."""
    parts = [f"{bound.images_per_s:,.0f} examples/s"]
    parts += [] if bound.epoch_s is None else [f"{duration(bound.epoch_s)} per epoch"]
    parts += [] if bound.run_s is None else [f"{duration(bound.run_s)} for the run"]
    return ", ".join(parts)


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


def share_text(share: QuotaShare) -> str:
    """Write a share of Kaggle's weekly quota."""
    percent = 100 * share.week
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


def likely_text(likely: Likely, tpu: str) -> str:
    """Say how long a step and the run will likely take, what of a quota that is, and how it is known."""
    if likely.high_s is None:
        step, run = f"at least {duration(likely.low_s)} per step", _range("at least ", likely.run_low_s, None)
    else:
        step, run = (
            f"{_range('', likely.low_s, likely.high_s)} per step",
            _range("", likely.run_low_s, likely.run_high_s),
        )
    parts = [step, *([f"{run} for the run"] if run else [])]
    share = kaggle_share(tpu, likely.run_high_s or likely.run_low_s)
    if share is not None:
        of_week = share_text(share)
        word = "" if of_week.startswith("<") else "at least " if likely.high_s is None else "up to "
        parts.append(f"{word}{of_week} of Kaggle's week")
    text = ", ".join(parts)
    known = f" (from {likely.source})" if likely.source else ""
    if likely.limited_by == "input":
        return f"{text}; input-bound, as measured on this machine{known}"
    if likely.limited_by == "host":
        return f"{text}: Keras needs that long on the host to start a step, and a larger batch does more in each{known}"
    return f"{text}{known or ' (no run of yours and no published figure says how much more)'}"


def _range(before: str, low: float | None, high: float | None) -> str:
    if low is None:
        return ""
    if high is None or duration(high) == duration(low):
        return f"{before}{duration(low)}"
    return f"{before}{duration(low)} to {duration(high)}"


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
    """Say how much a step computes, moves in memory and exchanges, and what limits it."""
    least = "at least " if bound.is_partial else ""
    return (
        f"{least}{flop(bound.flops)}, {size(round(bound.hbm_bytes))} moved in memory and "
        f"{size(round(bound.all_reduce_bytes))} exchanged per device and step; "
        f"at best {duration(bound.step_s)}, limited by {_LIMITS.get(bound.limited_by, bound.limited_by)}"
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


def quota_text(share: QuotaShare) -> str:
    """Say what share of Kaggle's free quota the run takes."""
    text = f"at best {share_text(share)} of Kaggle's 20 free hours per week"
    if share.session <= 1:
        return f"{text}, in one session of 9 hours"
    return f"{text}, over {-int(-share.session // 1)} sessions of 9 hours"


def finding_text(finding: Finding) -> str:
    """Write a finding with its layer, the user's line, and its remedy."""
    layer = "" if not finding.layer or finding.layer in finding.text else f"{finding.layer}: "
    remedy = f"{finding.remedy.rstrip('.')}." if finding.remedy else ""
    return " ".join(part for part in (f"{layer}{finding.text}", *finding.evidence, remedy) if part)
