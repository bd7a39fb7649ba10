"""Experiment trackers, each through its own library; keys and addresses come from their own settings and variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from ..config.run_config import flattened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..runs.run_directory import RunDirectory

_LONGEST_PARAMETER = 500  # characters of a value that MLflow takes
_RUN_TAG = "tpu_console.run"


class Tracker(Protocol):
    """Where a run is recorded."""

    def __init__(self, run: RunDirectory, project: str) -> None: ...

    def begin(self, config: Mapping[str, Any]) -> None:
        """Begin the run, or continue it."""

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        """Record the values of an epoch."""

    def end(self, *, is_good: bool, summary: Mapping[str, Any]) -> None:
        """Record how the run ended, and wait until everything is recorded."""


class Wandb:
    """Weights & Biases; ``WANDB_MODE=offline`` writes files into the run's folder."""

    def __init__(self, run: RunDirectory, project: str) -> None:
        self._run = run
        self._project = project
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
        self._run = run
        self._project = project
        self._client: Any = None
        self._id = ""

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


TRACKERS: dict[str, type[Tracker]] = {"wandb": Wandb, "mlflow": Mlflow}
