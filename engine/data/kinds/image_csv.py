"""Images in a folder, with a table of their names and labels."""

from __future__ import annotations

import os
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from ...config.pieces import listed
from ...config.values import Section
from ...errors import DataError, did_you_mean
from ..examples import Input, Signature, Task
from ..images.files import Source, find_images, image_folder, read_ids, refuse_sparse
from ..places import IMAGE_ENDINGS, locate, shown
from ..survey.skimming import Survey, count_classes, first_rows, label_columns
from ..tables import UNNAMED, class_order, is_number, noted, refuse_lines, refuse_missing
from .kind import ImageFilesKind, ImageSize, Name, Question, Recognized, Resize, SkipBad, class_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ...code import Imports
    from ...config.run_config import RunConfig
    from ..data_code import DataCode

_MOST_BESIDE = 50  # folders beside a table that are looked at
_SUM_TOLERANCE = 1e-3  # of probabilities
_MOSTLY = 0.9  # the share of rows that name another image than all before; the loader refuses the others


class ImageCsvOptions(Section):
    """Options of `image-csv`: a CSV of file names and labels, and a folder of images."""

    path: Annotated[Name, "The CSV file."]
    images: Annotated[Name, "Folder of the images; a relative path starts at the folder of the CSV."] = "images"
    inputs: Annotated[str, "Column of file names, with or without extension; by default the first."] = ""
    label: Annotated[
        tuple[Name, ...],
        BeforeValidator(listed),
        "The column of labels, or a column of probabilities per class; by default all others.",
    ] = ()
    classes: Annotated[
        tuple[Name, ...], "Classes of a single label column, in order; by default those in the file."
    ] = ()
    image_size: ImageSize = (128, 128)
    resize: Resize = "stretch"
    skip_bad: SkipBad = False


