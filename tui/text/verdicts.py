"""Formats the verdicts of a preflight: short texts of their figures, tables of all choices, and notes on them."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tpu_console.engine.findings import Finding, Severity
from tpu_console.engine.preflight.likely import InputThroughput, QuotaShare, input_throughput_of, kaggle_share
from tpu_console.engine.preflight.result import Bound, Memory, Outcome, Verdict

from .numbers import NONE, duration, flop, gib, plural, size
from .tables import NAME_CELLS, Column, as_lines, labelled, paragraphs, table, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tpu_console.engine.config.run_config import RunConfig

T = TypeVar("T")

_PIPE_CELLS = 100
_MOST_WASTES = 8
_LEAST_WASTE = 0.01  # least padding to show, as a share of the whole step's operations
_MOST_SAID = 6  # lines of the compiler's message
_NAMED = 4  # most choices that a sentence lists
_LOWER_BOUND = "> means at least: weights, optimizer slots and the batch."
_CHANGE = "change"  # what makes a choice compile, or fit
_LABELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_SHOWN = 2**16  # bytes of memory that are worth a word
_LIMITS = {"compute": "compute", "memory": "memory bandwidth", "exchange": "the gradient exchange"}


def _best_text(bound: Bound) -> str:
    """Say the best-case speed of a run, and what limits it."""
    parts = [] if bound.run_s is None else [f"{duration(bound.run_s)} for the run"]
    parts += [f"{duration(bound.step_s)} per step", f"{pace_text(bound.images_per_s)} examples/s"]
    limit = _LIMITS.get(bound.limited_by, bound.limited_by)
    return f"{', '.join(parts)}: the compiler's bound, limited by {limit}"


def _feeding_text(verdict: Verdict, feeding: InputThroughput) -> str:
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
    parts = []
    for one in verdict.fillings if peak else ():
        share = one.size / peak
        written = "<1%" if share < 0.01 else f"{min(1.0, share):.0%}"
        parts.append(f"{one.what} of {one.layer} ({one.kind}) {gib(one.size)}, {written}")
    return "; ".join(parts)


def _bound_text(bound: Bound) -> str:
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


def verdict_lines(verdicts: Sequence[Verdict], width: int | None) -> list[str]:
    """Write all verdicts, one per choice, with notes."""
    room = width or _PIPE_CELLS
    parts = [
        _memory_table(verdicts, width),
        [*_time_table(verdicts, width), *_likely_reasons(verdicts, room)],
        _reasons(verdicts, room),
        [line for verdict in verdicts for line in _largest(verdict, verdicts, room)],
        _findings(verdicts, room),
        *_wastes(verdicts, width),
    ]
    return paragraphs(parts)


def detail_lines(config: RunConfig, verdict: Verdict, name: str, width: int) -> list[str]:
    """Write everything about one verdict except its row in the tables.

    The name is the argument of `tpu-console inspect` that measures the input.
    """
    alone = [verdict]
    feeding = feeding_lines(config, alone, name, width)
    lines = [*_reasons(alone, width), *_largest(verdict, alone, width), *feeding, *_findings(alone, width)]
    return paragraphs([lines, *_wastes(alone, width)])


def advice_lines(advice: Sequence[Finding], width: int | None) -> list[str]:
    """Write the advice on a configuration that needs no compiler."""
    room = width or _PIPE_CELLS
    return [line for one in advice for line in wrapped(_LABELS[one.severity], finding_text(one), room)]


def feeding_lines(config: RunConfig, verdicts: Sequence[Verdict], name: str, width: int | None) -> list[str]:
    """Say whether the input pipeline can keep up with the TPU's best-case speed; `inspect` measures it by the name."""
    room = width or _PIPE_CELLS
    fastest: dict[str, tuple[Verdict, InputThroughput | None]] = {}
    for verdict in verdicts:
        if verdict.bound is None:
            continue
        there = fastest.get(verdict.tpu)
        if there is None or there[0].bound is None or verdict.bound.images_per_s > there[0].bound.images_per_s:
            fastest[verdict.tpu] = (verdict, input_throughput_of(config, verdict))
    if not fastest:
        return []
    known = [(verdict, feeding) for verdict, feeding in fastest.values() if feeding is not None]
    if not known:
        return wrapped("input", f"not measured here; run: tpu-console inspect {name} --speed", room)
    lines = [line for verdict, feeding in known for line in wrapped("input", _feeding_text(verdict, feeding), room)]
    if all(feeding.keeps_up for _, feeding in known):
        return lines
    return [*lines, *wrapped("", f"What to change: tpu-console inspect {name} --speed", room)]


