"""Image files: in one folder per class, or in a folder with a table of their names and labels."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace
from pydantic import BeforeValidator

from ...config.values import Section, listed
from ...errors import DataError, did_you_mean
from ...storage.paths import user_path
from ..examples import Input, Signature, Task
from ..images import files
from ..images.files import Source, files_below, image_folder
from ..places import IMAGE_ENDINGS, is_image_name, is_remote, join, locate, not_there, shown
from ..tables import UNNAMED, class_order, first_of, is_number, noted, refuse_lines, refuse_missing
from . import skimming
from .kind import ImageFilesKind, ImageSize, Name, Question, Recognized, Resize, SkipBad, class_count
from .skimming import Survey, first_rows, short_text

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ..code import DataCode

_TRAINING, _OTHERS = ("train", "training"), ("val", "valid", "validation", "test", "testing")
"""Folder names that mean parts of a dataset, not classes."""
_WORDS = re.compile("[^a-z]+")
_DEEPEST = 4  # folders in one another that are looked into
_MOST_BESIDE = 50  # folders beside a table that are looked at
_SUM_TOLERANCE = 1e-3  # of probabilities
_MOSTLY = 0.9  # the share of rows that name another image than all before; the loader refuses the others


class ImageFolderOptions(Section):
    """Options of `image-folder`: one folder of images per class."""

    path: Annotated[Name, "The folder with one folder per class."]
    validation_path: Annotated[str, "The same for validation; by default a share of `path` is held out."] = ""
    image_size: ImageSize = (128, 128)
    resize: Resize = "stretch"
    skip_bad: SkipBad = False


class ImageFolder(ImageFilesKind[ImageFolderOptions]):
    """Folders of images."""

    name = "image-folder"
    title = "one folder of images per class"
    Options = ImageFolderOptions
    code_needs = ("classes",)

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        return recognized_folders(place, is_image_name)

    def survey_files(self, path: Path, options: ImageFolderOptions) -> Survey:
        return survey_folders(path, options.validation_path, is_image_name, "images")

    def read_source(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Source:
        """List the images and their classes; raise `DataError` if there are not at least two folders of images."""
        source = _listed(self.options(config).path, "path", on_fetch)
        if {*_TRAINING, *_OTHERS}.issuperset(name.lower() for name in source.class_names):
            what = f"{', '.join(source.class_names)} in {source.place} are parts of a dataset, not classes."
            raise DataError(what, remedy="Name the training folder, and set data.options.validation_path to the other.")
        if len(source.class_names) < 2:
            what = f"{source.place} has one folder with images, '{source.class_names[0]}': training needs two or more."
            raise DataError(what, remedy="Use a folder for each class.")
        return source

    def sources(self, config: RunConfig, on_fetch: Callable[[str], None]) -> list[Source]:
        source, other = self.read_source(config, on_fetch), self.options(config).validation_path
        if not other:
            return [source]
        import numpy as np

        validation, known = _listed(other, "validation_path", on_fetch), source.class_names
        refuse_other_classes(validation.place, validation.class_names, source.place, known)
        labels = np.array([*map(known.index, validation.class_names)], np.int32)[validation.labels]
        return [source, replace(validation, labels=labels, class_names=known)]

    def write_code(self, code: DataCode) -> None:
        def listed(target: str, folder: str) -> None:
            names = (code.record.get("left_out") or {}).get(folder)
            code.call(target, "list_images", *map(code.literal, (folder, [*names]) if names else (folder,)))

        options = self.options(code.config)
        code.needs("numpy as np", "os", Path="pathlib")
        code.assign(CLASSES=code.record["classes"])
        code.functions(_FUNCTION)
        listed("files, labels", locate(options.path))
        if options.validation_path:
            code.add(f"rows = {code.shuffled('len(files)')}", "files_train, y_train = files[rows], labels[rows]")
            listed("files_val, y_val", locate(options.validation_path))
        else:
            code.split("labels", "labels", "files")
        code.images(self.decoding(code.config), locate(options.path), "y_train")


_FUNCTION = '''
def list_images(folder, left_out=()):
    """Return the files below a folder per class, and their class numbers."""
    endings = {".bmp", ".gif", ".jpeg", ".jpg", ".png"}
    files, labels = [], []
    for label, name in enumerate(CLASSES):
        for place, folders, found in os.walk(Path(folder, name)):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            for file in (Path(place, one) for one in sorted(found) if one[0] != "."):
                is_image = file.suffix.lower() in endings
                if is_image and file.relative_to(folder).as_posix() not in left_out:
                    files.append(str(file))
                    labels.append(label)
    return np.array(files), np.array(labels)
'''


def recognized_folders(place: Path, is_wanted: Callable[[str], bool], depth: int = 0) -> Recognized | None:
    """Recognize folders with such files, or folders of them in train/ and in test/, val/ or the like, side by side.

    All of them may lie in one more folder, as archives are often unpacked.
    """
    if depth > _DEEPEST or not place.is_dir():
        return None
    inside = {entry.name.lower(): entry for entry in place.iterdir() if entry.is_dir() and entry.name[0] not in "._"}
    train, other = (
        recognized_folders(inside[name], is_wanted, depth + 1) if (name := _part(inside, words)) else None
        for words in (_TRAINING, _OTHERS)
    )
    if train is not None:
        validation = {"validation_path": other.options["path"]} if other is not None else {}
        return Recognized({"path": train.options["path"], **validation}, sure=0.8)
    classes = [entry for entry in inside.values() if any(is_wanted(file.name) for file in entry.iterdir())]
    if len(classes) == 1 and not inside.keys().isdisjoint(("labels", "annotations")):
        return None  # these are boxes
    if len(classes) > 1 and all(_part([entry.name.lower()], (*_TRAINING, *_OTHERS)) for entry in classes):
        return None  # these are parts, whose files have no folder for each class
    if classes:
        # A table may label the images of one folder.
        return Recognized({"path": str(place)}, sure=0.6 if len(classes) > 1 else 0.4)
    return recognized_folders(next(iter(inside.values())), is_wanted, depth + 1) if len(inside) == 1 else None


def _part(names: Iterable[str], words: Sequence[str]) -> str:
    """Return the first name that is, or contains, one of some words, such as ``seg_train``; or an empty string."""
    return next((name for word in words for name in sorted(names, key=len) if word in _WORDS.split(name)), "")


def survey_folders(
    path: Path, validation_path: str, is_wanted: Callable[[str], bool], what: str, *, needs_both: bool = False
) -> Survey:
    """Count such files of each class; with `needs_both`, only the classes that validation also has."""
    ends_at, validation = skimming.deadline(), None

    def counted(folder: Path) -> dict[str, int]:
        if not folder.is_dir():
            raise DataError(f"{user_path(folder)} is a file, not a folder.")
        inside = [one for one in sorted(folder.iterdir()) if one.is_dir() and one.name[0] != "."]
        counts = {
            short_text(one.name): sum(map(is_wanted, skimming.in_time(files_below(str(one)), ends_at)))
            for one in inside
        }
        return {name: count for name, count in counts.items() if count}

    counts = counted(path)
    if validation_path and not is_remote(validation_path):
        others = counted(Path(locate(validation_path)))
        validation = sum(others.values())
        counts = {name: count for name, count in counts.items() if name in others or not needs_both}
    if len(counts) < 2:
        both = " that validation also has" if needs_both and validation is not None else ""
        problem = f"needs one folder per class, at least two with {what}{both}; it has {len(counts)}"
        return skimming.trouble("path", f"{user_path(path)} {problem}")
    return Survey(total=sum(counts.values()), classes=counts, validation=validation)


def list_classes(path: str, option: str, on_fetch: Callable[[str], None]) -> tuple[str, dict[str, list[str]]]:
    """Return where the folder that an option names is, and the files below each folder in it."""
    place = locate(path)
    on_fetch(f"listing {place}")
    try:
        folders, _ = files.list_folder(place)
    except FileNotFoundError as error:
        raise not_there(path, "folder", option) from error
    return place, {name: list(files_below(join(place, name))) for name in folders}


def refuse_other_classes(validation: str, names: Iterable[str], place: str, known: Collection[str]) -> None:
    """Raise `DataError` if a folder for validation has a class that the one for training does not have."""
    if unknown := next((name for name in names if name not in known), None):
        what = f"{validation} has a folder '{unknown}' that {place} does not have; {did_you_mean(unknown, known)}"
        raise DataError(what, remedy="Both need the same classes.")


def _listed(path: str, option: str, on_fetch: Callable[[str], None]) -> Source:
    import numpy as np

    place, by_class = list_classes(path, option, on_fetch)
    images = {name: [*filter(is_image_name, files)] for name, files in by_class.items()}
    classes = [name for name in images if images[name]]
    if not classes:
        raise DataError(f"{place} has no folders with images in them.", remedy="Use a folder for each class.")
    names = [f"{name}/{file}" for name in classes for file in images[name]]
    labels = np.repeat(np.arange(len(classes), dtype=np.int32), [len(images[name]) for name in classes])
    others = [f"{name}/{file}" for name, files in by_class.items() for file in files if not is_image_name(file)]
    said = {
        "Files whose names do not end like an image's are ignored": others,
        "Folders without images are not used as classes": [name for name in images if name not in classes],
    }
    notices = tuple(f"{what}: {first_of(which, 3)}." for what, which in said.items() if which)
    paths = tuple(join(place, name) for name in names)
    return Source(place, tuple(names), paths, labels, tuple(classes), notices=notices)


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
                # A cell may hold a text that is too long for a file name.
                if os.path.isfile(place.parent / folder / (values[0] + ending)):  # noqa: PTH113  never raises
                    break
            else:
                continue
            options: dict[str, Any] = {"path": str(place), "images": folder} | ({"inputs": name} if column else {})
            others = [other for other in heading if other != name and not other.startswith(UNNAMED)]
            places = [heading.index(other) for other in others]
            # Columns of numbers alone are one per class.
            if not all(is_number(row[at]) for row in rows for at in places if at < len(row)):
                others = [label for label in skimming.label_columns(heading, rows, ()) if label in others] or others
                if len(others) > 1:
                    question = Question("label", "Which column has the labels?", {other: [other] for other in others})
                    return Recognized(options, 0.7, question)
            return Recognized(options | ({"label": others} if len(others) < len(heading) - 1 else {}), 0.7)
        return None

    def survey_files(self, path: Path, options: ImageCsvOptions) -> Survey:
        wanted = dict.fromkeys(options.label, "label") | ({options.inputs: "inputs"} if options.inputs else {})
        return skimming.count_classes(
            path, wanted, options.label, ids=options.inputs, empty=files.EMPTY, classes=options.classes
        )

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
        table = files.read_ids(options.path, options.inputs, "inputs")
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
        paths, suffix = files.find_images(folder, ids, options.images)
        record = {"id_column": table.columns[0], "label_columns": columns, "images": options.images, "suffix": suffix}
        return Source(folder, tuple(ids), tuple(paths), labels, names, record | noted(table))

    def write_code(self, code: DataCode) -> None:
        options, record = self.options(code.config), code.record
        folder, columns = image_folder(options.path, options.images), record["label_columns"]
        name, suffix = code.literal(record["id_column"]), record.get("suffix")
        code.table(options.path, {"dtype": f"{{{name}: str}}"}, IMAGES=folder.rstrip("/"))
        if left_out := (record.get("left_out") or {}).get(folder):
            code.assign(LEFT_OUT=[*left_out])
            code.add(f"table = table[~table[{name}].isin(LEFT_OUT)]")
        path = 'IMAGES + "/" + name' + (f" + {code.literal(suffix)}" if suffix else "")
        code.add(f"files = np.array([{path} for name in table[{name}]])")
        code.assign(CLASSES=record["classes"])
        code.are_shares = len(columns) > 1 and not code.config.loss_name.startswith("sparse_")
        numbers = "numbers" if code.are_shares else "labels"
        if len(columns) == 1:
            code.add(f"labels = table[{code.literal(columns[0])}].astype(str).map(CLASSES.index).to_numpy()")
        else:
            code.add('labels = table[CLASSES].to_numpy("float32")', f"{numbers} = labels.argmax(axis=1)")
        code.split("labels", numbers, "files")
        code.images(self.decoding(code.config), folder, "y_train.argmax(axis=1)" if code.are_shares else "y_train")


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
        files.refuse_sparse(loss, place)
    return np.asarray(np.asarray(shares).argmax(axis=1), np.int32)
