"""The table of predictions: computes its rows from what a user's function returns, and writes it."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..config.user_code import call_user_function
from ..data.predictions import BATCH, NewData, Table, chosen, number, probabilities
from ..data.sources.user_function import read_part
from ..errors import ConsoleError, DataError
from ..models.outputs import prepared
from ..storage.files import is_disk_full, whole_file
from ..storage.paths import user_path
from .trained_run import inputs_fit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ..messages import Reporter
    from .trained_run import TrainedRun

_NOT_EXACT = 0.01  # by how much the probabilities of an example may miss 1


def write_table(table: Table, path: Path) -> tuple[int, bool]:
    """Write a table as CSV, and its arrays in an .npz file beside it; return the rows, and whether they are all.

    If it is interrupted, the rows that were predicted until then are kept.

    Raises:
        ConsoleError: The file cannot be written; an existing one is unchanged.
        KeyboardInterrupt: It was interrupted before the first row; an existing file is unchanged.
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
        full = is_disk_full(error)
        raise ConsoleError(
            f"{user_path(path)} cannot be written: {'the disk is full' if full else error.strerror or error}.",
            remedy="Free space and predict again." if full else "Choose another file with --out.",
        ) from error
    return count, is_whole


def predict_function(trained: TrainedRun, request: NewData, reporter: Reporter) -> Table:
    """Predict what a function returns: inputs as the model takes them, alone or followed by labels, which are ignored.

    A row is an example, numbered from 0. A probability for each class becomes the likeliest class and its probability;
    other outputs become a column per number. Several outputs have their names before their columns. Images and other
    arrays are saved beside the table, which names their file.

    Raises:
        UserCodeError: The function failed or returned the wrong thing.
        DataError: The inputs do not fit the model.
    """
    reference = request.only()
    returned = call_user_function(reference)
    is_arrays = isinstance(returned, dict | list) or (hasattr(returned, "shape") and hasattr(returned, "__len__"))
    part = (returned,) if is_arrays and not isinstance(returned, tuple) else returned
    found = read_part(part, reference, count=False, new_batches=False)
    batches = found.dataset.batch(BATCH) if found.batches is None else found.batches
    inputs = batches.map(lambda *element: element[0])
    reporter.progress("predicting", 0, found.count, "examples")
    outputs = _outputs(trained, inputs, found.count, reporter)
    names = list(outputs) if len(outputs) > 1 else [""]
    columns: list[str] = ["index"]
    cells: list[Sequence[Sequence[str]]] = []
    arrays: dict[str, NDArray[np.float32]] = {}
    for name, values in zip(names, outputs.values(), strict=True):
        heads, rows = _described(trained, values, name, request.arrays.name)
        if values.ndim > 2:
            arrays[name or "prediction"] = values
        columns += [f"{name}_{head}".strip("_") if name and head != "prediction" else name or head for head in heads]
        cells.append(rows)
    count = len(next(iter(outputs.values())))
    table = ((str(index), *(cell for rows in cells for cell in rows[index])) for index in range(count))
    return Table(tuple(columns), table, arrays=arrays)


def _outputs(trained: TrainedRun, inputs: Any, count: int | None, reporter: Reporter) -> dict[str, NDArray[np.float32]]:
    """Return the model's outputs by name."""
    model, parts, done = None, list[Any](), 0
    for batch in inputs:
        model = model or trained.load_model(batch)
        with inputs_fit():
            found = model(prepared(model, batch), training=False)
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
    """Return the columns of an output and its cells; the only output has no name."""
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
