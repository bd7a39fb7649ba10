"""Converts a trained model, and compares the result with it on the validation data."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from ..accelerators.backend import is_installed
from ..config.catalog import is_user_reference
from ..data.sources.load import load_examples
from ..errors import ConsoleError, UntrustedCodeError, one_line
from ..input.pipeline import build_pipeline
from ..jobs.predicting.trained import TrainedRun, open_trained
from ..machine.install import install_line
from ..models.saved_code import is_own_source
from .export import check_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ..jobs.predicting.trained import Checkpoint
    from ..messages import Reporter

    Model = Callable[[Any], NDArray[Any]]

_BATCH = 32
_SLOW_BATCHES = 4  # of the reference evaluator of ONNX, which computes in Python
_NEEDS = {"onnx": ("onnx", "tf2onnx")}


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
        The run, its model, the result with its size, and how both compare on the validation data.

    Raises:
        UntrustedCodeError: The model has code that may not run.
        ConsoleError: It cannot be converted, or the place cannot be written.
    """
    path = Path(out)
    check_place(path, force=force)
    missing = [name for name in _NEEDS.get(form, ()) if not is_installed(name)]
    if missing:
        raise ConsoleError(f"{' and '.join(missing)} not installed.", remedy=f"To install it: {install_line(*missing)}")
    trained = open_trained(run, checkpoint, trust=trust, takes_function=True)
    if not trust and is_user_reference(trained.config.dataset) and not is_own_source(trained.config.dataset):
        raise UntrustedCodeError(
            f"The validation data comes from {trained.config.dataset}, which none of your runs used from this folder.",
            remedy="If you trust the run's author, add --trust.",
        )
    reporter.progress("converting", 0, 1, "models")
    model = trained.load_model()
    with _draft(path) as draft:
        try:
            _convert(model, form, draft)
        except Exception as error:  # converters raise many kinds of errors for layers that they do not know
            raise ConsoleError(
                f"The model cannot be converted to {form}.",
                why=one_line(error, 300),
                remedy="Another format may know its layers: --savedmodel, --tflite, --onnx.",
            ) from error
        reporter.progress("converting", 1, 1, "models")
        compared = _compared(trained, model, form, draft, reporter)
    size = sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
    return {"run": trained.run.run_id, "model": str(trained.model_path), "out": str(path), "bytes": size, **compared}


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """Yield a temporary path; it replaces `path` if the block succeeds, and is removed if not."""
    with tempfile.TemporaryDirectory(prefix=".tpu-console-", dir=path.parent) as folder:
        draft = Path(folder) / path.name
        yield draft
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif draft.is_dir():
            path.unlink(missing_ok=True)
        draft.replace(path)


def _convert(model: Any, form: str, path: Path) -> None:
    zeros = {one.name: keras.ops.zeros([side or 1 for side in one.shape], one.dtype) for one in model.inputs}
    model(zeros if len(zeros) > 1 else next(iter(zeros.values())))  # Keras exports what was called once
    if form == "onnx":
        model.export(str(path), format="onnx", verbose=False)
        return
    folder = path if form == "savedmodel" else path.with_name("saved_model")
    model.export(str(folder), format="tf_saved_model", verbose=False)
    if form == "tflite":
        path.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder)).convert())


def _compared(trained: TrainedRun, model: Any, form: str, path: Path, reporter: Reporter) -> dict[str, Any]:
    """Return how many validation examples both models get right, and the largest difference of their outputs."""
    converted, with_what, most = _opened(form, path, model)
    examples = load_examples(trained.config, lambda text: reporter.progress(text, 0, None, "files"))
    config = trained.config.model_copy(update={"batch_size": _BATCH, "steps_per_epoch": 1})
    validation = build_pipeline(examples, config, 1).validation
    if validation is None:
        return {"examples": 0, "by": with_what}
    total = examples.validation_count
    count, right, difference = 0, [0, 0], 0.0
    are_classes = True
    for inputs, labels, *_ in islice(validation.as_numpy_iterator(), most):
        outputs = [np.asarray(model(inputs, training=False)), converted(inputs)]
        difference = max(difference, float(np.max(np.abs(outputs[0] - outputs[1]))))
        truth = _classes(np.asarray(labels), 0.5)
        count += len(truth)
        for index, output in enumerate(outputs):
            chosen = _classes(output, 0.0 if trained.activation else 0.5)
            are_classes &= output.shape[:1] + output.shape[2:] == truth.shape
            right[index] += int((chosen == truth).sum()) if are_classes else 0
        reporter.progress("checking", count, total if most is None else None, "examples")
    scores = {"accuracy": right[0] / count, "converted_accuracy": right[1] / count} if are_classes and count else {}
    return {"examples": count, "difference": difference, "by": with_what, **scores}


def _classes(values: NDArray[Any], least: float) -> NDArray[Any]:
    """Return the class of each label or output; of a single value, whether it is above `least`."""
    if values.dtype.kind in "iu" or values.ndim == 1:
        return values.reshape(len(values))
    return values.argmax(axis=-1) if values.shape[-1] > 1 else (values[..., 0] > least).astype(int)


def _opened(form: str, path: Path, model: Any) -> tuple[Model, str, int | None]:
    """Return a function that runs a converted model, the name of what runs it, and the most batches to try."""
    names = [tensor.name for tensor in model.inputs]
    if form == "savedmodel":
        loaded = tf.saved_model.load(str(path))  # its variables live as long as this
        return lambda inputs: np.asarray(loaded.serve(inputs)), "TensorFlow", None
    if form == "tflite":
        return _lite(path, names), "the TFLite interpreter", None
    if is_installed("onnxruntime"):
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        inputs = [one.name for one in session.get_inputs()]
        return lambda given: session.run(None, _named(inputs, given))[0], "onnxruntime", None
    import onnx
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(onnx.load(path))

    def evaluate(given: Any) -> NDArray[Any]:
        return np.asarray(evaluator.run(None, _named(evaluator.input_names, given))[0])

    return evaluate, "ONNX's reference evaluator", _SLOW_BATCHES


def _named(names: Sequence[str], inputs: Any) -> dict[str, NDArray[Any]]:
    return dict(zip(names, map(np.asarray, keras.tree.flatten(inputs)), strict=True))


def _lite(path: Path, names: list[str]) -> Model:
    interpreter = tf.lite.Interpreter(model_path=str(path))
    inputs = interpreter.get_input_details()
    # Named like ``serving_default_NAME:0``, in any order.
    ordered = [next((one for one in inputs if f"_{name}:" in one["name"]), inputs[0]) for name in names]

    def run(inputs: Any) -> NDArray[Any]:
        given = [np.asarray(part) for part in keras.tree.flatten(inputs)]
        for one, value in zip(ordered, given, strict=True):
            interpreter.resize_tensor_input(one["index"], value.shape)
        interpreter.allocate_tensors()
        for one, value in zip(ordered, given, strict=True):
            interpreter.set_tensor(one["index"], value.astype(one["dtype"]))
        interpreter.invoke()
        return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))

    return run