def shared(verdicts: Sequence[Verdict], parts: Callable[[Verdict], Iterable[T]]) -> list[tuple[T, list[Verdict]]]:
    """Return each distinct part of the verdicts once, with the verdicts that contain it."""
    said: list[tuple[T, list[Verdict]]] = []
    for verdict in verdicts:
        for part in parts(verdict):
            for other, sayers in said:
                if other == part:
                    sayers.append(verdict)
                    break
            else:
                said.append((part, [verdict]))
    return said


def _of_memory(write: Callable[[Memory], str]) -> Callable[[Verdict], str | None]:
    return lambda verdict: None if verdict.memory is None else write(verdict.memory)


def _likely(pick: Callable[[Bound], float | None]) -> Callable[[Verdict], str | None]:
    """Return what writes a time: how long it will likely be, and in parentheses how long at best."""

    def text(verdict: Verdict) -> str | None:
        best = None if verdict.bound is None else pick(verdict.bound)
        return None if best is None else span(*verdict.expected(best), best)

    return text


def _pace(verdict: Verdict) -> str | None:
    bound = verdict.bound
    return None if bound is None else span(*likely_pace(verdict), bound.images_per_s, pace_text)


_CHOICE = (
    Column("TPU", 11, key="tpu", value=lambda verdict: verdict.tpu),
    Column("Batch", 10, right=True, key="batch", value=lambda verdict: f"{verdict.replica_batch:,}"),
    Column("Precision", 9, key="precision", value=lambda verdict: verdict.precision.removeprefix("mixed_")),
)
_GLOBAL = Column("Global", 2, right=True, key="global", value=lambda verdict: f"{verdict.global_batch:,}")
_VERDICT = Column("Verdict", 12, key="verdict", value=lambda verdict: verdict.outcome.value)
_PEAK = Column(
    "HBM peak",
    8,
    right=True,
    key="peak",
    value=_of_memory(lambda memory: f"{'>' * memory.is_lower_bound}{gib(memory.peak)}"),
)
_LIMIT = Column("Limit", 3, right=True, key="limit", value=_of_memory(lambda memory: gib(memory.limit)))
_FREE = Column("Free", 4, right=True, key="free", value=_of_memory(headroom))
_REMARK = Column("", 1, key="remark", value=lambda verdict: "cached" if verdict.is_remembered else "")
_SPEED = (
    Column("Whole run (at best)", 7, right=True, key="run", value=_likely(lambda bound: bound.run_s)),
    Column("Epoch (at best)", 3, right=True, key="epoch", value=_likely(lambda bound: bound.epoch_s)),
    Column("Step (at best)", 5, right=True, key="step", value=_likely(lambda bound: bound.step_s)),
    Column("examples/s (at best)", 6, right=True, key="pace", value=_pace),
)
_WEEK = Column("Kaggle week", 2, right=True, key="week", value=quota_cell)
_LIMITED_BY = Column("Limited by", 4, key="limited_by", value=lambda verdict: verdict.limited_by)

