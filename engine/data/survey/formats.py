"""Detects the format of a file or folder from names and first lines."""

from __future__ import annotations

import csv
import re
import zipfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...config.catalog import FORMATS
from ...config.reading import parse_config
from ...errors import DataError, one_line
from ...storage.paths import user_path
from ..places import IMAGE_ENDINGS, is_image_name, is_remote, locate
from ..tfrecord.schema import SCHEMA_NAME
from .skimming import TooLargeError, text_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...config.run_config import RunConfig

_MODELS = {
    "image-csv": ("cnn", "categorical_crossentropy"),
    "text-pairs": ("transformer", "sparse_categorical_crossentropy"),
    "text-csv": ("text", "sparse_categorical_crossentropy"),
    "ratings-csv": ("recommender", "mean_squared_error"),
}
_NOT_LANGUAGES = {*IMAGE_ENDINGS, ".py", ".md", ".txt", ".csv", ".tsv", ".gz", ".zip", ".tar", ".npz", ".npy"}
_TEXTS, _LABELS = ("text", "review", "sentence", "content", "message"), ("label", "sentiment", "class", "category")
_BINARY = {".npz", ".npy", ".parquet"}
_MOST_BESIDE = 50  # tables of a folder, and folders beside a table, that are looked at
_USERS, _ITEMS, _RATINGS = ("userid", "user_id", "user"), ("movieid", "itemid", "item_id", "item"), ("rating",)


def config_for(dataset: str, options: Mapping[str, Any]) -> RunConfig:
    """Return a configuration that loads a dataset; raise `ConfigError` if the options do not fit."""
    model, loss = _MODELS.get(dataset, ("cnn", "sparse_categorical_crossentropy"))
    values = {"dataset": dataset, "model": model, "loss": loss, "batch_size": 32, "epochs": 1}
    return parse_config(values | {"metrics": [], "data": {"options": dict(options)}})


def config_to_run(config: RunConfig, found: Mapping[str, Any]) -> RunConfig:
    """Return a configuration that trains on a dataset as `inspect` found it: images in their own size."""
    values = config.model_dump(mode="json")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(str(config.data.options.get("path", "mine"))).stem).strip("-._")
    images, train = found.get("images") or {}, found.get("train") or 32
    if "height" in images and "image_size" not in config.data.options:
        values["data"]["options"]["image_size"] = [round(images[side]["median"]) for side in ("height", "width")]
    is_number = config.loss == "mean_squared_error"
    metrics = ["mean_absolute_error" if is_number else "accuracy"]
    batch = next(size for size in (32, 16, 8, 4, 2, 1) if size <= max(train, 1))
    return parse_config(values | {"name": name or "mine", "epochs": 10, "batch_size": batch, "metrics": metrics})


def guess(path: str) -> tuple[str, dict[str, Any]]:
    """Return the name of the dataset that fits a file or folder, and its options.

    Raises:
        DataError: It does not exist or has no known format.
    """
    place = Path(locate(path))
    if is_remote(path) or not place.exists():
        where = "it is remote" if is_remote(path) else "it does not exist"
        raise DataError(f"The format of {path} cannot be detected: {where}.", remedy=_REMEDY)
    try:
        found = _guess_folder(place) if place.is_dir() else _guess_file(place)
    except TooLargeError:
        found = None
    except OSError as error:
        raise DataError(f"{user_path(place)} cannot be read: {error.strerror or one_line(error)}.") from error
    except (EOFError, csv.Error) as error:
        raise DataError(f"{user_path(place)} cannot be read.", why=one_line(error)) from error
    if found is None:
        raise DataError(f"{user_path(place)} is not in a known format.", remedy=_REMEDY)
    return found


_REMEDY = (
    f"Name the format, as in `tpu-console inspect image-csv --set data.options.path=…`: {', '.join(FORMATS)}.\n"
    "Read anything else, such as a table of numbers, with a function of yours: `tpu-console inspect mine.py:data`."
)


def _guess_folder(folder: Path) -> tuple[str, dict[str, Any]] | None:
    if (folder / SCHEMA_NAME).is_file():
        return "tfrecord", {"path": str(folder)}
    if (table := folder / "train.csv").is_file() and (found := _guess_table(table)) is not None:
        return found
    if (parts := _parts_of(folder)) is not None:
        return "image-folder", parts
    if (pair := _two_texts(folder)) is not None:
        return "text-pairs", pair
    inside = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    classes = [entry for entry in inside if any(is_image_name(file.name) for file in entry.iterdir())]
    if len(classes) < 2:  # images that a table labels
        tables = islice((file for file in sorted(folder.glob("*.csv")) if file.is_file()), _MOST_BESIDE)
        if (found := next(filter(None, map(_guess_table, tables)), None)) is not None:
            return found
    return ("image-folder", {"path": str(folder)}) if classes else None


