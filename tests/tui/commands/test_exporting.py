"""`tpu-console export` and `predict` as a person calls them: a real run, real processes, real files."""

from __future__ import annotations

import csv
import shutil
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.helpers import run_host, small_config
from tests.hostile_models import lambda_run
from tests.tui.forked_program import FORKED, forking
from tests.tui.terminal_driver import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tui.calling import Call
    from tpu_console.engine.runs.run_directory import RunDirectory


pytestmark = [pytest.mark.usefixtures("forked_jobs"), pytest.mark.slow]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return run_host(small_config(augmentation={"flip": "horizontal"}), tmp_path_factory.mktemp("runs"))


def test_a_script_is_named_like_the_run_and_replaced_only_when_forced(
    call: Call, digits: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["export", str(digits.path), "--script"]
    out = call.out(*command)
    assert "small.py" in out
    assert "changed at random" in out
    written = (tmp_path / "small.py").read_text()
    assert "import keras" in written
    assert "small.py exists" in call.refused(*command, code=1)
    assert call.out(*command, "-") == written


def test_a_presets_name_stands_for_its_newest_run(
    call: Call, digits: RunDirectory, tmp_path: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("20260101-000000-small", "20260102-000000-small", "20260103-000000-small-too"):
        shutil.copytree(digits.path, private_home / "runs" / name)
    out = call.out("export", "small", "--script")
    assert "20260102-000000-small, the newest" in out
    assert "20260102-000000-small" in (tmp_path / "small.py").read_text()


def test_bad_usage(call: Call) -> None:
    assert "--out" in call.refused("predict", "--data", "x.npy")
    assert "--out is given" in call.refused("predict", "--data", "x.npy", "--out", "x.csv", "--out", "y.csv")
    for options in ([], ["--script", "--notebook"]):
        err = call.refused("export", *options)
        assert all(form in err for form in ("--script", "--notebook", "--savedmodel", "--tflite", "--onnx"))


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    np.save(tmp_path / "scans.npy", np.full((3, 8, 8), 7.0))
    return tmp_path / "scans.npy"


def test_a_file_is_written_once_and_replaced_when_forced(
    call: Call, digits: RunDirectory, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(scans.parent)
    command = ["predict", str(digits.path), "--data", "scans.npy", "--out", "labels.csv"]
    code, out, err = call(*command)
    assert (code, out.splitlines()[0].split()[0]) == (0, "run")
    assert "3 rows: " in out
    assert "3 examples" in err
    rows = list(csv.reader((scans.parent / "labels.csv").open()))
    assert rows[0] == ["index", "label", "probability"]
    assert len(rows) == 4
    assert "labels.csv exists" in call.refused(*command, code=1)
    call.out(*command, "--force")


def test_standard_output_holds_the_predictions_and_nothing_else(
    call: Call, digits: RunDirectory, scans: Path, tmp_path: Path
) -> None:
    code, out, err = call("predict", str(digits.path), "--data", str(scans), "--out", "-")
    assert code == 0
    assert [line.partition(",")[0] for line in out.splitlines()] == ["index", "0", "1", "2"]
    assert "model.keras" in err
    np.save(tmp_path / "wrong.npy", np.zeros((3, 28, 28)))
    err = call.refused("predict", str(digits.path), "--data", str(tmp_path / "wrong.npy"), "--out", "-", code=1)
    assert "8×8×1" in err
    assert "Traceback" not in err


def test_code_in_a_foreign_model_runs_only_with_trust(call: Call, scans: Path, tmp_path: Path) -> None:
    marker, out = tmp_path / "marker", tmp_path / "out.csv"
    run = lambda_run(tmp_path / "run", marker)
    command = ["predict", str(run.path), "--data", str(scans), "--out", str(out)]
    err = call.refused(*command, code=1)
    assert f"layer 'innocent' in {run.model}" in err
    assert "--trust" in err
    assert "Traceback" not in err
    assert not marker.exists()
    assert not out.exists()
    call.out(*command, "--trust")
    assert marker.exists()
    assert len(out.read_text().splitlines()) == 4


def test_on_a_terminal_code_in_a_foreign_model_is_asked_about(scans: Path, tmp_path: Path, private_home: Path) -> None:
    marker, out = tmp_path / "marker", tmp_path / "out.csv"
    run = lambda_run(tmp_path / "run", marker)
    command = [*FORKED, "predict", str(run.path), "--data", str(scans), "--out", str(out)]
    forked = Terminal(*command, home=private_home, size=(120, 40), program=sys.executable, environment=forking())
    with closing(forked) as terminal:
        terminal.wait_for("Allow it to run? [y/N]")
        assert "layer 'innocent' in" in terminal.flat
        terminal.press("n", "enter")
        assert terminal.wait() == 1
    assert not marker.exists()
    assert not out.exists()