_MARKS = {
    Outcome.FITS: ("✓", "$text-success"),
    Outcome.DOES_NOT_FIT: ("✗", "$text-error"),
    Outcome.DOES_NOT_COMPILE: ("✗", "$text-error"),
    Outcome.UNKNOWN: ("?", "$text-warning"),
}
_MARKED = replace(
    _VERDICT,
    value=lambda verdict: f"{_MARKS[verdict.outcome][0]} {verdict.outcome.value}",
    look=lambda verdict: _MARKS[verdict.outcome][1],
)
SCREEN_COLUMNS = (*_CHOICE, _MARKED, _PEAK, _FREE, *_SPEED, _LIMITED_BY)
_MEMORY_COLUMNS = (*_CHOICE, _GLOBAL, _VERDICT, _PEAK, _LIMIT, _FREE, _REMARK)
_TIME_COLUMNS = (*_CHOICE, *_SPEED, _WEEK, _LIMITED_BY)
"""The columns of a verdict: on the screen, and in the two tables that plain text has room for."""


def _memory_table(verdicts: Sequence[Verdict], width: int | None) -> list[str]:
    lines = as_lines(_MEMORY_COLUMNS, verdicts, width)
    least = [verdict for verdict in verdicts if verdict.memory is not None and verdict.memory.is_lower_bound]
    if least:
        why = "has not answered" if any(verdict.versions for verdict in least) else "was not asked: install jax[tpu]"
        lines += textwrap.wrap(f"{_LOWER_BOUND} The compiler {why}.", width or _PIPE_CELLS, break_on_hyphens=False)
    return lines


def _time_table(verdicts: Sequence[Verdict], width: int | None) -> list[str]:
    bounded = [verdict for verdict in verdicts if verdict.bound is not None]
    if not bounded:
        return []
    title = "Likely times, without compilation and validation; in parentheses what the TPU can do at best:"
    return [*textwrap.wrap(title, width or len(title)), *as_lines(_TIME_COLUMNS, bounded, width)]


def _likely_reasons(verdicts: Sequence[Verdict], room: int) -> list[str]:
    """Say what the likely times of several choices follow from, each reason once; of one alone the notes say it."""
    bounded = [verdict for verdict in verdicts if verdict.bound is not None]
    if len(verdicts) < 2 or not bounded:
        return []
    said = shared(bounded, lambda verdict: [likely_why(verdict)])
    names = ["" if len(said) == 1 else f"{_named(sayers)}: " for _, sayers in said]
    return [line for name, (why, _) in zip(names, said, strict=True) for line in wrapped("likely", name + why, room)]


def _reasons(verdicts: Sequence[Verdict], room: int) -> list[str]:
    """Explain each choice that does not fit; for a single choice, also its memory, step and quota."""
    is_alone = len(verdicts) == 1
    lines = []
    for verdict in verdicts:
        name = "" if is_alone else f"{choice_text(verdict)}: "
        if is_alone or verdict.outcome is not Outcome.FITS:
            lines += wrapped(_SHORT[verdict.outcome], f"{name}{verdict.reason}", room)
        if verdict.compiler_says and verdict.outcome is not Outcome.DOES_NOT_FIT:  # the reason has its figures
            cells = max(20, room - NAME_CELLS)
            said = [line for text in verdict.compiler_says.splitlines() for line in textwrap.wrap(text.strip(), cells)]
            kept = said[:_MOST_SAID]
            lines += [labelled("compiler" if number == 0 else "", line) for number, line in enumerate(kept)]
        if is_alone and verdict.bound is not None:
            lines += wrapped("likely", likely_text(verdict), room)
            lines += wrapped("at best", _best_text(verdict.bound), room)
        if is_alone and verdict.memory is not None:
            lines += wrapped("memory", memory_text(verdict.memory), room)
        if text := filling_text(verdict):
            lines += wrapped("filled by", text, room)
        if is_alone and verdict.bound is not None:
            lines += wrapped("step", _bound_text(verdict.bound), room)
            if quota := quota_text(verdict):
                lines += wrapped("quota", quota, room)
    return lines


