"""Starts the process that feeds a run's experiment trackers, and reports what goes wrong there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING

from ..accelerators.backend import is_installed
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
    threading.Thread(
        target=_report, args=(recorder, process, process.stdout), name="tpu-console-sinks", daemon=True
    ).start()


def _report(recorder: Recorder, process: subprocess.Popen[bytes], notes: IO[bytes]) -> None:
    """Write each line of the process as a notice, until it ends."""
    for line in notes:
        recorder.notice(printable(line.decode(errors="replace").strip())[:_LONGEST_NOTE])
    process.wait()