def _parts_of(folder: Path) -> dict[str, Any] | None:
    """Return the options of a folder with images in train/ and in test/, val/ or the like, side by side."""
    by_name = {entry.name.lower(): entry for entry in folder.iterdir() if entry.is_dir()}
    train = next((by_name[name] for name in ("train", "training") if name in by_name), None)
    if train is None or (found := _guess_folder(train)) is None or found[0] != "image-folder":
        return None
    other = next((by_name[name] for name in ("val", "valid", "validation", "test", "testing") if name in by_name), None)
    return {"path": str(train)} | ({"validation_path": str(other)} if other is not None else {})


def _two_texts(folder: Path) -> dict[str, Any] | None:
    """Return the options of two files of sentences, such as train.en and train.de."""
    named = [entry for entry in folder.iterdir() if re.fullmatch(r"\.[a-z]{2,3}", entry.suffix) and entry.is_file()]
    texts = sorted((entry for entry in named if entry.suffix not in _NOT_LANGUAGES), key=lambda entry: entry.name)
    stems = [entry.stem for entry in texts]
    stem = next((stem for stem in ("train", "training", *stems) if stems.count(stem) == 2), None)
    if stem is None:
        return None
    first, second = (entry for entry in texts if entry.stem == stem)
    source, target = (second, first) if second.suffix == ".en" else (first, second)
    return {"path": str(source), "target_path": str(target)}


def _guess_file(file: Path) -> tuple[str, dict[str, Any]]:
    if ".csv" in file.suffixes:
        if (found := _guess_table(file)) is not None:
            return found
        raise _needs_function(file, _first_rows(file)[0])
    first = next(text_lines(file), "")
    if "\t" in first and "\0" not in first and file.suffix not in _BINARY:
        return "text-pairs", {"path": str(file)}
    raise _needs_function(file)


def _needs_function(file: Path, columns: Sequence[str] = ()) -> DataError:
    """Return the error that says what a file is, and which function reads it for a training."""
    path, module, split = repr(str(file.absolute())), "pandas as pd", ""
    if columns and "\0" not in "".join(columns):
        what = f"a table with the columns {', '.join(columns[:8])}{', …' if columns[8:] else ''}"
        what += ": no file names of images beside it, no texts with labels, no ratings"
        reads, label = f"table = pd.read_csv({path})", repr(columns[-1])
        split = f"table.drop(columns={label}).to_numpy('float32'), table[{label}].to_numpy()"
    elif file.suffix == ".parquet":
        what, reads = "a Parquet table", f"table = pd.read_parquet({path})  # needs pyarrow"
        split = "table.iloc[:, :-1].to_numpy('float32'), table.iloc[:, -1].to_numpy()  # the last column is the label"
    elif file.suffix in _BINARY:
        names, module = _arrays_in(file), "numpy as np"
        what = f"arrays of NumPy: {', '.join(names[:8])}" if names else "an array of NumPy"
        reads = f"arrays = np.load({path})"
        pairs = [("x_train", "y_train"), ("x_test", "y_test")]
        if not {*names} >= {*pairs[0], *pairs[1]}:
            pairs = [(names[0], names[1])] if names[1:] else []
        split = ", ".join(f"(arrays[{x!r}], arrays[{y!r}])" for x, y in pairs) or "arrays, LABELS"
    else:
        return DataError(f"{user_path(file)} is not in a known format.", remedy=_REMEDY)
    return DataError(
        f"{user_path(file)} is {what}.",
        why="A function of yours can read it. Write mine.py, and check what it returns:",
        remedy=f"""
    import {module}

    def data():
        {reads}
        return {split}

This looks at the data, and trains:

    tpu-console inspect mine.py:data
    tpu-console run digits-cnn --set dataset=mine.py:data --set model=mlp""",
    )


def _arrays_in(file: Path) -> list[str]:
    try:
        with zipfile.ZipFile(file) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()[:_MOST_BESIDE]]
    except zipfile.BadZipFile:  # a single array, or damaged
        return []


def _first_rows(table: Path) -> tuple[list[str], list[str]]:
    lines = text_lines(table)
    return next(csv.reader([next(lines, "")]), []), next(csv.reader([next(lines, "")]), [])


def _guess_table(file: Path) -> tuple[str, dict[str, Any]] | None:
    path = {"path": str(file)}
    heading, row = _first_rows(file)
    user, item, rating = (_named(heading, names) for names in (_USERS, _ITEMS, _RATINGS))
    if user and item and rating:
        return "ratings-csv", path | {"user_column": user, "item_column": item, "rating_column": rating}
    text, label = _named(heading, _TEXTS), _named(heading, _LABELS)
    if text and label:
        return "text-csv", path | {"text_column": text, "label_column": label}
    names = [row[0] + ending for ending in ("", *sorted(IMAGE_ENDINGS))] if row and row[0] else []
    beside = sorted(entry.name for entry in file.parent.iterdir() if entry.is_dir() and entry.name[0] != ".")
    for folder in ("images", ".", *beside[:_MOST_BESIDE]):
        if any((file.parent / folder / name).is_file() for name in names):
            return "image-csv", path | {"images": folder}
    return None


def _named(heading: Sequence[str], names: Sequence[str]) -> str:
    """Return the first column with one of these names, or an empty string."""
    return next((column for name in names for column in heading if column.strip().lower() == name), "")
