"""How a run ended, from the end of its journal alone, for the first picture of it.

The whole journal needs NumPy and Pydantic, which take longer to import than Textual.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from tpu_console.engine.sanitize import printable_values
from tpu_console.engine.storage.files import open_regular

from ..text.ending import ended
from ..text.numbers import metric

if TYPE_CHECKING:
    from tpu_console.engine.runs.run_directory import RunDirectory

_LAST_BYTES = 1 << 20
_ENDINGS = {"RunFinished", "RunFailed"}


def how_it_ended(run: RunDirectory) -> list[str]:
    """Return what happened and the best score, a line each; nothing if the run has not ended or cannot be read."""
    try:
        with open_regular(run.journal) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            last = json.loads(file.read(_LAST_BYTES).rstrip(b"\n").rpartition(b"\n")[2])
        return _lines(printable_values(last)) if last["type"] in _ENDINGS else []
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return []


def _lines(last: dict[str, Any]) -> list[str]:
    if last["type"] == "RunFailed":
        return [str(last["what"])]
    summary, best = last["summary"], last["summary"]["best"]
    monitor = summary["monitor"]
    score = f"best {monitor} {metric(float(best[monitor]))} in epoch {int(best['epoch'])}" if best else ""
    return [ended(str(last["outcome"]), int(summary["epochs"])), score]
