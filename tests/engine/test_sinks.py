"""Experiment trackers record a run through its journal, in their own process; their failures are notices."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import LIMIT_S, has, run_host, small_config, the, wait_until
from tpu_console.engine.runs.events import EpochEnded, Event, Noticed, RunFailed, RunFinished, RunResumed, RunStarted
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.sinks import Mlflow, start_sinks

CONFIG = {"dataset": "digits", "optimizer": {"name": "adam"}}
STARTED = RunStarted("small", "host", 1, "here", CONFIG)
FINISHED = RunFinished("completed", "all epochs are done", {"outcome": "completed", "best": {"loss": 0.5}})


def ended(epoch: int) -> EpochEnded:
    return EpochEnded(epoch, epoch, 1, 0.0, 1.0, 0.0, 0.0, 2.0, 30.0, 0.01, {"loss": 1 / epoch, "val_loss": 2 / epoch})


def write(recorder: Recorder, *events: Event) -> RunDirectory:
    for event in events:
        recorder.emit(event)
    return recorder.run


def feed(run: RunDirectory, name: str, **environment: str) -> str:
    """Feed a tracker with a whole run, as after the end of the process that trained it; return what it reported."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tpu_console.engine.sinks", str(run.path), "pets", name],
        env=os.environ | {"WANDB_SILENT": "true"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def values_of(recorded: Path) -> bytes:
    (file,) = recorded.glob("offline-run-*/run-*.wandb")
    return file.read_bytes()


def logged(content: bytes, name: str) -> list[float]:
    """The values of a metric in a file of W&B, as JSON in protobuf after its name; history and summary repeat them."""
    found = re.findall(name.encode() + rb"\x82\x01.([0-9.]+)", content, re.DOTALL)
    return [*dict.fromkeys(map(float, found))]


@pytest.mark.slow
def test_wandb_records_offline_what_follows_the_newest_start_of_a_run_and_how_it_failed(recorder: Recorder) -> None:
    pytest.importorskip("wandb")
    resumed = RunResumed(1, 0, 1, 0.0, 1, "here", CONFIG)
    failed = RunFailed("The disk is full.", "", "", "console.log")
    run = write(recorder, STARTED, ended(5), resumed, ended(1), ended(2), failed)
    assert feed(run, "wandb", WANDB_MODE="offline") == ""
    content = values_of(run.path / "wandb")
    for text in (b"val_loss", b"learning_rate", b"The disk is full.", b"optimizer", b"pets", run.run_id.encode()):
        assert text in content, text
    assert (logged(content, "epoch"), logged(content, "val_loss")) == ([1.0, 2.0], [2.0, 1.0])


@pytest.mark.slow
def test_a_tracker_that_fails_says_so_in_one_line(recorder: Recorder, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    run = write(recorder, STARTED, ended(1), FINISHED)
    said = feed(run, "wandb", WANDB_MODE="online", WANDB_API_KEY="", WANDB_CONFIG_DIR=str(tmp_path), HOME=str(tmp_path))
    assert "wandb" in said
    assert said.count("\n") == 1


@pytest.mark.slow
def test_mlflow_records_in_files_how_a_run_failed_and_continues_when_it_is_resumed(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the extra [mlflow] is not installed")
    run = write(recorder, STARTED, ended(1), ended(2), RunFailed("full", "", "", "console.log"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    assert feed(run, "mlflow") == ""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient()
    experiments = [client.get_experiment_by_name("pets").experiment_id]
    (found,) = client.search_runs(experiments)
    assert (found.info.status, found.data.tags["error"]) == ("FAILED", "full")
    assert found.data.params["optimizer.name"] == "adam"
    assert [one.value for one in client.get_metric_history(found.info.run_id, "loss")] == [1.0, 0.5]
    resumed = Mlflow(run, "pets")
    resumed.begin(CONFIG)
    assert [one.info.status for one in client.search_runs(experiments)] == ["RUNNING"]
    resumed.end(is_good=True, summary={})
    assert [one.info.status for one in client.search_runs(experiments)] == ["FINISHED"]


def test_a_tracker_that_is_not_installed_is_a_notice(recorder: Recorder) -> None:
    start_sinks(recorder, small_config(sinks=["mlflow"]), has=lambda _: False)
    assert "mlflow" in the(recorder.run, Noticed).message


@pytest.mark.slow
def test_a_real_run_is_recorded_and_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = run_host(small_config(sinks=['wandb(project="pets")']), tmp_path)
    assert has(run, RunFinished)
    wait_until(lambda: b"best_val_accuracy" in values_of(run.path / "wandb"), "the summary", 2 * LIMIT_S)
