"""Starts a process for each experiment tracker of a run, and reports what goes wrong there."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from typing import IO, TYPE_CHECKING

from ..accelerators.backend import is_installed
from ..children import start_module
from ..config.options import sink_project
from ..machine.install import install_line
from ..runs.events import Event, Phase, PhaseStarted
from ..sanitize import printable
from ..storage.files import open_private

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runs.recorder import Recorder

_PACKAGES = {"wandb": ("wandb",), "mlflow": ("mlflow", "mlflow-skinny")}
_LONGEST_NOTE = 500
_SILENT_S, _SILENT_AT_THE_END_S = 10.0, 1.0
_SILENT = "{name} does not answer. The run does not wait for it; what is missing is sent later, if it answers."


def start_sinks(recorder: Recorder, config: RunConfig) -> None:
    """Feed the trackers that a configuration names from the run's journal; whatever fails is only a notice."""
    for name, project in map(sink_project, config.sinks):
        if name == "tensorboard":
            continue  # the training process writes its files itself
        if not any(is_installed(package) for package in _PACKAGES[name]):
            line = install_line(_PACKAGES[name][0])
            recorder.notice(f"The run is not recorded by {name}, which is not installed. To install it: {line}")
            continue
        try:
            _start(recorder, name, project)
        except OSError as error:
            recorder.notice(f"The run is not recorded by {name}: {error.strerror}.")


def _start(recorder: Recorder, name: str, project: str) -> None:
    run = recorder.run
    # Its standard input ends when this process does, however that happens.
    with open(run.log, "ab", opener=open_private) as log:
        process = start_module(
            "engine.sinks.feed",
            str(run.path),
            project,
            name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "WANDB_SILENT": "true"},
        )
    assert process.stdout is not None  # noqa: S101  opened as a pipe
    feed = _Feed(recorder, name)
    recorder.listen(feed.hear)
    threading.Thread(target=feed.read, args=(process, process.stdout), name="tpu-console-sinks", daemon=True).start()


class _Feed:
    """Writes notices of what the process reports, and one if the tracker keeps it waiting."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder, self._name = recorder, name
        self._waits_since: float | None = None
        self._is_silent = False

    def read(self, process: subprocess.Popen[bytes], notes: IO[bytes]) -> None:
        """Read what the process reports, until it ends."""
        for line in notes:
            text = printable(line.decode(errors="replace").strip())[:_LONGEST_NOTE]
            if text in {">", "<"}:
                self._waits_since = time.monotonic() if text == ">" else None
            else:
                self._recorder.notice(text)
        process.wait()

    def hear(self, event: Event) -> None:
        """Look at the tracker with each event of the run."""
        is_end = isinstance(event, PhaseStarted) and event.phase == Phase.SAVING
        latest = time.monotonic() - (_SILENT_AT_THE_END_S if is_end else _SILENT_S)
        since = self._waits_since
        if since is not None and since < latest and not self._is_silent:
            self._is_silent = True
            self._recorder.notice(_SILENT.format(name=self._name))
