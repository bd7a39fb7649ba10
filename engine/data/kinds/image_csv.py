"""Images in a folder, with a table of their names and labels."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from ...config.pieces import listed
from ...config.values import Section
from ...errors import DataError, did_you_mean
from ..examples import Input, Signature, Task
from ..places import IMAGE_ENDINGS, locate, shown
from ..survey.skimming import Survey, count_classes, first_rows, label_columns
from ..tables import UNNAMED, is_number, noted
from .image_kind import ImageFilesKind, ImageSize, Resize, SkipBad
from .kind import Column, FilePath, Question, Recognized, class_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ...code import Imports
    from ...config.run_config import RunConfig
    from ..data_code import DataCode
    from ..images.files import Source

_MOST_BESIDE = 50  # folders beside a table that are looked at
_MOSTLY = 0.9  # the share of rows that name another image than all before; the loader refuses the others


class ImageCsvOptions(Section):
    """Options of `image-csv`: a CSV of file names and labels, and a folder of images."""

    path: Annotated[FilePath, "The CSV file."]
    images: Annotated[FilePath, "Folder of the images; a relative path starts at the folder of the CSV."] = "images"
    inputs: Annotated[str, "Column of file names, with or without extension; by default the first."] = ""
    label: Annotated[
        tuple[Column, ...],
        BeforeValidator(listed),
        "The column of labels, or a column of probabilities per class; by default all others.",
    ] = ()
    classes: Annotated[
        tuple[Column, ...], "Classes of a single label column, in order; by default those in the file."
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
            if len({*values}) < _MOSTLY * len(rows):
                continue  # numbers, and there is a 1.jpg
            names = [values[0] + ending for ending in ("", *sorted(IMAGE_ENDINGS))] if values and values[0] else []
            for folder in ("images", ".", *beside[:_MOST_BESIDE]):
                # A text is no name of a file: it may be too long for one.
                if not any(os.path.isfile(place.parent / folder / name) for name in names):  # noqa: PTH113  never raises
                    continue
                options: dict[str, Any] = {"path": str(place), "images": folder} | ({"inputs": name} if column else {})
                others = [other for other in heading if other != name and not other.startswith(UNNAMED)]
                places = [heading.index(other) for other in others]
                # Columns of numbers alone are one per class.
                if not all(is_number(row[at]) for row in rows for at in places if at < len(row)):
                    others = [label for label in label_columns(heading, rows, ()) if label in others] or others
                    if len(others) > 1:
                        answers = {other: [other] for other in others}
                        return Recognized(options, 0.7, Question("label", "Which column has the labels?", answers))
                return Recognized(options | ({"label": others} if len(others) < len(heading) - 1 else {}), 0.7)
        return None

    def survey(self, path: Path, options: ImageCsvOptions) -> Survey:
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
        from ..images.files import Source, class_labels, find_images, for_loss, image_folder, read_ids, share_labels

        options = self.options(config)
        place = shown(options.path)
        on_fetch(f"reading {place}")
        table = read_ids(options.path, options.inputs, "inputs")
        others = [str(column) for column in table.columns[1:]]
        for name in options.label:
            if name not in others:
                what = f"{place} has no label column '{name}'; {did_you_mean(name, others)}"
                raise DataError(what, remedy="Set data.options.label.")
        if not others:
            what = f"{place} has no label column besides '{table.columns[0]}'."
            raise DataError(what, remedy="Set data.options.path to the table with the labels.")
        columns = list(options.label) or others
        if len(columns) == 1:
            labels, names = class_labels(table[columns[0]], options.classes, place)
        elif options.classes:
            raise DataError(
                f"data.options.classes needs one label column, but {place} is read with {len(columns)}.",
                remedy="Remove it, or name the column in data.options.label.",
            )
        else:
            labels, names = for_loss(share_labels(table[columns], place), config.loss, place), tuple(columns)
        ids = table.iloc[:, 0].tolist()
        folder = image_folder(options.path, options.images)
        paths, suffix = find_images(folder, ids, options.images)
        record = {"id_column": table.columns[0], "label_columns": columns, "images": options.images, "suffix": suffix}
        return Source(folder, tuple(ids), tuple(paths), labels, names, record | noted(table))

    def code(self, config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
        """Return code that reads the table with pandas and splits it."""
        from ...code import assigned, literal
        from ..data_code import chosen, image_code, split, table_code
        from ..images.files import image_folder

        options = self.options(config)
        imports.add("numpy as np")
        folder, suffix = image_folder(options.path, options.images), record.get("suffix")
        columns, column = record["label_columns"], record["id_column"]
        files = 'IMAGES + "/" + name' + (f" + {literal(suffix)}" if suffix else "")
        lines = [
            assigned("TABLE", locate(options.path)),
            assigned("IMAGES", folder.rstrip("/")),
            "",
            *table_code(imports, options.path, record, dtype=f"{{{literal(column)}: str}}"),
        ]
        if names := list((record.get("left_out") or {}).get(folder, ())):
            lines += [assigned("LEFT_OUT", names), f"table = table[~table[{literal(column)}].isin(LEFT_OUT)]"]
        lines += [
            f"files = np.array([{files} for name in table[{literal(column)}]])",
            assigned("CLASSES", record["classes"]),
        ]
        are_shares = len(columns) > 1 and not config.loss_name.startswith("sparse_")
        if len(columns) == 1:
            lines.append(f"labels = table[{literal(columns[0])}].astype(str).map(CLASSES.index).to_numpy()")
        else:
            lines.append('labels = table[CLASSES].to_numpy("float32")')
            lines.append(f"{'numbers' if are_shares else 'labels'} = labels.argmax(axis=1)")
        lines += split(imports, held_out, config.data.train_limit, "numbers" if are_shares else "labels")
        lines += chosen("files", "labels")
        labels = "y_train.argmax(axis=1)" if are_shares else "y_train"
        code = image_code(lines, self.decoding(config), folder, labels)
        code.are_shares = are_shares
        return code
