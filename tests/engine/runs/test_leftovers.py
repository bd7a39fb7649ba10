"""What a killed process left in a run's folder, and who may remove it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.helpers import gone_process, leave_dead
from tpu_console.engine.runs.run_directory import RunDirectory, create_run, discard_leftovers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run() -> RunDirectory:
    run = create_run("killed")
    run.journal.touch()
    run.cache.mkdir()
    (run.cache / "train_0.data").write_bytes(b"images")
    run.checkpoints.mkdir()
    leave_dead(run)
    return run


def test_the_process_that_trains_a_run_removes_what_the_one_before_left(run: RunDirectory) -> None:
    left = [folder / f".draft-{gone_process()}-x" for folder in (run.path, run.checkpoints, run.control)]
    reused = run.path / f".draft-{os.getpid()}-model.keras"
    for path in (*left, reused):
        path.touch()
    os.utime(reused, (1e9, 1e9))
    written = run.control / f".draft-{os.getpid()}-stop.json"  # by a console that runs
    written.touch()
    discard_leftovers(run)
    assert {path.name for path in run.path.rglob("*")} == {
        "events.jsonl", "heartbeat.json", "reserved-space", "checkpoints", "control", written.name,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["checkpoints", "control", "cache"])
def test_nothing_is_removed_through_a_link(run: RunDirectory, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in (".bashrc.1", "notes.7.draft", f".draft-{gone_process()}-x"):
        (elsewhere / file).touch()
    (run.path / name).rename(tmp_path / "moved")
    (run.path / name).symlink_to(elsewhere)
    discard_leftovers(run)
    assert len([*elsewhere.iterdir()]) == 3
