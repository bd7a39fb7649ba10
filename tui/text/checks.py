"""Formats what checks found: the doctor on this machine, and a preflight of a configuration, with what to change."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tpu_console.engine.doctor import Report, word_of
from tpu_console.engine.errors import Finding, Severity
from tpu_console.engine.preflight.likely import MOST_CORES, input_throughput_of, kaggle_share
from tpu_console.engine.preflight.result import Memory, Outcome, Verdict

from .numbers import NONE, count, duration, flop, gib, plural, size
from .tables import Column, as_lines, paragraphs, wrapped

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig

GROUP = "group"
_LABEL_CELLS = 9
_PIPE_CELLS = 100
_MOST_WASTES = 8
_LEAST_WASTE = 0.01  # least padding to show, as a share of the whole step's operations
_LONGEST_MESSAGE = 500  # letters of what the compiler says
_LEAST_BYTES = 2**16  # of memory that are worth a word
_LABELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_LAST = ("change", *_LABELS.values(), "padding")  # the notes at the end, in this order
_LIMITS = {"compute": "compute", "memory": "memory bandwidth", "exchange": "the gradient exchange"}
_OUTCOMES = {
    Outcome.FITS: ("fits", "✓", "$text-success"),
    Outcome.DOES_NOT_FIT: ("too large", "✗", "$text-error"),
    Outcome.DOES_NOT_COMPILE: ("refused", "✗", "$text-error"),
    Outcome.UNKNOWN: ("unknown", "?", "$text-warning"),
}
"""The label, the mark and the look of each outcome."""


class ReportLine(Struct, frozen=True):
    """One line of the report."""

    text: str
    label: str = ""  # what it begins with, padded to a column
    look: str = ""  # what its label, or a line without one, is colored by: the severity's word, or `GROUP`

    def __str__(self) -> str:
        return f"{self.label}{self.text}"


def report_lines(report: Report, width: int | None) -> list[ReportLine]:
    """Return the report in lines of at most `width` cells, None for no limit; commands to copy are never wrapped."""
    room = sys.maxsize if width is None else max(30, width - _LABEL_CELLS)
    lines = [
        ReportLine(line) for name, value in report.header.items() for line in wrapped(name, value, width or sys.maxsize)
    ]
    for group, results in report.groups.items():
        lines += [ReportLine(""), ReportLine(group, look=GROUP)]
        for result in results:
            read, is_ok = "; ".join(result.evidence), result.severity is Severity.OK
            label = "unknown" if result.severity is Severity.UNKNOWN else word_of(result)
            aside = f" ({read})" if is_ok and read else ""
            texts = [f"{result.title}: {result.text}{aside}", f"found: {read}" if read and not is_ok else ""]
            first, *others = [line for text in texts for line in textwrap.wrap(text, room, break_on_hyphens=False)]
            others += [f"run: {result.remedy}"] if result.remedy else []
            lines.append(ReportLine(first, f"{label:<{_LABEL_CELLS}}", word_of(result)))
            lines += [ReportLine(line, " " * _LABEL_CELLS) for line in others]
    return [*lines, ReportLine(""), ReportLine(report.summary)]


def choice_text(verdict: Verdict) -> str:
    """Name a choice, such as ``v5e-8, 128 per replica, float32``."""
    return f"{verdict.tpu}, {verdict.replica_batch:,} per replica, {verdict.precision}"


def _span(
    low: float | None, high: float | None, best: float | None = None, write: Callable[[float], str] = duration
) -> str:
    """Write a likely figure, such as ``≥ 0.13 s`` or ``45 s – 56 s``, with the best case if that differs."""
    texts = [write(one) for one in (low, high) if one is not None]
    text = " – ".join(dict.fromkeys(texts)) if len(texts) == 2 else f"{'≤' if low is None else '≥'} {texts[0]}"
    return text if best is None or write(best) in texts else f"{text} ({write(best)})"


def _likely(verdict: Verdict, name: str) -> str | None:
    """Write how long a time of the bound will likely be, and in parentheses how long at best."""
    best = getattr(verdict.bound, name, None)
    return None if best is None else _span(*verdict.expected(best), best)


def _pace(verdict: Verdict) -> str | None:
    """Write the examples per second over all devices, likewise."""
    if (bound := verdict.bound) is None:
        return None
    low_s, high_s = verdict.expected(bound.step_s)
    low, high = high_s and verdict.global_batch / high_s, low_s and verdict.global_batch / low_s
    return _span(low, high, bound.images_per_s, count)


def quota_cell(verdict: Verdict) -> str | None:
    """Write the share of Kaggle's weekly quota that the run will likely take; None if there is none for this TPU."""
    run_s = None if verdict.bound is None else verdict.bound.run_s
    low, high = (kaggle_share(verdict.tpu, seconds) for seconds in verdict.expected(run_s))
    return None if low is None else _span(low.week, None if high is None else high.week, write="{:.2%}".format)


