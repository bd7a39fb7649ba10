"""The facts that a list shows about a run: a few plain values that can be cached."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LATEST = 2e11
"""The largest Unix time that is accepted, in the year 8307: a later one is damage, and no clock could show it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a journal says about a run, in short."""

    label: str = ""  # the preset's name, or the name a notebook gave
    has_started: bool = False  # whether the journal has a first event
    started_at: float = 0.0  # Unix time of the first event
    last_at: float = 0.0  # Unix time of the newest event
    away_s: float = 0.0  # seconds of them in which nothing trained, before the run was resumed
    epochs: int | None = None  # epochs to train; None before training began
    epochs_done: int = 0  # epochs that ended
    monitor: str = ""  # the metric that decides which epoch is best; empty when no epoch has it
    best: float | None = None  # its best value; None when no epoch has it
    is_stopping: bool = False  # whether somebody asked the run to stop
    is_paused: bool = False  # whether it is paused
    outcome: str = ""  # ``completed``, ``early``, ``stopped`` or ``failed``; empty when the journal has no end
    dataset: str = ""  # what it trained on; empty if unknown, as for a notebook
    model: str = ""  # the model; empty before it was built
    # The settings that differed from the preset when the journal was read, such as ``epochs=7 seed=1``.
    changes: str = ""
    accelerator: str = ""  # ``cpu``, ``gpu``, ``tpu`` or ``sim:N``; empty before it connected
    replicas: int | None = None  # number of replicas; None before it connected
    global_batch: int | None = None  # examples per step over all replicas; None if unknown
    examples_per_s: float | None = None  # median of all epochs; None if unknown
    size_bytes: int | None = None  # size of the run's folder; None if it was not measured

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for `facts_from`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def facts_from(value: object) -> Facts | None:
    """Return facts from plain values that a file holds; None when anything about them is wrong.

    The file may be damaged or come from somebody else: a text with control characters is refused, too, because it
    could not have come from `as_dict` of facts that are safe to show.
    """
    if not isinstance(value, dict) or value.keys() != _KINDS.keys():
        return None
    values = _ALL(value)
    types = tuple(map(type, values))
    if types not in _SEEN:
        if not all(found in _TYPES[kind] for found, kind in zip(types, _KINDS.values(), strict=True)):
            return None
        _SEEN.add(types)
    moments, counts, measures = _MOMENTS(value), filter(None, _COUNTS(value)), filter(None, _MEASURES(value))
    in_range = min(moments) >= 0 and max(moments) <= LATEST and min(counts, default=0) >= 0
    if not (in_range and all(map(math.isfinite, measures)) and "".join(_TEXTS(value)).isprintable()):
        return None
    return Facts(*values)


_KINDS = {field.name: str(field.type) for field in fields(Facts)}
_TYPES: dict[str, set[type]] = {
    "str": {str},
    "bool": {bool},
    "int": {int},
    "int | None": {int, type(None)},
    "float": {int, float},
    "float | None": {float, type(None)},
}


def _values_of(*kinds: str) -> Callable[[Any], tuple[Any, ...]]:
    return itemgetter(*(name for name, kind in _KINDS.items() if kind in kinds))


# A list asks for ten thousand runs: all values of a kind are looked at in one go, and types that fitted once fit again.
_ALL, _TEXTS, _MOMENTS = _values_of(*_TYPES), _values_of("str"), _values_of("float")
_COUNTS, _MEASURES = _values_of("int", "int | None"), _values_of("float | None")
_SEEN: set[tuple[type, ...]] = set()
