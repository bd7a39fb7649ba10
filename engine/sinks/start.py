"""Starts the process that feeds a run's experiment trackers, and reports what goes wrong there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import IO, TYPE_CHECKING

from ..accelerators.backend import is_installed
from ..machine.install import install_line
from ..runs.events import Phase, PhaseStarted
from ..sanitize import printable
from ..storage.files import open_private

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runs.events import Event
    from ..runs.recorder import Recorder

_PACKAGES = {"wandb": ("wandb",), "mlflow": ("mlflow", "mlflow-skinny")}
_LONGEST_NOTE = 500
_SILENT_S, _SILENT_AT_THE_END_S = 10.0, 1.0
_SILENT = "{name} does not answer. The run does not wait for it; what is missing is sent later, if it answers."


def start_sinks(recorder: Recorder, config: RunConfig) -> None:
    """Feed the trackers that a configuration names from the run's journal; whatever fails is only a notice."""
    there = []
    for name in config.sinks:
        if any(is_installed(package) for package in _PACKAGES[name]):
            there.append(name)
        else:
            line = install_line(_PACKAGES[name][0])
            recorder.notice(f"The run is not recorded by {name}, which is not installed. To install it: {line}")
    if not there:
        return
    try:
        _start(recorder, [*there], config.project)
    except OSError as error:
        recorder.notice(f"The run is not recorded by {' and '.join(there)}: {error.strerror}.")


def _start(recorder: Recorder, names: list[str], project: str) -> None:
    run = recorder.run
    # Its standard input ends when this process does, however that happens.
    with open(run.log, "ab", opener=open_private) as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tpu_console.engine.sinks.feed", str(run.path), project, json.dumps(names)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "WANDB_SILENT": "true"},
        )
    assert process.stdout is not None  # noqa: S101  opened as a pipe
    feed = _Feed(recorder)
    recorder.listen(feed.hear)
    threading.Thread(target=feed.read, args=(process, process.stdout), name="tpu-console-sinks", daemon=True).start()


class _Feed:
    """Writes notices of what the process reports, and once of each tracker that keeps it waiting."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._waits_since: dict[str, float] = {}
        self._silent: set[str] = set()

    def read(self, process: subprocess.Popen[bytes], notes: IO[bytes]) -> None:
        """Read what the process reports, until it ends."""
        for line in notes:
            text = printable(line.decode(errors="replace").strip())[:_LONGEST_NOTE]
            match text.split():
                case [">", name]:
                    self._waits_since[name] = time.monotonic()
                case ["<", name]:
                    self._waits_since.pop(name, None)
                case _:
                    self._recorder.notice(text)
        process.wait()

    def hear(self, event: Event) -> None:
        """Look at the trackers with each event of the run."""
        is_end = isinstance(event, PhaseStarted) and event.phase == Phase.SAVING
        latest = time.monotonic() - (_SILENT_AT_THE_END_S if is_end else _SILENT_S)
        for name, since in [*self._waits_since.items()]:
            if since < latest and name not in self._silent:
                self._silent.add(name)
                self._recorder.notice(_SILENT.format(name=name))
