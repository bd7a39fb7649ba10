"""The official names of backends, the states of a run, and its name where there is little room."""

from __future__ import annotations

import re
from enum import StrEnum

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
