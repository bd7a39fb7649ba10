"""Writes a trained model in another format, with Keras's `export`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError, one_line
from ..jobs.predicting.trained import open_trained
from ..storage.paths import check_place

if TYPE_CHECKING:
    from ..jobs.predicting.trained import Checkpoint
    from ..messages import Reporter

_FORMATS = {"savedmodel": "tf_saved_model", "tflite": "litert", "onnx": "onnx"}


def convert_run(
    reporter: Reporter,
    run: str | None,
    out: str,
    form: str,
    checkpoint: Checkpoint = "last",
    *,
    force: bool = False,
    trust: bool = False,
) -> dict[str, Any]:
    """Convert a run's model into a SavedModel, a TFLite or an ONNX file.

    Returns:
        The run, its model, and the result with its size.

    Raises:
        UntrustedCodeError: The model has code that may not run.
        ConsoleError: It cannot be converted, or the place cannot be written.
    """
    path = Path(out)
    check_place(path, force=force)
    trained = open_trained(run, checkpoint, trust=trust, takes_function=True)
    import keras

    reporter.progress("converting", 0, 1, "models")
    model = trained.load_model()
    with tempfile.TemporaryDirectory(prefix=".tpu-console-", dir=path.parent) as folder:
        draft = Path(folder) / f"model.{form}"  # Keras wants this ending of a TFLite file
        try:
            zeros = {one.name: keras.ops.zeros([side or 1 for side in one.shape], one.dtype) for one in model.inputs}
            model(zeros if len(zeros) > 1 else next(iter(zeros.values())))  # Keras exports what was called once
            model.export(str(draft), format=_FORMATS[form], verbose=False)
        except Exception as error:  # converters raise many kinds of errors for layers that they do not know
            raise ConsoleError(
                f"Keras {keras.__version__} cannot convert the model to {form}.",
                why=one_line(error, 300),
                remedy="Another format may work: --savedmodel, --tflite, --onnx.",
            ) from error
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif draft.is_dir():
            path.unlink(missing_ok=True)
        draft.replace(path)
    reporter.progress("converting", 1, 1, "models")
    size = sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
    return {"run": trained.run.run_id, "model": str(trained.model_path), "out": str(path), "bytes": size}
