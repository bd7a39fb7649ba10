"""The columns of a list of runs, and how it is sorted and filtered."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..text.names import Status
from ..text.numbers import count, duration, metric, size
from ..text.tables import Column, clipped

if TYPE_CHECKING:
    from .overview import Overview


def epochs_text(overview: Overview) -> str:
    """Write how many epochs a run has done, and of how many."""
    return f"{overview.facts.epochs_done}" + (f"/{overview.facts.epochs}" if overview.facts.epochs is not None else "")


def _started(form: str) -> Callable[[Overview], str | None]:
    # A third of the time that `datetime` takes, for many runs.
    return lambda one: time.strftime(form, time.localtime(one.facts.started_at)) if one.facts.has_started else None


def _at_most(cells: int) -> Callable[[str], str]:
    return lambda text: clipped(text, cells)


_STATES = {
    Status.UNSTARTED: ("○", "$text-muted"),
    Status.RUNNING: ("▶", "$text-accent"),
    Status.PAUSED: ("‖", "$text-warning"),
    Status.STOPPING: ("■", "$text-warning"),
    Status.SILENT: ("▲", "$text-warning"),
    Status.FINISHED: ("✓", "$text-success"),
    Status.STOPPED: ("■", ""),
    Status.FAILED: ("✗", "bold $text-error"),
    Status.CRASHED: ("✗", "bold $text-error"),
    Status.UNREADABLE: ("✗", "bold $text-error"),
}


def _state_of(overview: Overview) -> tuple[str, str, str]:
    """Return the mark, the text and the look of a run's state."""
    if overview.is_broken:
        return "▲", "loss NaN", "$text-warning"
    mark, look = _STATES[overview.status]
    return mark, overview.status.value, look


# A width is given where cells are longer than the title and their length is known before any run is read.
COLUMNS = (
    Column("run", 21, width=12, value=attrgetter("name")),
    Column("state", 19, width=12, value=attrgetter("status_text")),
    Column("changes", 13, value=lambda one: one.problem or one.changes, text=_at_most(32)),
    Column("best", 16, right=True, width=6, value=lambda one: one.facts.best, text=metric),
    Column("metric", 17, value=lambda one: one.facts.monitor if one.facts.best is not None else ""),
    Column("epochs", 14, right=True, value=epochs_text),
    Column("time", 12, right=True, width=7, value=lambda one: one.seconds(), text=duration),
    Column("tags", 18, value=lambda one: " ".join(one.annotations.tags), text=_at_most(14)),
    Column("preset", 8, value=lambda one: one.facts.label, text=_at_most(24)),
    Column("model", 7, value=lambda one: one.facts.model),
    Column("data", 6, value=lambda one: one.facts.dataset),
    Column(
        "on", 11, value=lambda one: one.facts.accelerator + f" ×{one.facts.replicas}" * ((one.facts.replicas or 0) > 1)
    ),
    Column("batch", 5, right=True, value=lambda one: one.facts.global_batch, text=count),
    Column("examples/s", 10, right=True, value=lambda one: one.facts.examples_per_s, text=count),
    Column("size", 3, right=True, width=7, value=lambda one: one.size_bytes, text=size),
    Column("started", 20, width=11, value=_started("%m-%d %H:%M")),
)
COLUMNS_IN_FULL = (
    replace(COLUMNS[0], value=attrgetter("run.run_id")),
    *(replace(one, text=str) if one.title in {"changes", "tags", "preset"} else one for one in COLUMNS[1:-1]),
    Column("title", 1, value=attrgetter("annotations.title")),
    replace(COLUMNS[-1], value=_started("%Y-%m-%d %H:%M")),
)
"""The columns if there is no limit to their width, as in a pipe."""

SCREEN_COLUMNS = (
    COLUMNS[0],
    replace(COLUMNS[1], width=10, value=lambda one: " ".join(_state_of(one)[:2]), look=lambda one: _state_of(one)[2]),
    COLUMNS[2],
    replace(COLUMNS[3], right=False, value=lambda one: one.best, text=lambda best: f"{metric(best[1])} {best[0]}"),
    *COLUMNS[5:],
)
"""The columns on the screen, where a sign and a color tell states apart, and a score has its metric beside it."""


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
    Sort.PRESET: lambda one: one.facts.label,
    Sort.STATE: lambda one: one.status.value,
    Sort.BEST: lambda one: one.best and (one.best[0], one.best[1] * (1 if one.facts.lower_is_better else -1)),
    Sort.TIME: lambda one: one.seconds(),
    Sort.SPEED: lambda one: None if one.facts.examples_per_s is None else -one.facts.examples_per_s,
    Sort.SIZE: lambda one: -one.size_bytes,
}


def in_order(overviews: Iterable[Overview], sort: Sort) -> list[Overview]:
    """Sort a list that has the newest runs first; runs without the value to sort by come last."""
    if sort is Sort.STARTED:
        return list(overviews)
    valued = [(_VALUES[sort](run), run) for run in overviews]
    known = sorted((pair for pair in valued if pair[0] is not None), key=itemgetter(0))
    return [run for _, run in [*known, *(pair for pair in valued if pair[0] is None)]]


def with_tags(overviews: Iterable[Overview], tags: Collection[str], *, archived: bool = False) -> list[Overview]:
    """Return the runs that have all tags; archived ones only on request."""
    listed = (one for one in overviews if archived or not one.annotations.archived)
    return [one for one in listed if set(tags) <= {*one.annotations.tags}]


def matches(overview: Overview, words: Iterable[str]) -> bool:
    """Return whether every word is part of what a list shows of a run; words are in lower case."""
    facts, annotations = overview.facts, overview.annotations
    shown = [overview.run.run_id, annotations.title, facts.label, overview.status.value, facts.model, facts.dataset]
    shown += [facts.accelerator, overview.changes, facts.monitor, annotations.note]
    text = " ".join([*shown, *(f"#{tag}" for tag in annotations.tags)]).lower()
    return all(word in text for word in words)
