"""The names of backends, the states of a run and of its data, its name where there is little room, settings as text."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tpu_console.engine.config.catalog import DATASETS

from .numbers import size
from .tables import DONE, DOWNLOAD

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.runs.events import RunStarted

BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX"}

_DATE = re.compile(r"^\d{8}-(?=\d{6}-.)")


def short_name(run_id: str) -> str:
    """Return a run's name without the date it begins with; names differ at their end, and commands accept a part."""
    return _DATE.sub("", run_id)


class Status(StrEnum):
    """The status of a run."""

    UNSTARTED = "not started"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    SILENT = "not responding"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    CRASHED = "crashed"
    UNREADABLE = "unreadable"

    @property
    def is_live(self) -> bool:
        """Whether something trains."""
        return self in {Status.RUNNING, Status.PAUSED, Status.STOPPING, Status.SILENT}


def to_text(value: object) -> str:
    """Return a plain configuration value as a person writes it; empty for an empty list."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, list | tuple):
        return ", ".join(to_text(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={_toml(item)}" for key, item in value.items())
    return str(value)


def setting_in(started: RunStarted | None, section: str, key: str) -> Any:
    """Return a setting of the configuration in a run's journal; None if it is not there."""
    values = started.config.get(section) if started is not None else None
    return values.get(key) if isinstance(values, dict) else None


def setting_text(value: object, missing: str = "none") -> str:
    """Return the value of a setting as text; `missing` if it is None."""
    return missing if value is None else to_text(value) or "none"


def _toml(value: object) -> str:
    """Write a value as inline TOML; except for tables, JSON is TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)}={_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def data_state(config: RunConfig) -> str:
    """Say in a few words what a run downloads first, or that its data was downloaded or is not on this machine."""
    from tpu_console.engine.data.kinds.table import kind_of  # with Pydantic, which the first frame does without

    kind = kind_of(config.dataset)
    if (download := kind.missing_download(config)) is not None:
        return f"{DOWNLOAD} {size(download.size) if download.size else 'to download'}"
    if (info := DATASETS.get(config.dataset)) is not None:
        return f"{DONE} {size(info.download_bytes)}" if info.files else ""
    return "data not here" if kind.is_missing(config) else ""
