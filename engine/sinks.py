"""Feeds experiment trackers, each from its own process: `python -m tpu_console.engine.sinks RUN PROJECT NAME`.

Such a process follows the run's journal, and prints a sentence if the tracker fails. It ends after the run's last
event, or when its standard input ends because the process that trains is gone; a tracker that then needs too long is
given up.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .accelerators.backend import is_installed
from .config.options import sink_project
from .config.values import flattened
from .errors import one_line
from .machine.install import install_line
from .messages import start_module
from .runs.events import EpochEnded, Event, RunFailed, RunFinished, RunResumed, RunStarted
from .runs.journal import JournalReader
from .runs.run_directory import RunDirectory
from .sanitize import printable
from .storage.files import open_private

if TYPE_CHECKING:
    from .config.run_config import RunConfig
    from .runs.recorder import Recorder

_LONGEST_PARAMETER = _LONGEST_NOTE = 500  # characters; MLflow takes no longer values
_RUN_TAG = "tpu_console.run"
_PACKAGES = {"wandb": ("wandb",), "mlflow": ("mlflow", "mlflow-skinny")}


def start_sinks(recorder: Recorder, config: RunConfig, has: Callable[[str], bool] = is_installed) -> None:
    """Feed the trackers that a configuration names from the run's journal; whatever fails is only a notice."""
    for name, project in map(sink_project, config.sinks):
        if name == "tensorboard":
            continue  # the training process writes its files itself
        if not any(map(has, _PACKAGES[name])):
            line = install_line(_PACKAGES[name][0])
            recorder.notice(f"The run is not recorded by {name}, which is not installed. To install it: {line}")
            continue
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "WANDB_SILENT": "true"}
        arguments, pipe = (str(recorder.run.path), project, name), subprocess.PIPE
        try:
            # Its standard input ends when this process does, however that happens.
            with open(recorder.run.log, "ab", opener=open_private) as log:
                process = start_module("engine.sinks", *arguments, stdin=pipe, stdout=pipe, stderr=log, env=environment)
        except OSError as error:
            recorder.notice(f"The run is not recorded by {name}: {error.strerror}.")
            continue
        threading.Thread(target=_report, args=(recorder, process), name="tpu-console-sinks", daemon=True).start()


def _report(recorder: Recorder, process: subprocess.Popen[bytes]) -> None:
    """Report what a tracker's process says, until it ends."""
    for line in process.stdout or ():
        recorder.notice(printable(line.decode(errors="replace").strip())[:_LONGEST_NOTE])
    process.wait()


class Wandb:
    """Weights & Biases; ``WANDB_MODE=offline`` writes files into the run's folder."""

    def __init__(self, run: RunDirectory, project: str) -> None:
        self._run, self._project = run, project
        self._recorded: Any = None

    def begin(self, config: Mapping[str, Any]) -> None:
        """Begin the run, or continue it under the same number."""
        import wandb

        name = self._run.run_id
        self._recorded = wandb.init(
            project=self._project, id=name, name=name, dir=self._run.path, config=dict(config), resume="allow",
            settings=wandb.Settings(console="off", x_disable_stats=True, silent=True),
        )  # fmt: skip

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        """Record the values of an epoch."""
        self._recorded.log({"epoch": epoch, **values}, step=epoch)

    def end(self, *, is_good: bool, summary: Mapping[str, Any]) -> None:
        """Record how the run ended, and upload the rest."""
        if self._recorded is not None:
            self._recorded.summary.update(dict(summary))
            self._recorded.finish(exit_code=0 if is_good else 1)


