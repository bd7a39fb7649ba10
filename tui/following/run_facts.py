"""The facts that a list shows about a run: a few plain values that can be cached."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

LATEST = 2e11
"""The largest Unix time that is accepted, in the year 8307: a later one is damage, and no clock could show it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a journal says about a run, in short.

    Args:
        label: The preset's name, or the name a notebook gave.
        has_started: Whether the journal has a first event.
        started_at: Unix time of the first event.
        last_at: Unix time of the newest event.
        away_s: Seconds of them in which nothing trained, before the run was resumed.
        epochs: Epochs to train; None before training began.
        epochs_done: Epochs that ended.
        monitor: The metric that decides which epoch is best; empty when no epoch has it.
        best: Its best value; None when no epoch has it.
        is_stopping: Whether somebody asked the run to stop.
        is_paused: Whether it is paused.
        outcome: ``completed``, ``early``, ``stopped`` or ``failed``; empty when the journal has no end.
    """

    label: str = ""
    has_started: bool = False
    started_at: float = 0.0
    last_at: float = 0.0
    away_s: float = 0.0
    epochs: int | None = None
    epochs_done: int = 0
    monitor: str = ""
    best: float | None = None
    is_stopping: bool = False
    is_paused: bool = False
    outcome: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for `facts_from`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def facts_from(value: object) -> Facts | None:
    """Return facts from plain values that a file holds; None when anything about them is wrong.

    The file may be damaged or come from somebody else: a text with control characters is refused, too, because it
    could not have come from `as_dict` of facts that are safe to show.
    """
    if not isinstance(value, dict) or set(value) != {field.name for field in fields(Facts)}:
        return None
    if not all(_fits(str(field.type), value[field.name]) for field in fields(Facts)):
        return None
    return Facts(**value)


def _fits(kind: str, value: object) -> bool:
    match kind, value:
        case "str", str():
            return value.isprintable()
        case "bool", bool():
            return True
        case "int" | "int | None", int():
            return not isinstance(value, bool) and value >= 0
        case "float", int() | float():
            return not isinstance(value, bool) and 0 <= value <= LATEST
        case "float | None", float():
            return math.isfinite(value)
        case _, None:
            return kind.endswith("None")
    return False
