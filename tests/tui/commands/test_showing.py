"""What `show` says of a run beside its journal: its class scores, notes, preset, outputs and local time."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.tui.commands.test_runs import DONE, FINISHED, make_run
from tpu_console.engine.runs.annotations import Annotations, write_annotations
from tpu_console.engine.storage.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

SCORE = {"name": "zero", "precision": 1.0, "recall": 1.0, "f1": 1.0, "examples": 2}
REPORT = {
    "examples": 2,
    "accuracy": 1.0,
    "balanced_accuracy": 1.0,
    "not_numbers": 0,
    "is_partial": False,
    "classes": [SCORE],
    "mistakes": [{"label": "zero", "taken_for": "zero", "count": 1, "share": 0.5}],
    "matrix": [[2]],
}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path))


@pytest.fixture
def run() -> RunDirectory:
    run = make_run(*FINISHED, DONE, epochs=7)
    write_whole(run.report, json.dumps(REPORT))
    return run


def test_class_scores_notes_and_outputs_are_shown(call: Any, run: RunDirectory) -> None:
    write_annotations(run.path, Annotations(title="best one", archived=True))
    run.history.touch()
    out = call("show")[1]
    assert out.startswith(f"{run.run_id} (archived)\n")
    assert "  title    best one\n" in out
    assert "(1×, 50% of them)" in out
    assert str(run.history) in out
    values = json.loads(call("show", "--json")[1])
    assert (values["title"], values["classes"]["classes"][0]["name"]) == ("best one", "zero")


def test_times_are_local(call: Any, run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = [json.loads(call("show", "--json")[1])["started"]]
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        hours.append(json.loads(call("show", "--json")[1])["started"])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert hours[0] != hours[1]


def test_curves_are_printed_as_plain_text(call: Any, run: RunDirectory) -> None:
    code, out = call("show", "--plot")[:2]
    assert code == 0
    assert "loss" in out
    assert "┤" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