class Mlflow:
    """MLflow, at the address in ``MLFLOW_TRACKING_URI``."""

    def __init__(self, run: RunDirectory, project: str) -> None:
        self._run, self._project = run, project
        self._client: Any = None

    def begin(self, config: Mapping[str, Any]) -> None:
        """Begin the run, or continue the one with its name."""
        from mlflow import MlflowClient

        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # as recent versions ask of those who use one
        self._client = client = MlflowClient()
        found = client.get_experiment_by_name(self._project)
        experiment = found.experiment_id if found is not None else client.create_experiment(self._project)
        name = self._run.run_id
        known = client.search_runs([experiment], f"tags.`{_RUN_TAG}` = '{name}'", max_results=1)
        if known:
            self._id = known[0].info.run_id
            client.set_terminated(self._id, "RUNNING")
            return
        self._id = client.create_run(experiment, run_name=name, tags={_RUN_TAG: name}).info.run_id
        for key, value in flattened(config).items():
            client.log_param(self._id, key, str(value)[:_LONGEST_PARAMETER])

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        """Record the values of an epoch."""
        for name, value in values.items():
            self._client.log_metric(self._id, name, float(value), step=epoch)

    def end(self, *, is_good: bool, summary: Mapping[str, Any]) -> None:
        """Record how the run ended."""
        if self._client is not None:
            for name, value in summary.items():
                self._client.set_tag(self._id, name, str(value)[:_LONGEST_PARAMETER])
            self._client.set_terminated(self._id, "FINISHED" if is_good else "FAILED")


Tracker = Wandb | Mlflow
TRACKERS: dict[str, type[Tracker]] = {"wandb": Wandb, "mlflow": Mlflow}

_LOOK_S = 2.0
_END_S = 600.0  # longest time for the last uploads


def main(arguments: list[str]) -> None:
    """Feed a tracker until the run is over."""
    place, project, name = arguments
    notes = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what a tracker prints goes to the log of the run
    run = RunDirectory(Path(place))
    tracker = TRACKERS[name](run, project)

    def give_up() -> None:
        missing = f"the tracker was still busy {_END_S:.0f} s after its end."
        print(f"The run is not recorded completely: {missing}", file=sys.stderr)
        os.killpg(0, signal.SIGKILL)

    timer = threading.Timer(_END_S, give_up)  # of this process and its children
    timer.daemon = True
    event: Event | None = None
    try:
        for event in _events(run):
            if isinstance(event, RunFinished | RunFailed):
                timer.start()
            _pass_on(tracker, event)
        if not isinstance(event, RunFinished | RunFailed):
            timer.start()
            tracker.end(is_good=False, summary={})
    except BaseException as error:  # noqa: BLE001  a tracker may do anything but harm the run
        with suppress(OSError, ValueError):  # the process that trains is gone
            notes.write(f"The run is not recorded by {name} from here on: {one_line(error, 300)}\n")


_WANTED = RunStarted, RunResumed, EpochEnded, RunFinished, RunFailed


def _pass_on(tracker: Tracker, event: Event) -> None:
    match event:
        case RunStarted() | RunResumed():
            tracker.begin(event.config)
        case EpochEnded():
            speeds = {name: getattr(event, name) for name in ("learning_rate", "examples_per_s", "step_ms")}
            given = {name: value for name, value in speeds.items() if value is not None}
            tracker.log(event.epoch, {**event.logs, **given, "epoch_s": event.seconds})
        case RunFinished(summary=found):  # its best and final values, which are dictionaries, by one name each
            summary = {name: value for name, value in found.items() if isinstance(value, str | int | float)}
            for part in ("best", "final"):
                summary |= {f"{part}_{name}": value for name, value in (found.get(part) or {}).items()}
            tracker.end(is_good=True, summary=summary)
        case RunFailed():
            tracker.end(is_good=False, summary={"error": event.what})


def _events(run: RunDirectory) -> Iterator[Event]:
    """Yield the events of a run until its last one; of a resumed run, only those since."""
    journal = JournalReader(run.journal)
    events = [*_read(journal)]
    starts = [number for number, event in enumerate(events) if isinstance(event, RunStarted | RunResumed)]
    del events[: starts[-1] if starts else 0]
    is_alive = True
    while True:
        for event in events:
            yield event
            if isinstance(event, RunFinished | RunFailed):
                return
        if not is_alive:
            return
        if select.select([sys.stdin], [], [], _LOOK_S)[0]:
            is_alive = bool(sys.stdin.buffer.read1(1))  # type: ignore[union-attr]  # and then read what is left
        events = [*_read(journal)]


def _read(journal: JournalReader) -> Iterator[Event]:
    """Yield the events that a tracker wants."""
    while records := journal.read():
        for record in records:
            if isinstance(record.event, _WANTED):
                yield record.event


if __name__ == "__main__":
    main(sys.argv[1:])