class ImageCsv(ImageFilesKind[ImageCsvOptions]):
    """A table of images."""

    name = "image-csv"
    title = "a CSV of images and labels, and a folder of images"
    Options = ImageCsvOptions
    code_needs = ("classes", "label_columns", "id_column")
    loss = "categorical_crossentropy"

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        """Recognize a CSV by a column whose first row names an image beside it, and whose others name other images."""
        heading, rows = first_rows(place)
        beside = sorted(entry.name for entry in place.parent.iterdir() if entry.is_dir() and entry.name[0] != ".")
        for column, name in enumerate(heading):
            values = [row[column] for row in rows if column < len(row)]
            if not values or not values[0] or len({*values}) < _MOSTLY * len(rows):
                continue  # numbers, and there is a 1.jpg
            for folder, ending in product(("images", ".", *beside[:_MOST_BESIDE]), ("", *sorted(IMAGE_ENDINGS))):
                # A text is no name of a file: it may be too long for one.
                if os.path.isfile(place.parent / folder / (values[0] + ending)):  # noqa: PTH113  never raises
                    break
            else:
                continue
            options: dict[str, Any] = {"path": str(place), "images": folder} | ({"inputs": name} if column else {})
            others = [other for other in heading if other != name and not other.startswith(UNNAMED)]
            places = [heading.index(other) for other in others]
            # Columns of numbers alone are one per class.
            if not all(is_number(row[at]) for row in rows for at in places if at < len(row)):
                others = [label for label in label_columns(heading, rows, ()) if label in others] or others
                if len(others) > 1:
                    question = Question("label", "Which column has the labels?", {other: [other] for other in others})
                    return Recognized(options, 0.7, question)
            return Recognized(options | ({"label": others} if len(others) < len(heading) - 1 else {}), 0.7)
        return None

    def survey_files(self, path: Path, options: ImageCsvOptions) -> Survey:
        """Count the rows of each class, or the rows in which it is the most probable one."""
        wanted = dict.fromkeys(options.label, "label") | ({options.inputs: "inputs"} if options.inputs else {})
        return count_classes(path, wanted, options.label, ids=options.inputs)

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        """Return the size of the images; a sparse loss needs class numbers, whatever the columns contain."""
        options = self.options(config)
        has_shares = len(options.label) > 1 and not options.classes
        named = options.classes or (options.label if has_shares else ())
        classes, assumed = (len(named), "") if named else class_count(self.name, found)
        task = Task.PROBABILITIES if has_shares and not config.loss.startswith("sparse_") else Task.CLASSES
        return Signature(task, {"image": Input((*options.image_size, 3))}, classes), assumed

    def read_source(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Source:
        """Read the table and find the files of its images; a sparse loss needs class numbers."""
        options = self.options(config)
        place = shown(options.path)
        on_fetch(f"reading {place}")
        table = read_ids(options.path, options.inputs, "inputs")
        others = [str(column) for column in table.columns[1:]]
        if unknown := next((name for name in options.label if name not in others), None):
            what = f"{place} has no label column '{unknown}'; {did_you_mean(unknown, others)}"
            raise DataError(what, remedy="Set data.options.label.")
        if not others:
            what = f"{place} has no label column besides '{table.columns[0]}'."
            raise DataError(what, remedy="Set data.options.path to the table with the labels.")
        columns = list(options.label) or others
        refuse_missing(options.path, table, columns)
        if len(columns) == 1:
            labels, names = _class_numbers(table[columns[0]], options.classes, place)
        elif options.classes:
            what = f"data.options.classes needs one label column, but {place} is read with {len(columns)}."
            raise DataError(what, remedy="Remove it, or name the column in data.options.label.")
        else:
            labels, names = _probabilities(table[columns], config.loss, place), tuple(columns)
        ids = table.iloc[:, 0].tolist()
        folder = image_folder(options.path, options.images)
        paths, suffix = find_images(folder, ids, options.images)
        record = {"id_column": table.columns[0], "label_columns": columns, "images": options.images, "suffix": suffix}
        return Source(folder, tuple(ids), tuple(paths), labels, names, record | noted(table))

    def code(self, config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
        """Return code that reads the table with pandas and splits it."""
        from ...code import assigned, literal
        from ..data_code import chosen, image_code, split, table_code

        options = self.options(config)
        folder, suffix = image_folder(options.path, options.images), record.get("suffix")
        columns, names = record["label_columns"], f"table[{literal(record['id_column'])}]"
        files = 'IMAGES + "/" + name' + (f" + {literal(suffix)}" if suffix else "")
        lines = [assigned("TABLE", locate(options.path)), assigned("IMAGES", folder.rstrip("/")), ""]
        lines += table_code(imports, options.path, record, dtype=f"{{{literal(record['id_column'])}: str}}")
        if left_out := (record.get("left_out") or {}).get(folder):
            lines += [assigned("LEFT_OUT", list(left_out)), f"table = table[~{names}.isin(LEFT_OUT)]"]
        lines += [f"files = np.array([{files} for name in {names}])", assigned("CLASSES", record["classes"])]
        are_shares = len(columns) > 1 and not config.loss_name.startswith("sparse_")
        numbers = "numbers" if are_shares else "labels"
        if len(columns) == 1:
            lines.append(f"labels = table[{literal(columns[0])}].astype(str).map(CLASSES.index).to_numpy()")
        else:
            lines.append('labels = table[CLASSES].to_numpy("float32")')
            lines.append(f"{numbers} = labels.argmax(axis=1)")
        lines += [*split(imports, held_out, config.data.train_limit, numbers), *chosen("files", "labels")]
        code = image_code(lines, self.decoding(config), folder, f"y_train{'.argmax(axis=1)' if are_shares else ''}")
        code.are_shares = are_shares
        return code


def _class_numbers(
    column: pd.Series[str], classes: Sequence[str], place: str
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the class number of each row, and the names of the classes, in the order of `classes` if there are any."""
    import numpy as np

    names = tuple(classes) or tuple(sorted(column.unique(), key=class_order))
    unknown = column[~column.isin(names)]
    if len(unknown):
        what = f"the label '{unknown.iloc[0]}' is not in data.options.classes; {did_you_mean(unknown.iloc[0], names)}"
        refuse_lines(place, unknown.index, what, "Correct it or add it to data.options.classes.")
    if len(names) < 2:
        what = f"{place}: every label in column '{column.name}' is '{names[0]}'; training needs at least two classes."
        raise DataError(what, remedy="Set data.options.label to the column with the classes.")
    return np.array(column.map({name: number for number, name in enumerate(names)}), np.int32), names


def _probabilities(table: pd.DataFrame, loss: str, place: str) -> NDArray[Any]:
    """Return the probability of each class, of shape (rows, classes); for a sparse loss, class numbers."""
    import numpy as np
    import pandas as pd

    for name, column in table.items():
        wrong = column[~pd.to_numeric(column, errors="coerce").between(0, 1)]
        what = f"'{next(iter(wrong), '')}' in column '{name}' is not a probability between 0 and 1"
        remedy = "Set data.options.label to the label column, or to the columns of the classes' probabilities."
        refuse_lines(place, wrong.index, what, remedy)
    shares = table.astype(np.float64)
    sums = shares.sum(axis=1)
    wrong = sums[(sums - 1).abs() > _SUM_TOLERANCE]
    what = f"the probabilities of the classes add up to {next(iter(wrong), 0):g}, not 1"
    refuse_lines(place, wrong.index, what, "Correct them.")
    if not loss.startswith("sparse_"):
        return np.asarray(shares, np.float32)
    if not shares.isin((0.0, 1.0)).all(axis=None):
        refuse_sparse(loss, place)
    return np.asarray(np.asarray(shares).argmax(axis=1), np.int32)
