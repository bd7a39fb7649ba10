"""Ends the process that trains a run, without saving."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from ..errors import ConsoleError
from ..machine.process_identity import Sight, look_for
from ..runs.control import ask, is_waiting
from ..runs.events import Steering
from ..runs.liveness import LARGEST_HEARTBEAT, Liveness, watch_once
from ..storage.files import read_json

if TYPE_CHECKING:
    from pathlib import Path

    from ..runs.run_directory import RunDirectory

_PATIENCE_S = 5.0
_LOOK_S = 0.1


def end_now(run: RunDirectory, by: str, *, responds: bool) -> None:
    """End the process of a run: it does so itself, with a last event, or else it is killed if it is on this machine.

    `by` says who asks, and how. If the process does not respond, it is killed without waiting.

    Raises:
        ConsoleError: It does not respond, and its process cannot be seen from here.
        OSError: The request cannot be written.
    """
    number = ask(run, Steering.END_NOW, by)
    deadline = time.monotonic() + _PATIENCE_S * responds
    while time.monotonic() < deadline:
        if not is_waiting(run, number):
            return  # it has read it, and ends
        time.sleep(_LOOK_S)
    if watch_once(run).look().liveness is not Liveness.DEAD:
        _kill(run)


def _has_open(pid: int, path: Path) -> bool:
    import psutil

    try:
        return str(path.resolve()) in {file.path for file in psutil.Process(pid).open_files()}
    except psutil.Error:
        return False


def _kill(run: RunDirectory) -> None:
    """Kill the process that the heartbeat names, if it is seen from here to be that one."""
    try:
        beat = read_json(run.heartbeat, LARGEST_HEARTBEAT)
    except (OSError, ValueError):
        beat = None
    # Anybody may have written the heartbeat: only a process that has the run's journal open is killed.
    if not isinstance(beat, dict) or look_for(beat) is not Sight.RUNNING or not _has_open(beat["pid"], run.journal):
        raise ConsoleError(
            f"{run.run_id} does not respond, and its process cannot be seen from here.",
            remedy="Kill it on the machine where it runs; `tpu-console runs show` names it.",
        )
    os.kill(beat["pid"], signal.SIGKILL)
