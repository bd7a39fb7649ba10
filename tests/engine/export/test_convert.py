"""Trained models in other formats: they give what the original gives."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import run_forked
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.export.export import convert_run
from tpu_console.engine.messages import Reporter
from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = pytest.mark.slow


def convert(run: RunDirectory, out: Path, form: str, **options: Any) -> dict[str, Any]:
    return convert_run(Reporter(io.StringIO()), str(run.path), str(out), form, **options)


def saved_model(path: Path, images: Any) -> Any:
    loaded = tf.saved_model.load(str(path))
    return loaded.serve(images)


def lite(path: Path, images: Any) -> Any:
    interpreter = tf.lite.Interpreter(model_path=str(path))
    interpreter.resize_tensor_input(0, images.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, images)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def onnx(path: Path, images: Any) -> Any:
    reference = pytest.importorskip("onnx.reference")
    evaluator = reference.ReferenceEvaluator(str(path))
    return evaluator.run(None, {evaluator.input_names[0]: images})[0]


@pytest.mark.parametrize(("form", "run_model"), [("savedmodel", saved_model), ("tflite", lite), ("onnx", onnx)])
def test_a_converted_model_gives_what_the_original_gives(
    small_digits: RunDirectory, tmp_path: Path, form: str, run_model: Callable[[Path, Any], Any]
) -> None:
    out = tmp_path / "model.out"
    result = convert(small_digits, out, form)
    assert result["bytes"] > 1000
    original = keras.saving.load_model(small_digits.model)
    images = np.random.default_rng(0).random((4, *original.input_shape[1:]), np.float32)
    assert np.asarray(run_model(out, images)) == pytest.approx(np.asarray(original(images)), abs=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["model.out"]
    with pytest.raises(ConsoleError, match="exists already"):
        convert(small_digits, out, form)


WITHOUT_ONNX = """
import sys
sys.modules["tf2onnx"] = None
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.export.export import convert_run
from tpu_console.engine.messages import Reporter
try:
    convert_run(Reporter(sys.stderr), sys.argv[1], "model.onnx", "onnx")
except ConsoleError as error:
    print(error.why)
"""


def test_what_keras_cannot_convert_is_one_sentence(small_digits: RunDirectory, tmp_path: Path) -> None:
    assert "tf2onnx" in run_forked(WITHOUT_ONNX, str(small_digits.path), cwd=tmp_path)
    assert not list(tmp_path.iterdir())
