"""`tpu-console doctor`: lines, JSON, exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.engine.machine.recorded import lay_out
from tests.helpers import leave_dead
from tpu_console.engine.doctor.doctor import Report, examine
from tpu_console.engine.machine.environment import look_around
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.engine.storage.paths import cache_folder
from tpu_console.tui.text.doctor_report import report_lines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tui.calling import Call
    from tpu_console.tui.text.doctor_report import ReportLine


def lines_of(name: str, folder: Path, width: int | None) -> tuple[Report, list[ReportLine]]:
    report = examine(look_around(lay_out(name, folder).sources))
    return report, report_lines(report, width)


def test_a_pipe_gets_whole_plain_lines(tmp_path: Path) -> None:
    _, shown = lines_of("kaggle-v5e-8-interactive", tmp_path, None)
    lines = [str(line) for line in shown]
    assert lines[:2] == ["where        Kaggle, interactive", "accelerator  TPU v5e, 8 chips"]
    assert any(line.startswith("problem  TPU free: ") for line in lines)
    assert any(line.endswith("-> /dev/vfio/0") for line in lines)
    assert any(line.startswith("         run: ") and line.endswith("-p 13") for line in lines)


def test_a_terminal_gets_lines_that_fit_and_coloured_verdicts(tmp_path: Path) -> None:
    report, lines = lines_of("tpu-vm-v4-8", tmp_path, 80)
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
    assert "\x1b" not in call("doctor")[1]


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
    sizes = {part["name"]: (part["files"], part["bytes"]) for part in call.json("cache")}
    assert sizes == {"compiled": (2, 1500), "runs": (1, 700)}
    assert "1.5 kB" in call.out("cache")
    assert "Cleared" in call.out("cache", "--clear")
    assert not any(path.exists() for path in kept)
    assert foreign.exists()
