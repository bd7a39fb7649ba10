"""`tpu-console doctor`: lines, JSON, exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.engine.machine.recorded import lay_out
from tests.helpers import leave_dead
from tpu_console.engine.doctor.doctor import Report, examine
from tpu_console.engine.machine import environment
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.engine.storage.paths import cache_folder
from tpu_console.tui.text.doctor_report import report_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.tui.calling import Call


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the command run on a recorded machine."""

    def go(name: str) -> None:
        sources = lay_out(name, tmp_path / name).sources
        monkeypatch.setattr(environment, "this_machine", lambda: sources)

    return go


def report_of(name: str, folder: Path) -> Report:
    return examine(environment.look_around(lay_out(name, folder).sources))


@pytest.mark.parametrize(("name", "code"), [("colab-v5e-1", 0), ("gpu-box", 0), ("tpu-held", 1), ("laptop", 1)])
def test_the_exit_code_reports_a_problem(call: Call, at: Callable[[str], None], name: str, code: int) -> None:
    at(name)
    assert call("doctor")[0] == code
    got, out, err = call("doctor", "--json")
    assert (got, err, json.loads(out)["ok"]) == (code, "", code == 0)


def test_json_has_the_evidence_and_the_next_command(call: Call, at: Callable[[str], None]) -> None:
    at("tpu-lock-of-another")
    shown = json.loads(call("doctor", "--json")[1])
    assert shown["environment"]["where"] == "TPU VM"
    (lock,) = [finding for finding in shown["findings"] if finding["check"] == "tpu-lock"]
    assert (lock["verdict"], lock["group"]) == ("problem", "Accelerator")
    assert "rm /tmp/libtpu_lockfile" in lock["command"]
    assert any(line.startswith("/proc/locks: ") for line in lock["evidence"])


def test_a_pipe_gets_whole_plain_lines(call: Call, at: Callable[[str], None]) -> None:
    at("kaggle-v5e-8-interactive")
    _, out, _ = call("doctor")
    lines = out.splitlines()
    assert lines[0] == "where        Kaggle, interactive"
    assert lines[1] == "accelerator  TPU v5e, 8 chips"
    assert "\x1b" not in out
    assert any(line.startswith("problem  TPU free: ") for line in lines)
    assert any(line.endswith("/proc/13/fd/4 -> /dev/vfio/0") for line in lines)
    assert any(line.startswith("         run: ") and line.endswith("-p 13") for line in lines)


def test_a_terminal_gets_lines_that_fit_and_coloured_verdicts(tmp_path: Path) -> None:
    report = report_of("tpu-vm-v4-8", tmp_path)
    lines = report_lines(report, 80)
    assert [line for line in map(str, lines) if len(line) > 80 and "run:" not in line] == []
    assert ("problem", "TensorFlow") in [(line.look, line.text.partition(":")[0]) for line in lines]
    assert str(lines[-1]) == report.summary


def test_it_really_looks_at_this_machine(call: Call) -> None:
    code, out, err = call("doctor", "--json")
    shown = json.loads(out)
    assert err == ""
    assert code == (0 if shown["ok"] else 1)
    checks = {finding["check"] for finding in shown["findings"]}
    assert {"tensorflow", "keras", "limits", "disk-runs", "utf-8"} <= checks
    assert "tensorflow 2." in shown["environment"]["software"]


def fill(name: str, size: int) -> Path:
    path = cache_folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def test_the_caches_are_listed_with_their_sizes_and_cleared(call: Call) -> None:
    kept = [fill("compiled/x/b-cache", 1000), fill("compiled/x/c-cache", 500)]
    foreign = fill("notes.txt", 10)
    killed = create_run("killed")
    killed.config.touch()
    kept.append(killed.cache / "train.images")
    killed.cache.mkdir()
    kept[-1].write_bytes(bytes(700))
    leave_dead(killed)
    out = call.out("cache", "--json")
    assert {part["name"]: (part["files"], part["bytes"]) for part in json.loads(out)} == {
        "compiled": (2, 1500),
        "runs": (1, 700),
    }
    _, out, _ = call("cache")
    assert "1.5 kB" in out
    assert "compiled by JAX" in out
    code, out, _ = call("cache", "--clear")
    assert (code, "Cleared" in out) == (0, True)
    assert not any(path.exists() for path in kept)
    assert foreign.exists()
