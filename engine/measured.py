"""Speeds of input pipelines that were measured on this machine, for the plan to show.

`tpu-console inspect --speed` measures; what it found is kept beside the runs in ``speeds.json``, by everything that a
pipeline's speed depends on.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from engine.paths import runs_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine.config import RunConfig

_MOST = 200  # measurements that are kept, the newest ones


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a pipeline was.

    Args:
        first: Examples a second in the first epoch, which reads and decodes.
        later: Examples a second in the epochs after it; None where it was not measured.
    """

    first: float
    later: float | None


def remember(config: RunConfig, parts: list[dict[str, Any]]) -> None:
    """Keep what was measured; a folder that cannot be written is no reason to fail.

    Args:
        config: The configuration whose pipeline was measured.
        parts: `engine.inspection.speed.Rate` as dictionaries.
    """
    rates = {part["name"]: part["per_s"] for part in parts}
    path = _file()
    kept = {key: value for key, value in _read(path).items() if key != _key(config)}
    kept[_key(config)] = {"first": rates["first"], "later": rates.get("later")}
    newest = dict(list(kept.items())[-_MOST:])
    draft = path.with_suffix(f".{os.getpid()}.draft")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.write_text(json.dumps(newest), encoding="utf-8")
        draft.chmod(0o600)
        draft.replace(path)


def recall(config: RunConfig) -> Speed | None:
    """Return what was measured of a configuration's pipeline on this machine; None when nothing was."""
    path = _file()
    try:
        stamp = path.stat().st_mtime_ns
    except OSError:
        return None
    found = _cached(path, stamp).get(_key(config))
    try:
        return None if found is None else Speed(float(found["first"]), found.get("later"))
    except (KeyError, TypeError, ValueError):
        return None


def _file() -> Path:
    return runs_folder().parent / "speeds.json"


def _key(config: RunConfig) -> str:
    """Name everything that a pipeline's speed depends on; a batch matters little and is left out."""
    data = config.data.model_dump(mode="json", exclude={"train_limit", "validation_fraction"})
    values = [config.dataset, data, config.augmentation.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=2)
def _cached(path: Path, stamp: int) -> Mapping[str, Any]:  # noqa: ARG001  a changed file is read anew
    return _read(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
