"""Predicts images from a table, a folder or single files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from ...errors import DataError
from ..places import is_image_name, join, locate, shown
from ..predictions import BATCH, NewData, Table, TrainedModel, chosen, number, probabilities
from ..tables import check_there
from .check import check_all, check_image, named
from .decode import decoded
from .files import files_below, list_folder
from .tables import find_images, image_folder, read_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...messages import Reporter
    from .decode import Decoding

_TABLES = (".csv", ".csv.gz")


def predict_images(trained: TrainedModel, request: NewData, reporter: Reporter, decoding: Decoding) -> Table:
    """Predict images; raise `DataError` if there are none, or some cannot be read.

    A run on a table of images gets that table's columns: one per class if it had those, else the label.
    """
    names, paths, column = _find(trained, request)
    facts = check_all(check_image, paths, reporter)
    good = [fact for fact in facts if not fact.problem]
    if bad := [(name, fact.problem) for name, fact in zip(names, facts, strict=True) if fact.problem]:
        found = f"{len(bad):,} of {len(facts):,} images cannot be used: {named(bad)}"
        if not request.skip_bad or not good:
            raise DataError(f"{found}.", remedy="Replace them, or skip them with --skip-bad.")
        reporter.note(f"{found}. They get the same probability for every class.")
    model, scale = trained.load_model(), np.float32(trained.scale())
    classes = trained.classes_of(model)
    images = decoded(good, decoding).batch(BATCH).map(lambda batch: tf.cast(batch, tf.float32) * scale).prefetch(2)
    outputs = trained.outputs_of(model, images, len(good), reporter)
    given = trained.record.get("label_columns") or []
    is_label, columns = len(given) < 2, given or ["label", "probability"]

    def rows() -> Iterator[tuple[str, ...]]:
        for name, fact in zip(names, facts, strict=True):
            shares = np.full(len(classes), 1 / len(classes), np.float32)
            if not fact.problem:
                shares = probabilities(next(outputs))
            if not is_label:
                yield name, *(number(share.item()) for share in shares)
            else:
                answer = ("", number(shares[0])) if fact.problem else chosen(shares, classes)
                yield name, *answer[: len(columns)]
        next(outputs, None)  # the last progress is reported after the last output

    return Table((column, *(columns if is_label else classes)), rows(), len(bad))


def _find(trained: TrainedModel, request: NewData) -> tuple[list[str], list[str], str]:
    """Return the names and the paths of the images, and the heading of the names."""
    first, record = locate(request.data[0]), trained.record
    column, ending = record.get("id_column") or "", record.get("suffix") or ""
    if len(request.data) == 1 and first.lower().endswith(_TABLES):
        check_there(first)
        try:
            table = read_ids(first, column)
        except DataError as error:
            wanted = f" The run's table has its images in the column '{column}'." if column else ""
            raise DataError(error.what, why=error.why, remedy=f"Correct the table.{wanted}") from error
        names, folder = table.iloc[:, 0].tolist(), _folder(trained, request, first)
        return names, find_images(folder, names, folder)[0], str(table.columns[0])
    if len(request.data) > 1 or not tf.io.gfile.isdir(first):
        return list(request.data), [locate(path) for path in request.data], column or "file"
    folders, names = list_folder(first)  # a class folder may be a link, as in training
    names += [f"{folder}/{name}" for folder in folders for name in files_below(join(first, folder))]
    files = [name for name in names if is_image_name(name)]
    if not files:
        raise DataError(f"There is no image in {shown(first)}.")
    # The names in the training table may lack the ending.
    return [name.removesuffix(ending) for name in files], [join(first, name) for name in files], column or "file"


def _folder(trained: TrainedModel, request: NewData, table: str) -> str:
    """Return the folder of a table's images: the one given, the one beside the table as in training, or the table's."""
    if request.images is not None:
        folder = locate(request.images)
        if not tf.io.gfile.isdir(folder):
            raise DataError(f"There is no folder {shown(request.images)}.", remedy="Correct --images.")
        return folder
    beside = image_folder(table, str(trained.record.get("images") or "images"))
    return beside if tf.io.gfile.isdir(beside) else table.rpartition("/")[0]
