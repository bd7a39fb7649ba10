"""`tpu-console resume` and `run --resume-if-exists`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.engine.mirror.parts import Training
from tests.helpers import Host, small_config, wait_until
from tpu_console.engine.runs.events import EpochEnded, Event, MirrorReported, RunFinished, RunResumed, RunStarted
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of, write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.storage.paths import runs_folder
from tpu_console.tui.cli import main
from tpu_console.tui.following.follow import PlainPrinter, wait_for_life
from tpu_console.tui.following.overview import read_details

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

START = RunStarted("small", "host", 1, "here")


def ended(epoch: int) -> EpochEnded:
    return EpochEnded(epoch, 4 * epoch, 4, 1.0 * epoch, 1.0, 0.0, 0.0, 2.0, 500.0, 1e-3, {"loss": 0.5})


def interrupted(*history: Event, name: str = "small") -> RunDirectory:
    """A run that has a configuration and a journal, and no process."""
    run = Host(small_config(name=name, epochs=2), runs_folder(), start=False).run
    writer = JournalWriter(run.journal)
    for event in (START, *history):
        writer.write(event)
    writer.close()
    return run


@pytest.mark.slow
@pytest.mark.usefixtures("resumed_in_forks")
def test_a_stopped_run_is_continued_and_only_its_continuation_printed(capfd: pytest.CaptureFixture[str]) -> None:
    run = interrupted(ended(1), RunFinished("stopped", "asked", {}))
    assert main(["resume", run.run_id, "--batch-size", "16"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["changed", "resumed"]
    assert "batch_size: 32 → 16" in lines[0]
    assert [line[:9] for line in lines if line.startswith("epoch")] == ["epoch 1/2", "epoch 2/2"]
    assert any(line.startswith("finished") for line in lines)
    wait_until(lambda: liveness_of(run) is Liveness.DEAD, "its process ends")
    assert main(["resume", run.run_id]) == 1
    assert f"{run.run_id} --epochs 4" in capfd.readouterr().err
    assert main(["run", "digits-cnn", "--resume-if-exists", "small"]) == 0
    assert f"{run.run_id} has finished" in capfd.readouterr().out
    assert main(["attach", run.run_id, "--json"]) == 0
    kinds = [json.loads(line)["type"] for line in capfd.readouterr().out.splitlines()]
    assert kinds.count("RunFinished") == 2, "the first end was not the last"


def test_a_run_that_trains_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    import os

    run = interrupted(ended(1))
    write_heartbeat(run, os.getpid())
    assert main(["resume", run.run_id]) == 1
    error, remedy = capsys.readouterr().err.splitlines()
    assert "still training" in error
    assert f" attach {run.run_id}," in remedy


def test_every_wrong_setting_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    run = interrupted()
    assert main(["resume", run.run_id, "--set", "optimizer.nme=3", "--epochs", "0"]) == 2
    assert "optimizer.nme: " in capsys.readouterr().err
    assert main(["resume", run.run_id, "--set", "model=mlp", "--set", "seed"]) == 2


def test_a_run_is_copied_to_its_mirror_later_and_found_there_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "drive").mkdir()
    training = Training(runs_folder(), str(tmp_path / "drive"))
    training.epoch()
    place, run = tmp_path / "drive" / training.run.run_id, training.run
    training.recorder.emit(MirrorReported(str(place), 0, "away", ("events.jsonl",), is_given_up=True))
    training.recorder.emit(RunFinished("completed", "all epochs are done", {}))
    training.journal.close()
    took_s = read_details(run).state.took_s
    assert main(["show"]) == 0
    assert "copied: events.jsonl" in capfd.readouterr().out
    assert main(["mirror"]) == 0
    assert capfd.readouterr().out == f"{run.run_id} is complete at {place}\n"
    assert main(["show", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["mirror"]["epoch"] == 1
    assert read_details(run).state.took_s == took_s, "copying later is no part of the run"
    assert (place / "events.jsonl").read_bytes() == run.journal.read_bytes()

    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path / "new machine"))
    (tmp_path / "drive").rename(tmp_path / "mounted")
    again = ["run", "digits-cnn", "--resume-if-exists", "mirrored", "--set", f"mirror={tmp_path / 'mounted'}"]
    assert main([*again, "--epochs", "1"]) == 0
    copy = runs_folder() / run.run_id
    mirror, here, end = capfd.readouterr().out.splitlines()
    assert mirror.split(maxsplit=1) == ["mirror", str(tmp_path / "mounted" / run.run_id)]
    assert here.split(maxsplit=1) == ["here", str(copy)]
    assert f"{run.run_id} has finished" in end
    assert (copy / "events.jsonl").read_bytes() == run.journal.read_bytes()


def test_a_run_without_a_mirror_says_how_to_set_one(capfd: pytest.CaptureFixture[str]) -> None:
    interrupted(ended(1))
    assert main(["mirror"]) == 1
    assert "--set mirror=…" in capfd.readouterr().err


def test_printing_goes_on_after_the_seam() -> None:
    run = interrupted(ended(1), ended(2), RunFinished("stopped", "asked", {}))
    printer = PlainPrinter(run)
    writer = JournalWriter(run.journal)
    writer.write(RunResumed(1, 2, 6, 65.0, 1, "here"))
    writer.write(ended(2))
    writer.write(RunResumed(1, 0, 4, 65.0, 1, "here", why="the loss became NaN; learning rate 0.01 → 0.0025"))
    writer.write(ended(2))
    writer.close()
    from tpu_console.engine.runs.journal import JournalReader

    lines = printer.feed(JournalReader(run.journal).read())
    assert any("in epoch 2 at step 2" in line and "1m 05s" in line for line in lines)
    assert any("from step 4" in line and "0.01 → 0.0025" in line for line in lines)
    assert [epoch.epoch for epoch in printer.state.epochs] == [1, 2]
    assert wait_for_life(run, 0.0, resumed=2) == "alive"
    assert wait_for_life(run, 0.0, resumed=3) != "alive"
