"""`tpu-console resume` and `run --resume-if-exists`."""

import json
import os
from pathlib import Path

import pytest

from tests.engine.mirror.parts import Training
from tests.helpers import Host, small_config, wait_until
from tests.tui.calling import Call
from tpu_console.engine.runs.events import EpochEnded, Event, MirrorReported, RunFinished, RunResumed, RunStarted
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of, write_heartbeat
from tpu_console.engine.runs.journal import JournalReader, JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.storage.paths import runs_folder
from tpu_console.tui.following.follow import PlainPrinter, wait_for_life
from tpu_console.tui.following.overview import read_details


def ended(epoch: int) -> EpochEnded:
    return EpochEnded(epoch, 4 * epoch, 4, 1.0 * epoch, 1.0, 0.0, 0.0, 2.0, 500.0, 1e-3, {"loss": 0.5})


def interrupted(*history: Event) -> RunDirectory:
    run = Host(small_config(epochs=2), runs_folder(), start=False).run
    write(run, RunStarted("small", "host", 1, "here"), *history)
    return run


def write(run: RunDirectory, *events: Event) -> None:
    writer = JournalWriter(run.journal)
    for event in events:
        writer.write(event)
    writer.close()


@pytest.mark.slow
@pytest.mark.usefixtures("resumed_in_forks")
def test_a_stopped_run_is_continued_and_only_its_continuation_printed(call: Call) -> None:
    run = interrupted(ended(1), RunFinished("stopped", "asked", {}))
    lines = call.out("resume", run.run_id, "--batch-size", "16").splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["changed", "resumed"]
    assert "batch_size: 32 → 16" in lines[0]
    assert [line[:9] for line in lines if line.startswith("epoch")] == ["epoch 1/2", "epoch 2/2"]
    assert any(line.startswith("finished") for line in lines)
    wait_until(lambda: liveness_of(run) is Liveness.DEAD, "its process ends")
    assert f"{run.run_id} --epochs 4" in call.refused("resume", run.run_id, code=1)
    assert f"{run.run_id} has finished" in call.out("run", "digits-cnn", "--resume-if-exists", "small")
    kinds = [json.loads(line)["type"] for line in call.out("attach", run.run_id, "--json").splitlines()]
    assert kinds.count("RunFinished") == 2, "the first end was not the last"


def test_a_run_that_trains_or_is_changed_wrongly_is_refused(call: Call) -> None:
    run = interrupted(ended(1))
    assert "--set mirror=…" in call.refused("mirror", code=1)
    assert "optimizer.nme: " in call.refused("resume", run.run_id, "--set", "optimizer.nme=3", "--epochs", "0")
    call.refused("resume", run.run_id, "--set", "model=mlp", "--set", "seed")
    write_heartbeat(run, os.getpid())
    error, remedy = call.refused("resume", run.run_id, code=1).splitlines()
    assert "still training" in error
    assert f" attach {run.run_id}," in remedy


def test_a_run_is_copied_to_its_mirror_later_and_found_there_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    (tmp_path / "drive").mkdir()
    training = Training(runs_folder(), str(tmp_path / "drive"))
    training.epoch()
    place, run = tmp_path / "drive" / training.run.run_id, training.run
    training.recorder.emit(MirrorReported(str(place), 0, "away", ("events.jsonl",), is_given_up=True))
    training.recorder.emit(RunFinished("completed", "all epochs are done", {}))
    training.journal.close()
    took_s = read_details(run).state.took_s
    assert "copied: events.jsonl" in call.out("show")
    assert call.out("mirror") == f"{run.run_id} is complete at {place}\n"
    assert call.json("show")["mirror"]["epoch"] == 1
    assert read_details(run).state.took_s == took_s, "copying later is no part of the run"
    assert (place / "events.jsonl").read_bytes() == run.journal.read_bytes()

    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path / "new machine"))
    mounted = (tmp_path / "drive").rename(tmp_path / "mounted")
    again = ["run", "digits-cnn", "--resume-if-exists", "mirrored", "--set", f"mirror={mounted}"]
    copy = runs_folder() / run.run_id
    mirror, here, end = call.out(*again, "--epochs", "1").splitlines()
    assert mirror.split(maxsplit=1) == ["mirror", str(mounted / run.run_id)]
    assert here.split(maxsplit=1) == ["here", str(copy)]
    assert f"{run.run_id} has finished" in end
    assert (copy / "events.jsonl").read_bytes() == run.journal.read_bytes()


def test_printing_goes_on_after_the_seam() -> None:
    run = interrupted(ended(1), ended(2), RunFinished("stopped", "asked", {}))
    printer = PlainPrinter(run)
    write(
        run,
        RunResumed(1, 2, 6, 65.0, 1, "here"),
        ended(2),
        RunResumed(1, 0, 4, 65.0, 1, "here", why="the loss became NaN; learning rate 0.01 → 0.0025"),
        ended(2),
    )
    lines = printer.feed(JournalReader(run.journal).read())
    assert any("epoch 2 at step" in line and "1m 05s" in line for line in lines)
    assert any("from step 4" in line and "0.01 → 0.0025" in line for line in lines)
    assert [epoch.epoch for epoch in printer.state.epochs] == [1, 2]
    assert wait_for_life(run, 0.0, resumed=2) == "alive"
    assert wait_for_life(run, 0.0, resumed=3) != "alive"
