"""What a person's own dataset function gave when it was last called on this machine.

Only a call tells, and a call may load or download: a plan and a preflight do not call it. Every run and
`tpu-console inspect` leave behind, in ``examples.json`` beside the runs, what they saw.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..config.user_code import source_mark
from ..storage.keyed_store import KeyedStore
from .examples import Input

if TYPE_CHECKING:
    from ..config.run_config import RunConfig

_EXAMPLES = KeyedStore("examples.json")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a dataset function gave.

    Args:
        example: Shape and number format of an example, without a batch.
        label: Likewise of a label.
        classes: Number of classes; 0 where its labels are none.
        train_count: Training examples; None when it does not tell.
        validation_count: Validation examples; None likewise, 0 without validation.
        day: When that was, such as ``2026-03-01``.
        weight: Shape of an example's weight in training; None without weights.
        validation_weight: Likewise in validation.
    """

    example: Input
    label: Input
    classes: int
    train_count: int | None
    validation_count: int | None
    day: str
    weight: tuple[int | None, ...] | None = None
    validation_weight: tuple[int | None, ...] | None = None


def remember(config: RunConfig, seen: Seen) -> None:
    """Keep what a configuration's dataset function gave."""
    _EXAMPLES.put(_key(config), asdict(seen))


def recall(config: RunConfig) -> Seen | None:
    """Return what a configuration's dataset function gave; None when it, or its file, was never called as it is."""
    found = _EXAMPLES.get(_key(config))
    with suppress(KeyError, TypeError, ValueError):
        parts = {name: Input(tuple(found[name]["shape"]), found[name]["dtype"]) for name in ("example", "label")}
        shapes = {name: None if found[name] is None else tuple(found[name]) for name in ("weight", "validation_weight")}
        return Seen(**{**found, **parts, **shapes})
    return None


def _key(config: RunConfig) -> str:
    """Name everything that is known to decide what it gives: the function, its file's content, its options."""
    values = [source_mark(config.dataset), config.data.options]
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:16]
