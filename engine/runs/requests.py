"""Requests to a run: private files in its `control` folder, one per request, so that no terminal overwrites another's.

A plain stop is ``stop.json``, which runs of every version read (`engine.runs.heartbeat.request_stop`). The others are
``<time>-<number>.json``; the run reads them in the order of their names, and answers each with an event in its journal.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ..sanitize import printable
from ..storage.files import read_json, require_real, write_whole
from .events import Steering

if TYPE_CHECKING:
    from pathlib import Path

    from .run_directory import RunDirectory

LARGEST_REQUEST = 64 << 10
_MOST = 1000
_NAME = re.compile(r"\d{20}-[0-9a-f]{8}\.json")


class Action(StrEnum):
    """What a request asks for: any `Steering`, or one of these."""

    STOP_AFTER_EPOCH = "stop_after_epoch"
    END_NOW = "end_now"
    ROLL_BACK = "roll_back"


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a run."""

    action: str  # an `Action` or a `Steering`
    by: str  # who asks, and how, such as ``requested with tpu-console pause``
    value: str = ""  # the new value as text; empty if the action has none
    number: str = ""  # its number, which the answer repeats; empty before it is written


def ask(run: RunDirectory, action: Action | Steering, by: str, value: str = "") -> str:
    """Write a request for a run; return its number. Raise `OSError` if it cannot be written.

    `by` says who asks, and how; the value is such as ``+5`` epochs or a learning rate of ``1e-4``.
    """
    require_real(run.path)
    run.control.mkdir(mode=0o700, exist_ok=True)
    number = f"{time.time_ns():020}-{secrets.token_hex(4)}"
    write_whole(run.control / f"{number}.json", json.dumps({"action": action, "by": by, "value": value}))
    return number


def request_files(run: RunDirectory) -> list[Path]:
    """Return the requests that wait in a run's folder, the oldest first, and a plain stop last."""
    names = sorted(entry.name for entry in run.control.iterdir() if _NAME.fullmatch(entry.name))[:_MOST]
    return [*(run.control / name for name in names), *([run.stop_request] if run.stop_request.exists() else [])]


def is_waiting(run: RunDirectory, number: str) -> bool:
    """Return whether the run has not read a request yet."""
    return (run.control / f"{number}.json").exists()


def take_requests(run: RunDirectory) -> list[Request]:
    """Remove the requests of a run and return them, the oldest first.

    Files of another kind stay and are ignored; requests that cannot be understood are removed.
    """
    try:
        files = request_files(run)
    except OSError:
        return []
    return [request for file in files if file != run.stop_request and (request := _taken(file)) is not None]


def _taken(path: Path) -> Request | None:
    request = _read(path)
    try:
        path.unlink()  # before it is carried out, so that it never is twice
    except FileNotFoundError:
        return None
    except OSError:
        with suppress(OSError):
            path.rmdir()
        return None
    return request


def _read(path: Path) -> Request | None:
    try:
        found = read_json(path, LARGEST_REQUEST)
        request = Request(found["action"], found["by"], found.get("value", ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not all(isinstance(text, str) for text in asdict(request).values()):
        return None
    if request.action not in {*Action, *Steering}:
        return None
    return Request(request.action, printable(request.by)[:200], printable(request.value)[:100], path.stem)
