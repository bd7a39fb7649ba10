"""Starts a process for each experiment tracker of a run, and reports what goes wrong there."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING

from ..accelerators.backend import is_installed
from ..children import start_module
from ..config.options import sink_project
from ..machine.install import install_line
from ..sanitize import printable
from ..storage.files import open_private

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runs.recorder import Recorder

_PACKAGES = {"wandb": ("wandb",), "mlflow": ("mlflow", "mlflow-skinny")}
_LONGEST_NOTE = 500


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
            # Its standard input ends when this process does, however that happens.
            with open(recorder.run.log, "ab", opener=open_private) as log:
                process = start_module(
                    "engine.sinks.feed",
                    str(recorder.run.path),
                    project,
                    name,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "WANDB_SILENT": "true"},
                )
        except OSError as error:
            recorder.notice(f"The run is not recorded by {name}: {error.strerror}.")
            continue
        threading.Thread(target=_report, args=(recorder, process), name="tpu-console-sinks", daemon=True).start()


def _report(recorder: Recorder, process: subprocess.Popen[bytes]) -> None:
    """Report what a tracker's process says, until it ends."""
    for line in process.stdout or ():
        recorder.notice(printable(line.decode(errors="replace").strip())[:_LONGEST_NOTE])
    process.wait()
