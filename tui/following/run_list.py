"""Sorts and filters a list of runs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from .overview import Overview


class Sort(StrEnum):
    """What a list of runs is sorted by."""

    STARTED = "started"
    NAME = "name"
    PRESET = "preset"
    STATE = "state"
    BEST = "best"
    TIME = "time"
    SPEED = "speed"
    SIZE = "size"


_VALUES: dict[Sort, Callable[[Overview], Any]] = {
    Sort.NAME: lambda one: one.name.lower(),
    Sort.PRESET: lambda one: one.label,
    Sort.STATE: lambda one: one.status.value,
    Sort.TIME: lambda one: one.seconds(),
    Sort.SPEED: lambda one: one.facts.examples_per_s,
    Sort.SIZE: lambda one: one.facts.size_bytes,
}
_LARGEST_FIRST = {Sort.SPEED, Sort.SIZE}


def in_order(overviews: Iterable[Overview], sort: Sort) -> list[Overview]:
    """Sort a list that has the newest first; runs without a value come last.

    The best runs of each metric come first, the fastest and the largest ones, and those that took the least time.
    """
    runs = list(overviews)
    if sort is Sort.STARTED:
        return runs
    value = _best if sort is Sort.BEST else _VALUES[sort]
    keys: dict[int, Any] = {id(run): value(run) for run in runs}
    known = [run for run in runs if keys[id(run)] is not None]
    known.sort(key=lambda run: keys[id(run)], reverse=sort in _LARGEST_FIRST)
    return known + [run for run in runs if keys[id(run)] is None]


def _best(overview: Overview) -> tuple[str, float] | None:
    from tpu_console.engine.runs.state import lower_is_better  # imports NumPy

    if overview.best is None:
        return None
    metric, best = overview.best
    return metric, best if lower_is_better(metric) else -best


def with_tags(overviews: Iterable[Overview], tags: Collection[str], *, archived: bool = False) -> list[Overview]:
    """Return the runs that have all tags; archived ones only on request."""
    return [
        one for one in overviews if (archived or not one.annotations.archived) and set(tags) <= {*one.annotations.tags}
    ]


def matches(overview: Overview, words: Iterable[str]) -> bool:
    """Return whether every word is part of what a list shows of a run; words are in lower case."""
    facts, annotations = overview.facts, overview.annotations
    text = " ".join(
        (
            *(overview.run.run_id, annotations.title, facts.label, overview.status.value, facts.model, facts.dataset),
            *(facts.accelerator, facts.changes, facts.monitor, annotations.note, *(f"#{t}" for t in annotations.tags)),
        )
    ).lower()
    return all(word in text for word in words)
