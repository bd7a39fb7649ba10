"""`tpu-console export` as a person calls it: a real run, real processes, real files."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.helpers import run_host, small_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

    Call = Callable[..., tuple[int, str, str]]

pytestmark = [pytest.mark.usefixtures("forked_jobs"), pytest.mark.slow]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return run_host(small_config(augmentation={"flip": "horizontal"}), tmp_path_factory.mktemp("runs"))


def test_a_script_is_named_like_the_run_and_replaced_only_when_forced(
    call: Call, digits: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["export", str(digits.path), "--script"]
    code, out, _ = call(*command)
    assert code == 0
    assert "small.py" in out
    assert "changed at random" in out
    written = (tmp_path / "small.py").read_text()
    assert "import keras" in written
    code, _, err = call(*command)
    assert code == 1
    assert "small.py exists" in err
    code, out, _ = call(*command, "-")
    assert (code, out) == (0, written)


def test_a_presets_name_stands_for_its_newest_run(
    call: Call, digits: RunDirectory, tmp_path: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("20260101-000000-small", "20260102-000000-small", "20260103-000000-small-too"):
        shutil.copytree(digits.path, private_home / "runs" / name)
    code, out, _ = call("export", "small", "--script")
    assert code == 0
    assert "20260102-000000-small, the newest" in out
    assert "20260102-000000-small" in (tmp_path / "small.py").read_text()


def test_exactly_one_form_is_chosen(call: Call, digits: RunDirectory) -> None:
    for options in ([], ["--script", "--notebook"]):
        code, _, err = call("export", str(digits.path), *options)
        assert code == 2
        assert all(form in err for form in ("--script", "--notebook", "--savedmodel", "--tflite", "--onnx"))
