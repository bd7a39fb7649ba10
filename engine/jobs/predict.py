"""Predicts new data with a trained run and writes the result as CSV; arrays too, for runs on built-in datasets.

Arguments are checked before TensorFlow is imported.
"""

from __future__ import annotations

import csv
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.catalog import DATASETS, is_user_reference
from ..config.user_code import call_user_function
from ..data.kinds.npz import open_arrays
from ..data.kinds.table import KINDS
from ..data.places import locate, open_file, shown
from ..data.predictions import BATCH, NewData, Table, chosen, number, predicted, probabilities
from ..data.tables import read_table
from ..errors import ConsoleError, DataError, one_line
from ..storage.files import is_disk_full, whole_file
from ..storage.paths import check_place, user_path
from .trained_run import call_model, inputs_fit, open_trained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..data.predictions import TrainedModel
    from ..messages import Reporter
    from .trained_run import Checkpoint, TrainedRun

_KEYS = ("images", "x", "x_test", "arr_0")  # names of an array of images, the likeliest first
_NOT_EXACT = 0.01  # by how much the probabilities of an example may miss 1


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
    got no prediction. Raises as `open_trained` does, and `ConsoleError` if the data cannot be read or the file written.
    """
    path, arrays = Path(out), Path(out).with_suffix(".npz")
    is_function = is_user_reference(data[0]) and data[0].rpartition(":")[2].isidentifier()
    for file in (path, arrays) if is_function else (path,):
        check_place(file, force=force)
    trained = open_trained(run, checkpoint, trust=trust, takes_function=is_function)
    import tensorflow as tf

    with suppress(RuntimeError):  # TensorFlow is initialized already
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)  # a run may be using it
    request = NewData(tuple(data), images, skip_bad, arrays)
    kind = KINDS.get(trained.config.dataset)
    predict = predict_function if is_function else predict_arrays if kind is None else kind.predict
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


def write_table(table: Table, path: Path) -> tuple[int, bool]:
    """Write a table as CSV, and its arrays in an .npz file beside it; return the rows, and whether they are all.

    If it is interrupted, the rows that were predicted until then are kept. Raises `ConsoleError` if the file cannot be
    written, and `KeyboardInterrupt` before the first row; then an existing file is unchanged.
    """
    count, is_whole = 0, True
    try:
        if table.arrays:
            with whole_file(path.with_suffix(".npz"), private=False) as draft, draft.open("wb") as saved:
                np.savez_compressed(saved, allow_pickle=False, **table.arrays)
        with whole_file(path, private=False) as draft, draft.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table.columns)
            try:
                for row in table.rows:
                    writer.writerow(row)
                    count += 1
            except KeyboardInterrupt:
                if not count:
                    raise
                is_whole = False
    except OSError as error:
        reason, remedy = error.strerror or error, "Choose another file with --out."
        if is_disk_full(error):
            reason, remedy = "the disk is full", "Free space and predict again."
        raise ConsoleError(f"{user_path(path)} cannot be written: {reason}.", remedy=remedy) from error
    return count, is_whole


def predict_arrays(trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
    """Predict images given as numbers; rows are counted from 0.

    Raises `DataError` if they cannot be read, or their shape or range differs from the dataset's.
    """
    import pandas as pd

    info = DATASETS[trained.config.dataset]
    images = _read(request.only(), info.input_shape)
    largest, least, most = 16.0 if info.name == "digits" else 255.0, float(images.min()), float(images.max())
    if least < 0 or most > largest:
        what = f"The values range from {least:g} to {most:g}, but {info.name} ranges from 0 to {largest:g}."
        raise DataError(what, remedy="Give unscaled pixels; the run's scaling is applied here.")
    if most <= 1:
        reporter.note(f"No value is above 1, but {info.name} goes up to {largest:g}: are these values scaled already?")
    images *= np.float32(trained.scale())
    rows = pd.DataFrame({"index": map(str, range(len(images)))})
    return predicted(trained, rows, images, "label", reporter)


def _read(path: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    place = Path(locate(path))
    if not place.is_file():
        raise DataError(f"There is no file {shown(path)}.")
    size = int(np.prod(shape))
    values = _from_numpy(path) if place.suffix in {".npy", ".npz"} else _from_csv(path, size)
    if values.dtype.kind not in "biuf":
        raise DataError(f"{shown(path)} contains {values.dtype}, not numbers.")
    given = values.shape[1:]
    # A flat image, or one whose shape differs only in sides of length 1.
    fits = len(given) == 1 or [side for side in given if side > 1] == [side for side in shape if side > 1]
    if values.ndim < 2 or not len(values) or values[0].size != size or not fits:
        what = f"{shown(path)} has shape {values.shape}; each image needs {'×'.join(map(str, shape))} numbers."
        remedy = f"Give an array of shape (images, {', '.join(map(str, shape))}), or (images, {size})."
        raise DataError(what, remedy=remedy)
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
            what = f"{shown(path)} has {len(names)} arrays: {', '.join(names[:10])}."
            raise DataError(what, remedy="Name the array with the images 'images', or save it alone as .npy.")
        return np.asarray(archive[key])


def _from_csv(path: str, size: int) -> NDArray[np.float32]:
    """Read one image per row, with or without a header; a label column before the pixels is dropped."""
    import pandas as pd

    table = read_table(path, {})
    if not table.attrs["nameless"] and len(table.columns) == size + 1:
        table = table.iloc[:, 1:]
    numbers = table.apply(pd.to_numeric, errors="coerce")
    rows = np.flatnonzero(numbers.isna().any(axis=1))
    if len(rows):
        what = f"row {rows[0] + 1:,} (not counting the header) has a cell that is not a number"
        raise DataError(f"{shown(path)}: {what}.")
    values: NDArray[np.float32] = numbers.to_numpy(np.float32)
    return values


def predict_function(trained: TrainedRun, request: NewData, reporter: Reporter) -> Table:
    """Predict what a function returns: inputs as the model takes them, alone or followed by labels, which are ignored.

    A row is an example, numbered from 0. A probability for each class becomes the likeliest class and its probability;
    other outputs become a column per number. Several outputs have their names before their columns. Images and other
    arrays are saved beside the table, which names their file. Raises `ConsoleError` if the function or the model fails.
    """
    from ..data.sources.user_function import PartReader

    reference = request.only()
    part = call_user_function(reference)
    if isinstance(part, dict | list) or (hasattr(part, "shape") and hasattr(part, "__len__")):
        part = (part,)
    found = PartReader(reference, count=False, new_batches=False).read(part)
    batches = found.dataset.batch(BATCH) if found.batches is None else found.batches
    inputs = batches.map(lambda *element: element[0])
    reporter.progress("predicting", 0, found.count, "examples")
    outputs = _outputs(trained, inputs, found.count, reporter)
    columns, cells, arrays = ["index"], list[list[tuple[str, ...]]](), dict[str, Any]()
    for name, values in outputs.items():
        heads, rows = _described(trained, values, name, request.arrays.name)
        if values.ndim > 2:
            arrays[name or "prediction"] = values
        columns += [f"{name}_{head}".strip("_") if name and head != "prediction" else name or head for head in heads]
        cells.append(rows)
    count = len(next(iter(outputs.values())))
    table = ((str(index), *(cell for rows in cells for cell in rows[index])) for index in range(count))
    return Table(tuple(columns), table, arrays=arrays)


def _outputs(trained: TrainedRun, inputs: Any, count: int | None, reporter: Reporter) -> dict[str, NDArray[np.float32]]:
    """Return the model's outputs by name; the only one has none."""
    import tensorflow as tf

    model, parts, done = None, list[Any](), 0
    for batch in inputs:
        model = model or trained.load_model(batch)
        with inputs_fit():
            found = call_model(model, batch)
        flat = found if isinstance(found, dict) else dict(enumerate(tf.nest.flatten(found)))
        parts.append({str(name): np.asarray(value, np.float32) for name, value in flat.items()})
        done += len(next(iter(parts[-1].values())))
        reporter.progress("predicting", done, count or done, "examples")
    if not parts:
        raise DataError("The function returned no examples.")
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    known = list(getattr(model, "output_names", ())) if len(joined) > 1 else [""]
    if len(joined) == 1 or set(joined) == {str(number) for number in range(len(known))}:
        joined = dict(zip(known, joined.values(), strict=True))
    return {name: np.asarray(trained.probabilities_of(values, name)) for name, values in joined.items()}


def _described(
    trained: TrainedRun, values: NDArray[np.float32], name: str, saved_in: str
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the columns of an output and its cells."""
    if values.ndim > 2:
        return ["prediction"], [(saved_in,)] * len(values)
    if values.ndim == 1:
        values = values[:, None]
    is_only, loss = not name, trained.config.losses.get(name, "")
    if (known := trained.record.get("class_outputs")) is None:  # a run of an earlier version
        is_share = bool((values >= 0).all()) and np.allclose(values.sum(axis=1), 1, atol=_NOT_EXACT)
        known = [name] if (is_share if values.shape[1] > 1 else loss.startswith("binary_crossentropy")) else []
    if name in known:
        classes = max(values.shape[1], 2)
        names = trained.class_names(classes) if is_only else tuple(map(str, range(classes)))
        return ["label", "probability"], [chosen(probabilities(row), names) for row in values]
    heads = ["prediction"] if values.shape[1] == 1 else [f"prediction_{place}" for place in range(values.shape[1])]
    return heads, [tuple(map(number, row)) for row in values]
