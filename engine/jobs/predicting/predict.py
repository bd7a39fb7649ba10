"""Predicts new data with a trained run and writes the result as CSV."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ...errors import ConsoleError
from ...storage.paths import user_path
from .readers import predict
from .table import Request, write_table
from .trained import open_trained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...messages import Reporter
    from .trained import Checkpoint


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
    """Predict.

    Args:
        reporter: Told how far it is.
        run: The run's name, a part of it, or the path of its folder; None for the newest.
        data: Files or folders of new data.
        out: The CSV file to write.
        checkpoint: ``last`` for the model at the end of training, ``best`` for that of the best epoch.
        images: Folder of the images that a table names.
        skip_bad: Whether images that cannot be read get no prediction, instead of ending it all.
        force: Whether a file that is there may be replaced.
        trust: Whether code in a model that no run of the user's own saved may run.

    Returns:
        The run, the model and the file, the columns, rows, and how many rows got no prediction.

    Raises:
        UntrustedCodeError: The model holds code that may not run.
        ConsoleError: The run has no model, the data cannot be read, or the file cannot be written.
    """
    with suppress(RuntimeError):  # TensorFlow has begun in this process: it is too late, and nothing depends on it
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)  # a run may be using it
    path = Path(out)
    if path.exists() and not force:
        raise ConsoleError(
            f"{user_path(path)} is there already.", remedy="Choose another file, or replace it: --force."
        )
    if not path.parent.is_dir():
        raise ConsoleError(f"There is no folder {user_path(path.parent)}.", remedy="Make it, or choose another --out.")
    trained = open_trained(run, checkpoint, trust=trust)
    table = predict(trained, Request(tuple(data), images, skip_bad), reporter)
    rows = write_table(table, path)
    return {
        "run": trained.run.run_id,
        "model": str(trained.model_path),
        "out": str(path),
        "columns": list(table.columns),
        "rows": rows,
        "skipped": table.skipped,
    }
