"""Trained models in other formats: they give what the original gives, on the validation data."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from tpu_console.engine.errors import ConsoleError, UntrustedCodeError
from tpu_console.engine.export.convert import convert_run
from tpu_console.engine.messages import Reporter
from tpu_console.engine.runs.class_report import read_report

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = pytest.mark.slow


def convert(run: RunDirectory, out: Path, form: str, **options: Any) -> dict[str, Any]:
    return convert_run(Reporter(io.StringIO()), str(run.path), str(out), form, **options)


@pytest.mark.parametrize("form", ["savedmodel", "tflite", "onnx"])
def test_a_converted_model_has_the_accuracy_of_the_original(
    small_digits: RunDirectory, tmp_path: Path, form: str
) -> None:
    out = tmp_path / "model.out"
    result = convert(small_digits, out, form)
    report = read_report(small_digits)
    assert report is not None
    assert result["converted_accuracy"] == pytest.approx(result["accuracy"])
    assert result["difference"] < 1e-5
    assert result["bytes"] > 1000
    if result["by"] != "ONNX's reference evaluator":
        assert result["examples"] == 360
        assert result["accuracy"] == pytest.approx(report.accuracy)
    assert [path.name for path in tmp_path.iterdir()] == ["model.out"]
    with pytest.raises(ConsoleError, match="exists already"):
        convert(small_digits, out, form)


def test_code_in_a_foreign_model_is_not_run(tmp_path: Path) -> None:
    from tests.hostile_models import lambda_run

    marker = tmp_path / "marker"
    run = lambda_run(tmp_path / "run", marker)
    with pytest.raises(UntrustedCodeError):
        convert(run, tmp_path / "model.onnx", "onnx")
    assert not marker.exists()
    assert not (tmp_path / "model.onnx").exists()
