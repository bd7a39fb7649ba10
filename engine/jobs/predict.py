"""Predicts new data with a trained run and writes the result as CSV.

Arguments are checked before TensorFlow is imported.
"""

import csv
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..config.catalog import is_user_reference
from ..data.kinds.table import USER_FUNCTION, kind_of
from ..data.predictions import NewData, Table
from ..errors import ConsoleError
from ..messages import Reporter
from ..storage.files import is_disk_full, whole_file
from ..storage.paths import check_place, user_path
from .trained_run import Checkpoint, open_trained


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
    kind = USER_FUNCTION if is_function else kind_of(trained.config.dataset)
    table = kind.predict(trained, request, reporter)
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
