"""Predicts new data with a trained run: data of the kind the run was trained on, by its dataset."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ...config.catalog import DATASETS

if TYPE_CHECKING:
    from ...messages import Reporter
    from .table import Request, Table
    from .trained import TrainedRun

_READERS = {
    **dict.fromkeys(DATASETS, "arrays"),
    **dict.fromkeys(("image-csv", "image-folder", "tfrecord"), "images"),
    "text-csv": "texts",
    "text-pairs": "sentences",
    "ratings-csv": "ratings",
}


def predict(trained: TrainedRun, request: Request, reporter: Reporter) -> Table:
    """Return the predictions as a table whose rows come as they are computed.

    Args:
        trained: The run.
        request: What is to be predicted.
        reporter: Told how far it is.

    Raises:
        DataError: The data cannot be read, or does not fit the model.
        ConsoleError: The model cannot be loaded.
    """
    module = import_module(f"..{_READERS[trained.config.dataset]}", __name__)
    table: Table = module.predict(trained, request, reporter)
    return table
