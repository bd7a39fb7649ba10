"""Predicts new data with a trained run and writes the result as CSV; arrays too, for runs on built-in datasets.

Arguments are checked before TensorFlow is imported.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.catalog import DATASETS, is_user_reference
from ..data.kinds.npz import open_arrays
from ..data.kinds.table import KINDS
from ..data.places import locate, open_file, shown
from ..data.predictions import BATCH, NewData, Table, chosen, probabilities
from ..data.tables import read_table
from ..errors import DataError, one_line
from ..storage.paths import check_place
from .trained_run import open_trained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..data.predictions import TrainedModel
    from ..messages import Reporter
    from .trained_run import Checkpoint


def predict_with_run(
    reporter: Reporter,
    run: str | None,
    data: Sequence[str],
    out: str,
    checkpoint: Checkpoint = "last",
    images: str | None = None,
    *,
    skip_bad: bool = False,
    force: bool = False,
    trust: bool = False,
) -> dict[str, Any]:
    """Predict new data with a trained run and write a CSV file.

    A run is given as in `open_trained`. `skip_bad` skips images that cannot be read, and `force` replaces an existing
    file. Returns the run, the model and the file, the columns, the number of rows, whether they are all, and how many
    got no prediction.

    Raises:
        UntrustedCodeError: The model holds code that may not run.
        ConsoleError: The run has no model, the data cannot be read, or the file cannot be written.
    """
    path, arrays = Path(out), Path(out).with_suffix(".npz")
    is_function = is_user_reference(data[0]) and data[0].rpartition(":")[2].isidentifier()
    for file in (path, arrays) if is_function else (path,):
        check_place(file, force=force)
    trained = open_trained(run, checkpoint, trust=trust, takes_function=is_function)
    import tensorflow as tf

    from .prediction_table import write_table

    with suppress(RuntimeError):  # TensorFlow is initialised already
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)  # a run may be using it
    request = NewData(tuple(data), images, skip_bad, arrays)
    if is_function:
        from .prediction_table import predict_function as predict
    elif (kind := KINDS.get(trained.config.dataset)) is not None:
        predict = kind.predict
    else:
        predict = predict_arrays
    table = predict(trained, request, reporter)
    rows, is_whole = write_table(table, path)
    return {
        "run": trained.run.run_id,
        "model": str(trained.model_path),
        "out": str(path),
        "columns": list(table.columns),
        "rows": rows,
        "is_whole": is_whole,
        "skipped": table.skipped,
    }


_KEYS = ("images", "x", "x_test", "arr_0")


def predict_arrays(trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
    """Predict images given as numbers; rows are counted from 0.

    Raises:
        DataError: They cannot be read, or their shape or range differs from the dataset's.
    """
    info = DATASETS[trained.config.dataset]
    images = _read(request.only(), info.input_shape)
    largest, least, most = 16.0 if info.name == "digits" else 255.0, float(images.min()), float(images.max())
    if least < 0 or most > largest:
        raise DataError(
            f"The values range from {least:g} to {most:g}, but {info.name} ranges from 0 to {largest:g}.",
            remedy="Give unscaled pixels; the run's scaling is applied here.",
        )
    if most <= 1:
        reporter.note(f"No value is above 1, but {info.name} goes up to {largest:g}: are these values scaled already?")
    model = trained.load_model()
    names = trained.classes_of(model)
    scale = np.float32(trained.scale())
    batches = (images[start : start + BATCH] * scale for start in range(0, len(images), BATCH))
    outputs = trained.outputs_of(model, batches, len(images), reporter)
    rows = ((str(index), *chosen(probabilities(output), names)) for index, output in enumerate(outputs))
    return Table(("index", "label", "probability"), rows)


def _read(path: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    place = Path(locate(path))
    if not place.is_file():
        raise DataError(f"There is no file {shown(path)}.")
    values = _from_numpy(path) if place.suffix in {".npy", ".npz"} else _from_csv(path, shape)
    size = int(np.prod(shape))
    if values.dtype.kind not in "biuf":
        raise DataError(f"{shown(path)} contains {values.dtype}, not numbers.")
    given = values.shape[1:]
    # A flat image, or one whose shape differs only in sides of length 1.
    fits = len(given) == 1 or [side for side in given if side > 1] == [side for side in shape if side > 1]
    if values.ndim < 2 or not len(values) or values[0].size != size or not fits:
        sides = "×".join(map(str, shape))
        raise DataError(
            f"{shown(path)} has shape {values.shape}; each image needs {sides} numbers.",
            remedy=f"Give an array of shape (images, {', '.join(map(str, shape))}), or (images, {size}).",
        )
    images = values.reshape(-1, *shape).astype(np.float32)
    broken = np.flatnonzero(~np.isfinite(images).reshape(len(images), -1).all(axis=1))
    if len(broken):
        raise DataError(f"{shown(path)}: image {broken[0]:,} (counted from 0) has a value that is not a number.")
    return images


def _from_numpy(path: str) -> NDArray[Any]:
    if path.endswith(".npy"):
        try:
            with open_file(locate(path)) as file:
                return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{shown(path)} cannot be read as a NumPy file.", why=one_line(error, 200)) from error
    with open_arrays(path) as archive:
        names = archive.files
        key = names[0] if len(names) == 1 else next((name for name in _KEYS if name in names), None)
        if key is None:
            raise DataError(
                f"{shown(path)} has {len(names)} arrays: {', '.join(names[:10])}.",
                remedy="Name the array with the images 'images', or save it alone as .npy.",
            )
        return np.asarray(archive[key])


def _from_csv(path: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Read one image per row, with or without a header; a label column before the pixels is dropped."""
    import pandas as pd

    table = read_table(path, {})
    if not table.attrs["nameless"] and len(table.columns) == int(np.prod(shape)) + 1:
        table = table.iloc[:, 1:]
    numbers = table.apply(pd.to_numeric, errors="coerce")
    rows = np.flatnonzero(numbers.isna().any(axis=1).to_numpy())
    if len(rows):
        raise DataError(
            f"{shown(path)}: row {rows[0] + 1:,} (not counting the header) has a cell that is not a number."
        )
    values: NDArray[np.float32] = numbers.to_numpy(np.float32)
    return values
