"""The figures of a verdict in words, each a text that fits into a sentence or a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .numbers import duration, plural, size

if TYPE_CHECKING:
    from tpu_console.engine.findings import Finding
    from tpu_console.engine.preflight.input_throughput import InputThroughput
    from tpu_console.engine.preflight.quota import Share
    from tpu_console.engine.preflight.result import Bound, Memory, Verdict

_LIMITS = {"compute": "the matrix units", "memory": "the memory", "exchange": "the exchange of gradients"}


def pace_text(bound: Bound, unit: str) -> str:
    """Say what a run could be at best."""
    parts = [f"{bound.images_per_s:,.0f} {unit}s/s"]
    parts += [] if bound.epoch_s is None else [f"an epoch in {span(bound.epoch_s)}"]
    parts += [] if bound.run_s is None else [f"the whole run in {span(bound.run_s)}"]
    return ", ".join(parts)


def feeding_text(verdict: Verdict, feeding: InputThroughput) -> str:
    """Say what the input gave here and what a TPU could take."""
    have = f"{feeding.measured_per_s:,.0f}/s measured here on {plural(feeding.cores, 'core')}"
    wants = f"{choice_text(verdict)} could take {feeding.wanted_per_s:,.0f}/s at best"
    if feeding.keeps_up:
        return f"{have} keep up: {wants}"
    where = "" if verdict.hosts <= 1 else f" on each of {verdict.hosts} hosts"
    return f"{have}; {wants}: about {plural(feeding.cores_needed, 'such core')}{where} would keep up"


def choice_text(verdict: Verdict) -> str:
    """Name a choice, such as ``v5e-8, 128 a replica, float32``."""
    return f"{verdict.tpu}, {verdict.replica_batch:,} a replica, {verdict.precision}"


def gib(count: float) -> str:
    """Write bytes of HBM as its makers do, in powers of 1024, such as ``15.75 GiB`` or ``30.3 MiB``."""
    return f"{count / 2**30:,.2f} GiB" if count >= 0.1 * 2**30 else f"{count / 2**20:.1f} MiB"


def span(seconds: float | None) -> str:
    """Write how long an epoch or a run takes at best; a dash where that is not known."""
    if seconds is None:
        return "–"
    return duration(seconds) if seconds >= 0.1 else f"{milliseconds(seconds)} ms"


def flop(count: float) -> str:
    """Write a number of floating-point operations, such as ``1.44 TFLOP``."""
    value, units = count, ["", "k", "M", "G", "T", "P"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.3g} {units[0]}FLOP"


def milliseconds(seconds: float) -> str:
    """Write the time of a step in milliseconds with three digits."""
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def headroom(memory: Memory) -> str:
    """Write what stays free in percent, or how much is missing; a dash if only a lower bound of the peak is known."""
    percent = round(100 * memory.headroom)
    if memory.is_lower_bound and percent >= 0:
        return "–"
    return f"{percent} %" if percent >= 0 else f"{-percent} % over"


def share_text(share: Share) -> str:
    """Write a share of Kaggle's week."""
    percent = 100 * share.week
    if percent < 0.05:
        return "< 0.1 %"
    return f"{percent:,.0f} %" if percent >= 9.5 else f"{percent:.1f} %"


def peak_text(memory: Memory) -> str:
    """Write the peak memory; a lower bound begins with ``>``."""
    return f"{'>' if memory.is_lower_bound else ''}{gib(memory.peak)}"


def memory_text(memory: Memory) -> str:
    """Say what the memory of a device is filled with."""
    parts = {"parameters": memory.parameters, "optimizer": memory.optimizer, "batch": memory.batch}
    if not memory.is_lower_bound:
        parts["activations and the rest of a step"] = memory.temporaries
    text = ", ".join(f"{name} {size(count)}" for name, count in parts.items())
    if memory.is_lower_bound:
        return f"needs at least {gib(memory.peak)} of {gib(memory.limit)}: {text}; the compiler was not asked"
    free = " free" if memory.headroom >= 0 else ""
    return f"peak {gib(memory.peak)} of {gib(memory.limit)}, {headroom(memory)}{free}: {text}"


def bound_text(bound: Bound) -> str:
    """Say what a step does and what limits it."""
    return (
        f"{flop(bound.flops)}, {size(round(bound.hbm_bytes))} moved in memory and "
        f"{size(round(bound.all_reduce_bytes))} exchanged, a device and step; "
        f"at best {milliseconds(bound.step_s)} ms, limited by {_LIMITS.get(bound.limited_by, bound.limited_by)}"
    )


def largest_text(verdict: Verdict) -> str:
    """Say the largest batch that fits, with the multiples that suit the matrix unit; empty when not searched."""
    if verdict.largest_batch is None:
        return ""
    largest = verdict.largest_batch
    if not largest:
        return "no batch fits, not even of one example"
    multiples = [
        f"{largest // tile * tile:,} is the largest multiple of {tile}" for tile in (8, 128) if largest >= tile
    ]
    return "; ".join([f"{largest:,} a replica fit, {largest * verdict.devices:,} in all", *multiples])


def quota_text(share: Share) -> str:
    """Say what part of Kaggle's free time the run takes."""
    text = f"at best {share_text(share)} of Kaggle's 20 hours a week"
    if share.session <= 1:
        return f"{text}, in one session of 9 hours"
    return f"{text}, over {-int(-share.session // 1)} sessions of 9 hours"


def finding_text(finding: Finding) -> str:
    """Write a finding with its layer and remedy."""
    layer = "" if not finding.layer or finding.layer in finding.text else f"{finding.layer}: "
    remedy = f"{finding.remedy.rstrip('.')}." if finding.remedy else ""
    return " ".join(part for part in (f"{layer}{finding.text}", remedy) if part)
