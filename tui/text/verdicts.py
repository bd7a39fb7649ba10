"""Formats the verdicts of a preflight as plain text: tables of all choices, then notes on them."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tpu_console.engine.findings import Severity
from tpu_console.engine.preflight.likely import input_throughput_of
from tpu_console.engine.preflight.result import Outcome

from .numbers import gib, plural
from .tables import NAME_CELLS, Column, as_lines, labelled, paragraphs, table, wrapped
from .verdict_text import (
    best_text,
    bound_text,
    choice_text,
    feeding_text,
    filling_text,
    finding_text,
    headroom,
    largest_text,
    likely_pace,
    likely_text,
    likely_why,
    memory_text,
    pace_text,
    peak_text,
    quota_cell,
    quota_text,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.findings import Finding
    from tpu_console.engine.preflight.likely import InputThroughput
    from tpu_console.engine.preflight.result import Bound, Memory, Verdict

T = TypeVar("T")

_PIPE_CELLS = 100
_MOST_WASTES = 8
_LEAST_WASTE = 0.01  # least padding to show, as a share of the whole step's operations
_MOST_SAID = 6  # lines of the compiler's message
_NAMED = 4  # most choices that a sentence lists
_LOWER_BOUND = "> means at least: weights, optimizer slots and the batch."
_CHANGE = "change"  # what makes a choice compile, or fit
_LABELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


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
    lines = [line for verdict, feeding in known for line in wrapped("input", feeding_text(verdict, feeding), room)]
    if all(feeding.keeps_up for _, feeding in known):
        return lines
    return [*lines, *wrapped("", f"Its slowest part, and what to change: tpu-console inspect {name} --speed", room)]


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
_PEAK = Column("HBM peak", 8, right=True, key="peak", value=_of_memory(peak_text))
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
            said = [line for text in verdict.compiler_says.splitlines() if text.strip() for line in _words(text, room)]
            kept = said[:_MOST_SAID]
            lines += [labelled("compiler" if number == 0 else "", line) for number, line in enumerate(kept)]
        if is_alone and verdict.bound is not None:
            lines += wrapped("likely", likely_text(verdict), room)
            lines += wrapped("at best", best_text(verdict.bound), room)
        if is_alone and verdict.memory is not None:
            lines += wrapped("memory", memory_text(verdict.memory), room)
        if text := filling_text(verdict):
            lines += wrapped("filled by", text, room)
        if is_alone and verdict.bound is not None:
            lines += wrapped("step", bound_text(verdict.bound), room)
            if quota := quota_text(verdict):
                lines += wrapped("quota", quota, room)
    return lines


_SHORT = {
    Outcome.FITS: "fits",
    Outcome.DOES_NOT_FIT: "too large",
    Outcome.DOES_NOT_COMPILE: "refused",
    Outcome.UNKNOWN: "unknown",
}


def _words(text: str, room: int) -> list[str]:
    return textwrap.wrap(text.strip(), max(20, room - NAME_CELLS))


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
