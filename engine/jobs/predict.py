"""Predicts new data with a trained run and writes the result as CSV.

Arguments are checked before TensorFlow is imported.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.catalog import is_user_reference
from ..data.kinds.table import KINDS
from ..data.predictions import Request
from ..storage.paths import check_place
from .trained_run import open_trained

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    request = Request(tuple(data), images, skip_bad, arrays)
    if is_function:
        from .prediction_table import predict_function as predict
    elif (kind := KINDS.get(trained.config.dataset)) is not None:
        predict = kind.predict
    else:
        from .predict_arrays import predict_arrays as predict
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
