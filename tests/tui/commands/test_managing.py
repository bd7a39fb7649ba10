"""`tpu-console runs rename`, `annotate`, `delete`, and how `runs` sorts and filters, in this process."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.tui.made_runs import made_run
from tpu_console.engine.runs.annotations import Annotations, read_annotations
from tpu_console.engine.runs.heartbeat import write_heartbeat

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path))


def listed(call: Any, *args: str) -> list[str]:
    code, out, _ = call("runs", "--json", *args)
    assert code == 0
    return [run["preset"] for run in json.loads(out)]


def test_a_title_is_shown_in_place_of_the_name_and_found(call: Any) -> None:
    run = made_run()
    assert "'the best one'" in call("rename", run.run_id, " the best one ")[1]
    assert "title " in call("show")[1]
    assert json.loads(call("show", "the best", "--json")[1])["run"] == run.run_id
    assert call("rename", run.run_id, "")[1] == f"{run.run_id} has no title.\n"
    assert not run.annotations.exists()


def test_tags_a_note_and_the_archive(call: Any) -> None:
    one, two = made_run(label="one"), made_run(label="two")
    call("annotate", "one", "two", "--tag", "base line", "--tag", "x")
    call("annotate", "one", "--untag", "x", "--note", "slow", "--archive")
    assert read_annotations(one.path) == Annotations("", ("base-line",), "slow", archived=True)
    assert listed(call, "--tag", "base-line") == ["two"]
    assert listed(call, "--tag", "base-line", "--archived") == ["two", "one"]
    assert listed(call, "--tag", "base-line", "--tag", "x") == ["two"]
    assert call("annotate", "one")[1] == f"{one.run_id}: #base-line · slow · archived\n"
    call("annotate", "one", "--unarchive", "--note", "")
    assert read_annotations(one.path) == Annotations("", ("base-line",))
    assert two.annotations.exists()


def test_runs_are_sorted(call: Any) -> None:
    made_run([{"val_accuracy": 0.5}] * 3, label="slow", speed=10.0)
    made_run([{"val_accuracy": 0.9}], label="good")
    made_run([], label="empty")
    assert listed(call) == ["empty", "good", "slow"]
    assert listed(call, "--sort", "best") == ["good", "slow", "empty"]
    assert listed(call, "--sort", "speed") == ["good", "slow", "empty"]
    assert listed(call, "--sort", "time") == ["empty", "good", "slow"]
    assert listed(call, "--sort", "preset") == ["empty", "good", "slow"]


def test_runs_are_deleted_restored_and_deleted_for_good(call: Any) -> None:
    run = made_run(label="one")
    made_run(label="two")
    code, out, _ = call("delete", "one")
    assert (code, run.run_id in out.splitlines()[0]) == (0, True)
    assert (listed(call), listed(call, "--deleted")) == (["two"], ["one"])
    assert call("delete", "--restore", "one")[1] == f"Restored: {run.run_id}\n"
    call("delete", "one", "two")
    assert call("delete", "--empty-trash", "--yes")[1] == "Deleted for good: 2\n"
    assert (listed(call), listed(call, "--deleted")) == ([], [])


def test_what_cannot_be_deleted_is_refused(call: Any) -> None:
    live = made_run(end=None)
    write_heartbeat(live, os.getpid())
    assert f"{live.run_id} is still training." in call("delete", live.run_id)[2]
    assert listed(call) == ["digits-cnn"]
    assert call("delete")[0] == 2
    assert call("delete", "--empty-trash", "one")[0] == 2
    code, _, err = call("delete", "--restore", "x")
    assert code == 2
    assert "'x'" in err
