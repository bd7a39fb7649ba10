"""The table of predictions, how its rows are computed, and how it is written."""

from __future__ import annotations

import csv
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ConsoleError, DataError, one_line
from ...storage.files import is_disk_full, whole_file
from ...storage.paths import user_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ...messages import Reporter

BATCH = 64
"""Examples predicted at once."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be predicted.

    Args:
        data: Files or folders, as the person wrote them.
        images: Folder of the images that a table names; None to look beside the table.
        skip_bad: Whether images that cannot be read get no prediction, instead of ending it all.
    """

    data: tuple[str, ...]
    images: str | None = None
    skip_bad: bool = False

    def only(self) -> str:
        """Return the only file.

        Raises:
            DataError: There are several.
        """
        if len(self.data) > 1:
            raise DataError(
                f"{len(self.data)} files are given; only images can be several.", remedy="Predict one after another."
            )
        return self.data[0]


@dataclass(frozen=True, slots=True)
class Table:
    """Predictions.

    Args:
        columns: Names of the columns.
        rows: One text or number a column; computed as they are asked for.
        skipped: Rows without a prediction of their own.
    """

    columns: tuple[str, ...]
    rows: Iterable[Sequence[str]]
    skipped: int = 0


def outputs_of(model: Any, batches: Iterable[Any], total: int, reporter: Reporter) -> Iterator[NDArray[np.float32]]:
    """Go through what a model says of each example, predicting a batch at a time.

    Args:
        model: The model.
        batches: Batches of inputs.
        total: How many examples there are.
        reporter: Told how far it is.

    Raises:
        DataError: An input cannot be read or does not fit, or the model says what is no number.
    """
    import keras
    import tensorflow as tf

    done = 0
    reporter.progress("predicting", done, total, "examples")
    step = tf.function(lambda inputs: model(inputs, training=False), reduce_retracing=True)
    try:
        for inputs in batches:
            with inputs_fit():
                outputs = keras.ops.convert_to_numpy(step(inputs)).astype(np.float32)
            if not np.isfinite(outputs).all():
                raise DataError(
                    "The model's answers are not numbers (NaN).",
                    why="Its training went wrong: the loss was no number at the end.",
                    remedy="Try --checkpoint best, or train again with a lower learning rate.",
                )
            yield from outputs
            done += len(outputs)
            reporter.progress("predicting", done, total, "examples")
    except tf.errors.OpError as error:
        raise DataError("The data cannot be predicted.", why=one_line(error)) from error


@contextmanager
def inputs_fit() -> Iterator[None]:
    """Run a model on inputs, for which it may not be made: a run's files can come from two different runs.

    Raises:
        DataError: It does not take such inputs, or returns something else than a run of this kind.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise DataError(
            "The model does not fit the run's configuration and inputs.json.",
            why=one_line(error, 300),
            remedy="Use a run's folder as training left it.",
        ) from error


def class_count(model: Any) -> int:
    """Return how many classes a model tells apart.

    Raises:
        DataError: It does not say, or tells none apart.
    """
    try:
        shape = model.output_shape
    except (AttributeError, ValueError):
        shape = None
    if not (isinstance(shape, tuple) and len(shape) == 2 and isinstance(shape[1], int)):
        raise DataError(
            f"The model's output has shape {shape}, which is not a value for each class.",
            remedy="Predict by hand with keras.models.load_model.",
        )
    return max(shape[1], 2)  # a single value is the probability of the second of two classes


def number(value: float) -> str:
    """Write a number with six digits."""
    return f"{value:.6g}"


def chosen(output: NDArray[np.float32], names: Sequence[str]) -> tuple[str, str]:
    """Return the likeliest class and its probability."""
    best = int(np.argmax(output))
    return names[best], number(output[best])


def probabilities(output: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a probability a class, also of a model that only says that of the second of two."""
    return np.array([1 - output[0], output[0]], np.float32) if len(output) == 1 else output


def write_table(table: Table, path: Path) -> int:
    """Write a table as CSV, whole or not at all; return the number of rows.

    Raises:
        ConsoleError: The file cannot be written; one that was there is untouched.
    """
    count = 0
    try:
        with whole_file(path, private=False) as draft, draft.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table.columns)
            for row in table.rows:
                writer.writerow(row)
                count += 1
    except OSError as error:
        full = is_disk_full(error)
        raise ConsoleError(
            f"{user_path(path)} cannot be written: {'the disk is full' if full else error.strerror or error}.",
            remedy="Free space and predict again." if full else "Choose another file with --out.",
        ) from error
    return count