_SHORT = {
    Outcome.FITS: "fits",
    Outcome.DOES_NOT_FIT: "too large",
    Outcome.DOES_NOT_COMPILE: "refused",
    Outcome.UNKNOWN: "unknown",
}


def _largest(verdict: Verdict, verdicts: Sequence[Verdict], room: int) -> list[str]:
    """Say the largest batch once per TPU and precision: it does not depend on the requested batch."""
    searched = [v for v in verdicts if v.largest_batch is not None and _place(v) == _place(verdict)]
    if not searched or verdict is not searched[0]:
        return []
    text = largest_text(verdict)
    is_alone = len({_place(v) for v in verdicts}) == 1
    return wrapped("largest", text if is_alone else f"{verdict.tpu}, {verdict.precision}: {text}", room)


def _place(verdict: Verdict) -> tuple[str, str]:
    return verdict.tpu, verdict.precision


def _findings(verdicts: Sequence[Verdict], room: int) -> list[str]:
    said = shared(verdicts, _more_than_the_reason)
    said.sort(key=lambda pair: list(_LABELS).index(pair[0][1].severity))
    lines = []
    for (label, finding), sayers in said:
        of = "" if len(sayers) == len(verdicts) else f"{_named(sayers)}: "
        lines += wrapped(label, f"{of}{finding_text(finding)}", room)
    return lines


def _more_than_the_reason(verdict: Verdict) -> list[tuple[str, Finding]]:
    """Return the findings of a verdict without what its reason says already, each with its label."""
    found = []
    for one in verdict.findings:
        if one.text == verdict.reason:
            found += [(_CHANGE, replace(one, text="", layer=""))] if one.evidence or one.remedy else []
        else:
            found.append((_CHANGE if one.is_change else _LABELS[one.severity], one))
    return found


def _named(verdicts: Sequence[Verdict]) -> str:
    named = "; ".join(choice_text(verdict) for verdict in verdicts[:_NAMED])
    more = len(verdicts) - _NAMED
    return f"{named} and {plural(more, 'more choice')}" if more > 0 else named


def _wastes(verdicts: Sequence[Verdict], width: int | None) -> list[list[str]]:
    """Show wasted padding per layer, once for all choices with the same waste."""
    groups = shared(verdicts, lambda verdict: [parts] if (parts := _parts(verdict)) else [])
    sections = []
    for parts, sayers in groups:
        of = "" if len(sayers) == len(verdicts) else f" ({_named(sayers)})"
        title = f"Wasted padding{of}, and the operations that it adds to a step:"
        rows = [list(part) for part in parts[:_MOST_WASTES]]
        more = len(parts) - _MOST_WASTES
        lines = [*textwrap.wrap(title, width or _PIPE_CELLS), *table(_WASTE_COLUMNS, rows, width)]
        sections.append([*lines, *([f"and {more:,} more that waste less"] if more > 0 else [])])
    return sections


_WASTE_COLUMNS = [
    Column("layer", 9),
    Column("dimension", 5),
    Column("size", 8, right=True),
    Column("padded to", 6, right=True),
    Column("padding", 8, right=True),
    Column("adds", 4, right=True),
    Column("no waste with", 7, right=True),
]


def _parts(verdict: Verdict) -> tuple[tuple[str, ...], ...]:
    """Write wastes that matter as rows."""
    if verdict.bound is None:  # the batch or the model has to change first
        return ()
    return tuple(
        (
            waste.layer,
            waste.dimension,
            f"{waste.size:,}",
            f"{waste.padded:,}",
            f"{100 * waste.padding:.0f}%",
            f"{100 * waste.share * waste.flops / verdict.bound.flops:.0f}%",
            f"{waste.nearest:,}",
        )
        for waste in verdict.wastes
        if waste.flops * waste.share >= _LEAST_WASTE * verdict.bound.flops
    )