def _headroom(memory: Memory) -> str:
    """Write the free memory in percent, or how much is missing; a dash if only a lower bound of the peak is known."""
    percent = round(100 * memory.headroom)
    if memory.is_lower_bound and percent >= 0:
        return NONE
    return f"{percent}%" if percent >= 0 else f"{-percent}% over"


_CHOICE = (
    Column("TPU", 11, value=lambda verdict: verdict.tpu),
    Column("Batch", 10, right=True, value=lambda verdict: f"{verdict.replica_batch:,}"),
    Column("Precision", 9, value=lambda verdict: verdict.precision.removeprefix("mixed_")),
)
_GLOBAL = Column("Global", 2, right=True, value=lambda verdict: f"{verdict.global_batch:,}")
_VERDICT = Column("Verdict", 12, value=lambda verdict: verdict.outcome.value)
_MEMORY = Column("", 0, right=True, value=attrgetter("memory"))
_PEAK = replace(_MEMORY, title="HBM peak", importance=8, text=lambda one: f"{'>' * one.is_lower_bound}{gib(one.peak)}")
_LIMIT = replace(_MEMORY, title="Limit", importance=3, text=lambda memory: gib(memory.limit))
_FREE = replace(_MEMORY, title="Free", importance=4, text=_headroom)
_REMARK = Column("", 1, value=lambda verdict: "cached" if verdict.is_remembered else "")
_SPEED = (
    Column("Whole run (at best)", 7, right=True, value=lambda verdict: _likely(verdict, "run_s")),
    Column("Epoch (at best)", 3, right=True, value=lambda verdict: _likely(verdict, "epoch_s")),
    Column("Step (at best)", 5, right=True, value=lambda verdict: _likely(verdict, "step_s")),
    Column("examples/s (at best)", 6, right=True, value=_pace),
)
_WEEK = Column("Kaggle week", 2, right=True, value=quota_cell)
_LIMITED_BY = Column("Limited by", 4, value=lambda verdict: verdict.limited_by)
_MARKED = replace(
    _VERDICT,
    value=lambda verdict: f"{_OUTCOMES[verdict.outcome][1]} {verdict.outcome.value}",
    look=lambda verdict: _OUTCOMES[verdict.outcome][2],
)
SCREEN_COLUMNS = (*_CHOICE, _MARKED, _PEAK, _FREE, *_SPEED, _LIMITED_BY)
_MEMORY_COLUMNS = (*_CHOICE, _GLOBAL, _VERDICT, _PEAK, _LIMIT, _FREE, _REMARK)
_TIME_COLUMNS = (*_CHOICE, *_SPEED, _WEEK, _LIMITED_BY)
"""The columns of a verdict: on the screen, and in the two tables that plain text has room for."""


