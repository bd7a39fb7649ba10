"""Predicts images from a table, a folder or single files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ...errors import DataError
from ..places import is_image_name, join, locate, shown
from ..predictions import BATCH, Request, Table, TrainedModel, chosen, number, probabilities
from ..tables import check_there
from .check import ImageFacts, check_all, check_image, named
from .decode import Decoding, Reader
from .files import files_below, list_folder
from .tables import find_images, image_folder, read_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ...messages import Reporter

_TABLES = (".csv", ".csv.gz")


@dataclass(frozen=True, slots=True)
class _Images:
    """Images to predict."""

    names: list[str]
    paths: list[str]
    column: str  # heading of the names


def predict_images(trained: TrainedModel, request: Request, reporter: Reporter, decoding: Decoding) -> Table:
    """Predict images; raise `DataError` if there are none, or some cannot be read.

    A run on a table of images gets that table's columns: one per class if it had those, else the label.
    """
    images = _find(trained, request)
    facts = _checked(images, request, reporter)
    model = trained.load_model()
    names = trained.classes_of(model)
    good = sum(not fact.problem for fact in facts)
    outputs = trained.outputs_of(model, _batches(trained, facts, decoding), good, reporter)
    columns = tuple(trained.record.get("label_columns") or ("label", "probability"))
    with_label = not trained.record.get("label_columns") or len(columns) == 1
    columns = columns if with_label else names
    rows = ((name, *values[: len(columns)]) for name, values in _answers(images, facts, outputs, names, with_label))
    return Table((images.column, *columns), rows, sum(bool(fact.problem) for fact in facts))


def _find(trained: TrainedModel, request: Request) -> _Images:
    first = locate(request.data[0])
    if len(request.data) == 1 and first.lower().endswith(_TABLES):
        return _in_table(trained, request, first)
    column = trained.record.get("id_column") or "file"
    if len(request.data) > 1 or not tf.io.gfile.isdir(first):
        return _Images(list(request.data), [locate(path) for path in request.data], column)
    folders, names = list_folder(first)  # a class folder may be a link, as in training
    names += [f"{folder}/{name}" for folder in folders for name in files_below(join(first, folder))]
    files = [name for name in names if is_image_name(name)]
    if not files:
        raise DataError(f"There is no image in {shown(first)}.")
    ending = trained.record.get("suffix") or ""  # the ending that the names in the training table lack
    return _Images([name.removesuffix(ending) for name in files], [join(first, name) for name in files], column)


def _in_table(trained: TrainedModel, request: Request, path: str) -> _Images:
    check_there(path)
    column = trained.record.get("id_column") or ""
    try:
        table = read_ids(path, column)
    except DataError as error:
        wanted = f" The run's table has its images in the column '{column}'." if column else ""
        raise DataError(error.what, why=error.why, remedy=f"Correct the table.{wanted}") from error
    names = table.iloc[:, 0].tolist()
    folder = _folder(trained, request, path)
    return _Images(names, find_images(folder, names, folder)[0], str(table.columns[0]))


def _folder(trained: TrainedModel, request: Request, table: str) -> str:
    """Return the folder of a table's images: the one given, the one beside the table as in training, or the table's."""
    if request.images is not None:
        folder = locate(request.images)
        if not tf.io.gfile.isdir(folder):
            raise DataError(f"There is no folder {shown(request.images)}.", remedy="Correct --images.")
        return folder
    beside = image_folder(table, str(trained.record.get("images") or "images"))
    return beside if tf.io.gfile.isdir(beside) else table.rpartition("/")[0]


def _checked(images: _Images, request: Request, reporter: Reporter) -> list[ImageFacts]:
    """Check every file before the first is predicted; refuse bad ones unless they may be skipped."""
    facts = check_all(check_image, images.paths, reporter)
    bad = [(name, fact.problem) for name, fact in zip(images.names, facts, strict=True) if fact.problem]
    if not bad:
        return facts
    found = f"{len(bad):,} of {len(facts):,} images cannot be used: {named(bad)}"
    if not request.skip_bad or len(bad) == len(facts):
        raise DataError(f"{found}.", remedy="Replace them, or skip them with --skip-bad.")
    reporter.note(f"{found}. They get the same probability for every class.")
    return facts


def _batches(trained: TrainedModel, facts: Sequence[ImageFacts], decoding: Decoding) -> Any:
    scale = np.float32(trained.scale())
    good = [fact for fact in facts if not fact.problem]
    images = Reader(good, decoding).decoded(good).batch(BATCH)
    return images.map(lambda batch: tf.cast(batch, tf.float32) * scale).prefetch(2)


def _answers(
    images: _Images,
    facts: Sequence[ImageFacts],
    outputs: Iterator[NDArray[np.float32]],
    names: tuple[str, ...],
    with_label: bool,
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each image's name, with its label and probability or a probability per class."""
    unknown = np.full(len(names), 1 / len(names), np.float32)
    for name, fact in zip(images.names, facts, strict=True):
        shares = unknown if fact.problem else probabilities(next(outputs))
        if not with_label:
            yield name, tuple(map(number, shares))
        else:
            yield name, ("", number(shares[0])) if fact.problem else chosen(shares, names)
    next(outputs, None)  # the last progress is reported after the last output
