"""The table of predictions, how its rows are computed, and how it is written."""

from __future__ import annotations

import csv
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ConsoleError, DataError, one_line
from ...models.outputs import apply_activation, prepared
from ...storage.files import is_disk_full, whole_file
from ...storage.paths import user_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from ...data.predictions import Table
    from ...messages import Reporter


def outputs_of(
    model: Any, batches: Iterable[Any], total: int, reporter: Reporter, activation: str = ""
) -> Iterator[NDArray[np.float32]]:
    """Yield a model's output for each example, predicting in batches; `activation` turns logits into probabilities.

    Raises:
        DataError: An input cannot be read or does not fit, or an output is not a number.
    """
    import keras
    import tensorflow as tf

    done = 0
    reporter.progress("predicting", done, total, "examples")
    step = tf.function(
        lambda inputs: apply_activation(activation, model(prepared(model, inputs), training=False)),
        reduce_retracing=True,
    )
    try:
        for inputs in batches:
            with inputs_fit():
                outputs = keras.ops.convert_to_numpy(step(inputs)).astype(np.float32)
            if not np.isfinite(outputs).all():
                raise DataError(
                    "The model's predictions are NaN.",
                    why="The loss was NaN at the end of training.",
                    remedy="Try --checkpoint best, or train again with a lower learning rate.",
                )
            yield from outputs
            done += len(outputs)
            reporter.progress("predicting", done, total, "examples")
    except tf.errors.OpError as error:
        raise DataError("The data cannot be predicted.", why=one_line(error)) from error


@contextmanager
def inputs_fit() -> Iterator[None]:
    """Run a model on inputs that may not fit it: a run's files can come from two different runs.

    Raises:
        DataError: The model does not take such inputs, or its output is not that of such a run.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise DataError(
            "The model does not fit the run's configuration and inputs.json.",
            why=one_line(error, 300),
            remedy="Use an unchanged run folder.",
        ) from error


def class_count(model: Any) -> int:
    """Return how many classes a model distinguishes; raise `DataError` if its output is not one value per class."""
    try:
        shape = model.output_shape
    except (AttributeError, ValueError):
        shape = None
    if not (isinstance(shape, tuple) and len(shape) == 2 and isinstance(shape[1], int)):
        raise DataError(
            f"The model's output has shape {shape}, which is not a value for each class.",
            remedy="Predict by hand with keras.models.load_model.",
        )
    return max(shape[1], 2)  # a single value is the probability of the second class


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