def verdict_lines(config: RunConfig, verdicts: Sequence[Verdict], name: str, width: int | None) -> list[str]:
    """Write all verdicts with notes, each note once; the name is the argument of `inspect` that measures the input."""
    room = width or _PIPE_CELLS
    memory = as_lines(_MEMORY_COLUMNS, verdicts, width)
    if any(verdict.memory is not None and verdict.memory.is_lower_bound for verdict in verdicts):
        memory += textwrap.wrap("> means at least: weights, optimizer slots and the batch, without the compiler.", room)
    bounded = [verdict for verdict in verdicts if verdict.bound is not None]
    title = "Likely times, without compilation and validation; in parentheses what the TPU can do at best:"
    times = [*textwrap.wrap(title, room), *as_lines(_TIME_COLUMNS, bounded, width)] if bounded else []
    said: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        for note in _notes(verdict, is_alone=len(verdicts) == 1):
            said.setdefault(note, []).append(choice_text(verdict))
    notes = []
    for label, text in sorted(said, key=lambda note: _LAST.index(note[0]) + 1 if note[0] in _LAST else 0):
        sayers = said[label, text]
        notes += wrapped(label, text if len(sayers) == len(verdicts) else f"{'; '.join(sayers)}: {text}", room)
    if bounded:
        fastest = max(bounded, key=lambda verdict: verdict.bound.images_per_s if verdict.bound is not None else 0.0)
        notes += _feeding_lines(config, fastest, name, room)
    return paragraphs([memory, times, notes])


def detail_lines(config: RunConfig, verdict: Verdict, name: str, width: int) -> list[str]:
    """Write everything about one verdict except its row in the tables; the name is as in `verdict_lines`."""
    notes = [line for label, text in _notes(verdict, is_alone=True) for line in wrapped(label, text, width)]
    return notes if verdict.bound is None else [*notes, *_feeding_lines(config, verdict, name, width)]


def advice_lines(advice: Sequence[Finding], width: int | None) -> list[str]:
    """Write the advice on a configuration that needs no compiler."""
    room = width or _PIPE_CELLS
    return [line for one in advice for line in wrapped(_LABELS[one.severity], finding_text(one), room)]


def _notes(verdict: Verdict, *, is_alone: bool) -> Iterator[tuple[str, str]]:
    """Yield labels and what there is to say about a choice; of one alone, also what tables have no room for."""
    bound, memory = verdict.bound, verdict.memory
    if is_alone or verdict.outcome is not Outcome.FITS:
        yield _OUTCOMES[verdict.outcome][0], verdict.reason
    if verdict.compiler_says and verdict.outcome is not Outcome.DOES_NOT_FIT:  # the reason has its figures
        yield "compiler", textwrap.shorten(verdict.compiler_says, _LONGEST_MESSAGE, placeholder=" …")
    if is_alone:
        yield from _figures(verdict)
    elif bound is not None:
        yield "likely", _likely_why(verdict)
    if verdict.fillings and memory is not None and memory.peak:
        fillings = (f"{one.what} of {one.layer} ({one.kind}) {gib(one.size)}, {min(1.0, one.size / memory.peak):.0%}"
                    for one in verdict.fillings)  # fmt: skip
        yield "filled by", "; ".join(fillings)
    if verdict.largest_batch is not None:
        yield "largest", largest_text(verdict)
    yield from _changes(verdict)


def _changes(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield the findings, without what the reason says, and the wasted padding."""
    for one in verdict.findings:
        if one.text != verdict.reason:
            yield "change" if one.is_change else _LABELS[one.severity], finding_text(one)
        elif one.evidence or one.remedy:
            yield "change", finding_text(replace(one, text="", layer=""))
    if (bound := verdict.bound) is not None:  # else the batch or the model has to change first
        wastes = [waste for waste in verdict.wastes if waste.flops * waste.share >= _LEAST_WASTE * bound.flops]
        for waste in wastes[:_MOST_WASTES]:
            padded = f"{waste.layer}: {waste.dimension} {waste.size:,} padded to {waste.padded:,}, {waste.padding:.0%}"
            adds = f"adds {waste.share * waste.flops / bound.flops:.0%} to a step"
            yield "padding", f"{padded} wasted, {adds}; {waste.nearest:,} wastes nothing"


def _figures(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield the likely time, what it follows from, and what uses the memory."""
    if (bound := verdict.bound) is not None:
        yield "likely", likely_text(verdict)
        least, limit = "at least " * bound.is_partial, _LIMITS.get(bound.limited_by, bound.limited_by)
        moved, exchanged = size(round(bound.hbm_bytes)), size(round(bound.all_reduce_bytes))
        step = f"{least}{flop(bound.flops)}, {moved} moved in memory and {exchanged} exchanged per device"
        yield "step", f"{step}; at best, {limit} is the limit"
        low, high = verdict.expected(bound.run_s)
        share = kaggle_share(verdict.tpu, low if high is None else high)
        if share is not None:
            sessions = plural(math.ceil(share.session), "session")
            yield "quota", f"{quota_cell(verdict)} of Kaggle's 20 free hours per week, in {sessions} of 9 hours"
    if (memory := verdict.memory) is None:
        return
    parts = {"parameters": memory.parameters, "optimizer": memory.optimizer, "batch": memory.batch}
    if not memory.is_lower_bound:
        parts |= {"activations and gradients": memory.temporaries, "program code": memory.code}
        parts["padding and results"] = memory.other
    text = ", ".join(f"{name} {gib(of)}" for name, of in parts.items() if of >= _LEAST_BYTES)
    yield "memory", f"needs {'at least ' * memory.is_lower_bound}{gib(memory.peak)} of {gib(memory.limit)}: {text}"


def finding_text(finding: Finding) -> str:
    """Write a finding with its layer, the user's line, and its remedy."""
    layer = "" if not finding.layer or finding.layer in finding.text else f"{finding.layer}: "
    remedy = f"{finding.remedy.rstrip('.')}." if finding.remedy else ""
    return " ".join(part for part in (f"{layer}{finding.text}", *finding.evidence, remedy) if part)


def likely_text(verdict: Verdict) -> str:
    """Say how long the run and a step will likely take, how many examples per second that is, and why."""
    if (bound := verdict.bound) is None:
        return ""
    run = "" if bound.run_s is None else f"{_likely(verdict, 'run_s')} for the run, "
    return f"{run}{_likely(verdict, 'step_s')} per step, {_pace(verdict)} examples/s: {_likely_why(verdict)}"


def _likely_why(verdict: Verdict) -> str:
    """Say what the likely time follows from."""
    likely = verdict.likely
    known = f", from {likely.source}" if likely is not None and likely.source else ""
    if likely is not None and likely.limited_by == "input":
        return f"input-bound, as measured on this machine{known}"
    if likely is not None and likely.limited_by == "host":
        step = duration(likely.low_s)
        return f"Keras needs {step} on the host to start a step, and a larger batch does more in each{known}"
    return known.removeprefix(", ") or "no run of yours says how much more than at best"


def largest_text(verdict: Verdict) -> str:
    """Say the largest batch that was found to fit, and compare the batches worth choosing."""
    if not (largest := verdict.largest_batch):
        return "not even a batch of 1 fits"
    parts = [f"{largest:,} per replica fits, {largest * verdict.devices:,} in total"]
    if verdict.dataset_is_limit:
        parts.append("the dataset has no more for one step")
    if verdict.too_large_batch is not None:
        parts.append(f"{verdict.too_large_batch:,} does not")
    parts += [f"{one.replica_batch:,} needs {gib(one.peak)}, at best {one.images_per_s:,.0f} examples/s"
              for one in verdict.batches]  # fmt: skip
    return "; ".join(parts)


def _feeding_lines(config: RunConfig, verdict: Verdict, name: str, room: int) -> list[str]:
    """Say whether the input pipeline can keep up with the TPU's best-case speed, and how to measure or improve it."""
    inspect = f"tpu-console inspect {name} --speed"
    if (feeding := input_throughput_of(config, verdict)) is None:
        return wrapped("input", f"not measured here; run: {inspect}", room)
    have = f"{feeding.measured_per_s:,.0f}/s measured on {plural(feeding.cores, 'core')}"
    wants = f"{choice_text(verdict)} needs up to {feeding.wanted_per_s:,.0f}/s"
    if feeding.keeps_up:
        return wrapped("input", f"{have} is enough: {wants}", room)
    enough = f"about {plural(feeding.cores_needed, 'such core')} per host would be enough"
    if feeding.cores_needed > MOST_CORES:
        enough = "no TPU's host has enough cores: make the input cheaper"
    return [*wrapped("input", f"{have}; {wants}: {enough}", room), *wrapped("", f"To change it: {inspect}", room)]
